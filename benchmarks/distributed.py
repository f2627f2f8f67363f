"""Collectives and steps of DistributedDataParallel beside PyTorch's gloo, in the same processes and in turns.

    python benchmarks/distributed.py                     # 2 ranks; needs torch==2.13.0 beside flambeau
    python benchmarks/distributed.py --ranks 4 --only all_reduce --seconds 0.5
    python benchmarks/distributed.py --scaling 1,2,4     # more and more ranks; beside gloo where torch is installed
    python benchmarks/distributed.py --scaling 1,2,4 --mpi      # Flambeau's MPI engine alone, under mpiexec
    python benchmarks/distributed.py --timeline overlap.json    # when buckets travel, for chrome://tracing; or overlap.svg

The ratio is PyTorch's time over Flambeau's: larger is better for Flambeau. PyTorch's steps run as they are in every row.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import multiprocessing
import os
import queue
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import models  # noqa: E402

SIZES = {"8 B": 2, "1 MB": 1 << 18, "100 MB": 25_000_000}


def collective(lib: Any, name: str, count: int, size: int) -> Callable[[], Any]:
    """A call of one collective on `count` float32 numbers in all."""
    dist = lib.distributed
    part = max(1, count // size)
    x, small = lib.ones(part * size), lib.ones(part)
    return {
        "all_reduce": lambda: dist.all_reduce(x),
        "broadcast": lambda: dist.broadcast(x, 0),
        "all_gather": lambda: dist.all_gather_into_tensor(x, small),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(small, x),
    }[name]


def training_step(lib: Any, name: str, compiled: bool = False) -> Callable[[], Any]:
    """A step of a model in DistributedDataParallel; compiled if it is Flambeau's."""
    lib.manual_seed(0)
    if name == "ResNet-18":
        model, x = models.resnet18(lib), lib.randn(8, 3, 32, 32)
        y = lib.randint(0, 10, (8,))
    elif name == "MLP":
        nn = lib.nn
        model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
        x, y = lib.randn(64, 512), lib.randint(0, 10, (64,))
    else:
        model, x = models.gpt(lib), lib.randint(0, 65, (4, 128))
        y = lib.randint(0, 65, (4, 128))
    model = lib.nn.parallel.DistributedDataParallel(model)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        out = model(x)
        lib.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1)).backward()
        optimizer.step()

    if compiled and lib.__name__ == "flambeau":
        step = lib.compile(step)
        for _ in range(6):  # as it is, buckets rebuilt, recorded, compared
            step()
    return step


def agreed(lib: Any, value: float) -> float:
    """The largest value of any rank: all must measure the same number of times."""
    x = lib.tensor([value], dtype=lib.float64)
    lib.distributed.all_reduce(x, lib.distributed.ReduceOp.MAX)
    return x.item()


def libraries(with_torch: bool) -> list[Any]:
    import flambeau

    if not with_torch:
        return [flambeau]
    import torch
    import torch.distributed

    return [torch, flambeau]


def rank_main(rank: int, size: int, folder: str, options: argparse.Namespace, results: Any) -> None:
    libs = libraries(options.with_torch and not options.mpi and not options.timeline)
    for lib in libs:
        lib.set_num_threads(1)
        path = f"file://{folder}/{lib.__name__}"
        backend = "mpi" if options.mpi else "gloo"
        lib.distributed.init_process_group(backend, init_method=path, rank=rank, world_size=size)
    if options.timeline:
        results.put((rank, bucket_times(libs[-1])))
    else:
        for title, make in cases(options, size):
            steps = [make(lib) for lib in libs]
            times = fixed_turns(libs, steps, options.seconds)
            if rank == 0:
                results.put((title, times))
    if rank == 0:
        results.put(None)
    for lib in libs:
        lib.distributed.destroy_process_group()


def fixed_turns(libs: list[Any], steps: list[Callable], seconds: float) -> list[float]:
    """Median seconds of each, measured in turns; all ranks make the same number of them."""
    for step in steps:
        step()
    begin = time.perf_counter()
    for step in steps:
        step()
    once = agreed(libs[-1], time.perf_counter() - begin)
    turns = int(max(5, min(300, seconds / max(once, 1e-4))))
    samples: list[list[float]] = [[] for _ in steps]
    for _ in range(turns):
        for which, step in enumerate(steps):
            libs[-1].distributed.barrier()
            start = time.perf_counter()
            step()
            samples[which].append(time.perf_counter() - start)
    return [statistics.median(one) for one in samples]


def cases(options: argparse.Namespace, size: int) -> list[tuple[str, Callable[[Any], Callable]]]:
    found: list[tuple[str, Callable[[Any], Callable]]] = []
    names = ["all_reduce"] if options.scaling else ["all_reduce", "all_gather", "reduce_scatter", "broadcast"]
    for name in names:
        for label, count in SIZES.items():
            found.append((f"{name}, {label}", lambda lib, n=name, c=count: collective(lib, n, c, size)))  # type: ignore[misc]
    for name in ("MLP", "GPT") if options.scaling else ("MLP", "ResNet-18", "GPT"):
        for kind in () if options.mpi else ("",) if options.scaling else ("", " compiled"):
            found.append((f"DDP step{kind}, {name}", lambda lib, n=name, k=kind: training_step(lib, n, bool(k))))  # type: ignore[misc]
    return [case for case in found if options.only in case[0]]


def bucket_times(lib: Any) -> list[dict[str, Any]]:
    """Forward and backward passes and reductions of two steps, as events of a trace."""
    from flambeau.distributed.ordered_group import observers

    events: list[dict[str, Any]] = []

    def note(name: str, lane: str, begin: float, end: float) -> None:
        events.append({"name": name, "ph": "X", "ts": begin * 1e6, "dur": (end - begin) * 1e6, "tid": lane})

    def see(name: str, shapes: list, begin: float, end: float) -> None:
        megabytes = sum(4 * math.prod(shape) for shape in shapes) / 1e6
        note(f"{name.partition(':')[2]} {megabytes:.1f} MB", "network", begin, end)

    lib.manual_seed(0)
    model = lib.nn.parallel.DistributedDataParallel(models.resnet18(lib), broadcast_buffers=False)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01)
    x, y = lib.randn(8, 3, 32, 32), lib.randint(0, 10, (8,))
    for number in range(5):
        if number == 3:
            lib.distributed.barrier()
            observers.append(see)
        optimizer.zero_grad()
        times = [time.perf_counter()]
        loss = lib.nn.functional.cross_entropy(model(x), y)
        times.append(time.perf_counter())
        loss.backward()
        times.append(time.perf_counter())
        optimizer.step()
        times.append(time.perf_counter())
        if number >= 3:
            for name, begin, end in zip(("forward", "backward", "optimizer"), times, times[1:]):
                note(name, "compute", begin, end)
    return events


_COLOURS = {"forward": "#7aa6c2", "backward": "#3f6f8f", "optimizer": "#b8b8b8"}


def picture(ranks: list[tuple[int, list[dict[str, Any]]]]) -> str:
    """The trace as an SVG: for each rank a row of what it computes, and below it what travels meanwhile."""
    svg = importlib.import_module("flambeau.core.svg")
    begin = min(event["ts"] for _, events in ranks for event in events)
    length = max(event["ts"] + event["dur"] for _, events in ranks for event in events) - begin
    width, left, row = 1000.0, 140, 26
    scale = (width - left - 30) / length
    height = 60 + 80 * len(ranks)
    parts = []
    for position, (rank, events) in enumerate(sorted(ranks)):
        top = 20 + 80 * position
        for lane, text in enumerate(("computes", "sends buckets")):
            parts.append(svg.text(6, top + lane * row + 17, f"rank {rank} {text}"))
        for event in events:
            x, long = left + (event["ts"] - begin) * scale, event["dur"] * scale
            y = top + (row if event["tid"] == "network" else 0)
            colour = _COLOURS.get(event["name"], "#e08e45")
            title = f"{event['name']}, {event['dur'] / 1e3:.1f} ms"
            parts.append(svg.rect(x, y, max(long, 0.8), row - 4, title, fill=colour, stroke="white", stroke_width=0.5))
            label = event["name"].removeprefix("all_reduce ")
            if long > 6.5 * len(label):
                parts.append(svg.text(x + 4, y + 15, label, fill="white"))
    bottom, black = height - 30, {"stroke": "black", "stroke_width": 0.6}
    parts.append(svg.line(left, bottom, width - 30, bottom, **black))
    unit = next(u for u in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000) if length / 1e3 / u <= 12)
    for mark in range(0, int(length / 1e3) + 1, unit):
        x = left + mark * 1e3 * scale
        parts.append(svg.line(x, bottom, x, bottom + 4, **black))
        parts.append(svg.text(x, bottom + 16, f"{mark} ms", text_anchor="middle"))
    return svg.document(width, height, parts)


def _next(results: Any, ranks: list) -> Any:
    """The next result; an error when a rank has failed."""
    while True:
        try:
            return results.get(timeout=1)
        except queue.Empty:
            if any(process.exitcode for process in ranks):
                for process in ranks:
                    process.kill()
                raise SystemExit("a rank has failed") from None


def run(size: int, options: argparse.Namespace) -> list:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank_main, args=(r, size, folder, options, results)) for r in range(size)]
        for process in ranks:
            process.start()
        found = list(iter(lambda: _next(results, ranks), None))
        for process in ranks:
            process.join()
        while options.timeline and len(found) < size:
            found.append(results.get(timeout=10))
    return found


def run_under_mpiexec(size: int, options: argparse.Namespace) -> list:
    """The same in processes that mpiexec starts: rank 0 prints what it has measured."""
    mpiexec = shutil.which("mpiexec") or str(Path(sys.executable).parent / "mpiexec")
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True).stdout
    more = (
        ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        if "Open MPI" in version or "OpenRTE" in version
        else []
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [mpiexec, "-n", str(size), *more, sys.executable, __file__, "--mpi", "--scaling", str(size)]
        command += ["--only", options.only, "--seconds", str(options.seconds), "--folder", folder]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


class Printed:
    """Takes results in the place of a queue, and prints them."""

    @staticmethod
    def put(result: Any) -> None:
        if result is not None:
            print(json.dumps(result), flush=True)


def scaling(options: argparse.Namespace) -> None:
    """A table of times by number of ranks."""
    both = options.with_torch and not options.mpi
    titles = [title for title, _ in cases(options, 1)]
    engine = "MPI" if options.mpi else "Flambeau (PyTorch gloo)" if both else "Flambeau"
    print(f"| ranks, {engine} | " + " | ".join(titles) + " |\n| --: |" + " --: |" * len(titles), flush=True)
    for size in map(int, options.scaling.split(",")):
        found = run_under_mpiexec(size, options) if options.mpi else run(size, options)
        cells = [f"{shown(times[-1])} ({shown(times[0])})" if both else shown(times[-1]) for _, times in found]
        print(f"| {size} | " + " | ".join(cells) + " |", flush=True)


def shown(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
    parser.add_argument("--scaling", default="", help="numbers of ranks")
    parser.add_argument(
        "--mpi", action="store_true", help="with --scaling: MPI instead of shared memory, started by mpiexec"
    )
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    parser.add_argument("--timeline", default="", help="write a trace of two training steps there")
    options = parser.parse_args()
    options.with_torch = importlib.util.find_spec("torch") is not None
    if options.folder:  # one of the processes that mpiexec has started
        place = os.environ
        rank = int(place.get("OMPI_COMM_WORLD_RANK") or place["PMI_RANK"])
        rank_main(rank, int(options.scaling), options.folder, options, Printed())
        return
    if options.timeline:
        found = run(options.ranks, options)
        events = [{**event, "pid": f"rank {rank}"} for rank, events in found for event in events]
        Path(options.timeline).write_text(picture(found) if options.timeline.endswith(".svg") else json.dumps(events))
        return
    if options.scaling:
        scaling(options)
        return
    print(f"| {options.ranks} ranks | PyTorch gloo | Flambeau | ratio |\n| --- | --: | --: | --: |")
    for title, (theirs, ours) in run(options.ranks, options):
        print(f"| {title} | {shown(theirs)} | {shown(ours)} | {theirs / ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
