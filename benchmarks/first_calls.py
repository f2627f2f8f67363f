"""Memory and seconds of the first calls of a training step, eager and compiled, each in a process of its own.

    python benchmarks/first_calls.py                    # memory from a warm cache of kernels, seconds from a cold and a warm one
    python benchmarks/first_calls.py --only GPT --calls
    python benchmarks/first_calls.py --device cuda      # on a GPU: its memory, and wall time
    python benchmarks/first_calls.py --repeat 3         # the best of three
    python benchmarks/first_calls.py --write            # put the table into docs/internals/compile.md
    python benchmarks/first_calls.py --against ../other --repeat 7     # the first three calls beside those of another checkout

A process imports the library, makes model, data and optimizer, and calls the step eight times; the first three calls of a compiled
function run as they are, are recorded, and are compared, the others run natively. As with an installed package, Python's bytecode is
there (a process that is not measured writes it); what compiling imports counts as compiled's. Memory is the high-water mark of a call over what
the process had before the first one: of its resident pages (they are counted anew for each call) or of the GPU's allocator. Seconds
are those of the first call, and of the first three together: of the CPU, because the machine may be busy, or of the wall's clock on a
GPU. With `--repeat` every process runs several times, and the least of each figure counts, for eager as for compiled.

With `--against`, processes of this checkout and of another one take turns, over warm caches, and the medians of the CPU's milliseconds in
each of a compiled function's first three calls are printed: figures of one machine at one time, which may be compared. An `eager` row is
this checkout's first call without `compile`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import compile as compiled_cases  # noqa: E402
import models  # noqa: E402
import train  # noqa: E402

DOCS = Path(__file__).parent.parent / "docs" / "internals" / "compile.md"
ROOT = Path(__file__).parent.parent
CALLS = 8
LARGE = "GPT-124M, T=1024, batch 8, AdamW"  # on a GPU only


def large_gpt(lib: Any) -> Callable[[], Any]:
    return models.sequence(
        lib,
        lambda lib: models.gpt(lib, layers=12, width=768, heads=12, context=1024, vocabulary=50257),
        (8, 1024),
        50257,
        models.adamw,
    )


def resident(name: str = "VmHWM") -> int:
    """Bytes of this process in memory: now (VmRSS), or at most since `forget_peak`."""
    text = Path("/proc/self/status").read_text()
    found = re.search(rf"^{name}:\s*(\d+) kB", text, re.M)
    assert found is not None
    return int(found[1]) * 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def child(name: str, mode: str, device: str) -> None:
    """Print what each call took: seconds of the clock, of the CPU, and bytes."""
    lib: Any = __import__("torch" if mode == "PyTorch" else "flambeau")
    lib.set_num_threads(2)
    on_gpu = device != "cpu"
    with lib.device(device):
        step = large_gpt(lib) if name == LARGE else compiled_cases.CASES[name](lib)
    gc.collect()  # a full collection is due sooner or later: none of the calls shall have it by chance
    start = 0 if on_gpu else resident("VmRSS")
    if mode == "compiled":
        step = compiled_cases.compiled(step, lib.compile)
    rows = []
    for _ in range(CALLS):
        if on_gpu:
            lib.cuda.synchronize()
            lib.cuda.reset_peak_memory_stats()
        else:
            forget_peak()
        wall, cpu = time.perf_counter(), time.process_time()
        loss = step()
        if on_gpu:
            lib.cuda.synchronize()
        times = time.perf_counter() - wall, time.process_time() - cpu
        if on_gpu:
            free, total = lib.cuda.mem_get_info()
            peaks = [lib.cuda.max_memory_allocated(), lib.cuda.max_memory_reserved(), total - free]
        else:
            peaks = [resident() - start, resident("VmRSS") - start]
        rows.append([*times, *peaks])
        del loss
    print(json.dumps(rows))


def spawn(name: str, mode: str, device: str, cache: str, root: Path = ROOT) -> list[list[float]]:
    """What a process of its own says, which takes the library from the checkout `root`."""
    environment = {
        **os.environ,
        "FLAMBEAU_CACHE_DIR": cache,
        "CUDA_CACHE_PATH": f"{cache}-nvidia",
        "PYTHONPATH": str(root),
    }
    environment.update(PYTHONDONTWRITEBYTECODE="", PYTHONPYCACHEPREFIX=str(Path(cache).parent / "bytecode"))
    command = [sys.executable, __file__, "--child", mode, "--only", name, "--device", device]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}, {mode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def best(runs: list[list[list[float]]]) -> list[list[float]]:
    """Of each figure of each call the least."""
    return [[min(figures) for figures in zip(*rows)] for rows in zip(*runs)]


def measure(name: str, device: str, torch: bool, calls: bool, repeat: int) -> str:
    """One line of the table."""
    clock = 0 if device != "cpu" else 1
    with tempfile.TemporaryDirectory() as cache:
        spawn(name, "compiled", device, f"{cache}/unmeasured")
        found: dict[str, list] = {}
        for k in range(repeat):
            found.setdefault("eager, cold", []).append(spawn(name, "eager", device, f"{cache}/eager{k}"))
            found.setdefault("cold", []).append(spawn(name, "compiled", device, f"{cache}/cold{k}"))
            found.setdefault("compiled", []).append(spawn(name, "compiled", device, f"{cache}/cold{k}"))
            found.setdefault("eager", []).append(spawn(name, "eager", device, f"{cache}/cold{k}"))
            if torch:
                found.setdefault("PyTorch", []).append(spawn(name, "PyTorch", device, f"{cache}/cold{k}"))
        runs = {which: best(several) for which, several in found.items()}
    if calls:
        for which, rows in runs.items():
            for i, row in enumerate(rows):
                peaks = "  ".join(f"{peak / 1e6:9.1f}" for peak in row[2:])
                print(f"  {which:11} call {i}  {row[0]:7.3f} s  cpu {row[1]:7.3f} s  MB: {peaks}")
    peak = {which: [max(row[2] for row in rows), rows[-1][2]] for which, rows in runs.items()}
    if device != "cpu":  # what the allocator has taken from the device
        peak = {which: [max(row[3] for row in rows), rows[-1][3]] for which, rows in runs.items()}
    seconds = [[sum(row[clock] for row in runs[which][:n]) for n in (1, 3)] for which in ("cold", "compiled")]
    cells = [peak[which][0] / 1e6 for which in ("eager", "compiled")] + [peak["compiled"][1] / 1e6]
    cells = ([peak["PyTorch"][0] / 1e6] if torch else []) + cells
    return (
        f"| {name} | "
        + " | ".join(f"{cell:.1f} MB" for cell in cells)
        + " | "
        + " | ".join(f"{first:.2f} s / {three:.2f} s" for first, three in seconds)
        + " |"
    )


def compare(name: str, other: Path, repeat: int) -> None:
    """Print the first three calls of both checkouts."""
    rows = {f"{other.name} (other)": (other, "compiled"), "this": (ROOT, "compiled"), "this, eager": (ROOT, "eager")}
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, list[list[float]]] = {which: [] for which in rows}
        for turn in range(repeat + 1):
            for k, (which, (root, mode)) in enumerate(rows.items()):
                cpu = [call[1] * 1e3 for call in spawn(name, mode, "cpu", f"{folder}/{k}/kernels", root)[:3]]
                if turn:  # after one that fills the caches
                    found[which].append([*cpu, sum(cpu)])
    print(name)
    for which, runs in found.items():
        *calls, three = (statistics.median(column) for column in zip(*runs))
        print(f"  {which:20} {three:8.1f} ms: " + "  ".join(f"{call:8.1f}" for call in calls), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a part of the names of the cases to run")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--torch", action="store_true", help="PyTorch eager as well")
    parser.add_argument("--calls", action="store_true", help="print every call")
    parser.add_argument("--repeat", type=int, default=1, help="how often everything is run")
    parser.add_argument("--write", action="store_true", help="put the table into docs/internals/compile.md")
    parser.add_argument("--against", type=Path, help="another checkout, to compare the first three calls with")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.only, given.child, given.device)
        return
    if given.against:
        for name in (name for name in compiled_cases.CASES if given.only in name):
            compare(name, given.against.resolve(), given.repeat)
        return
    theirs = "PyTorch | " if given.torch else ""
    lines = [f"| | {theirs}eager | compiled, first calls | later | cold | warm |", "|---|--:|--:|--:|--:|--:|"]
    if given.torch:
        lines[1] += "--:|"
    for name in [*train.CASES, *([LARGE] if given.device != "cpu" else [])]:
        if given.only in name:
            lines.append(measure(name, given.device, given.torch, given.calls, given.repeat))
            print(lines[-1], flush=True)
    if given.write:
        which = "first calls" if given.device == "cpu" else "first calls, gpu"
        marked = re.compile(rf"(<!-- {which} -->\n).*?(<!-- end -->)", re.S)
        table = "\n".join(lines)
        DOCS.write_text(marked.sub(lambda m: f"{m[1]}{table}\n{m[2]}", DOCS.read_text()))


if __name__ == "__main__":
    main()
