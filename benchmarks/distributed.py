"""Collectives and steps of DistributedDataParallel beside PyTorch's gloo, in the same processes and in turns.

    python benchmarks/distributed.py                     # 2 ranks; needs torch==2.13.0 beside flambeau
    python benchmarks/distributed.py --ranks 4 --only all_reduce --seconds 0.5
    python benchmarks/distributed.py --scaling 1,2,4     # Flambeau alone: all_reduce with more and more ranks
    python benchmarks/distributed.py --timeline overlap.json    # when buckets travel, for chrome://tracing

The ratio is PyTorch's time over Flambeau's: larger is better for Flambeau.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
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


def training_step(lib: Any, name: str) -> Callable[[], Any]:
    """A step of a model in DistributedDataParallel."""
    lib.manual_seed(0)
    if name == "ResNet-18":
        model, x = models.resnet18(lib), lib.randn(8, 3, 32, 32)
        y = lib.randint(0, 10, (8,))
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
    libs = libraries(not options.scaling and not options.timeline)
    for lib in libs:
        lib.set_num_threads(1)
        path = f"file://{folder}/{lib.__name__}"
        lib.distributed.init_process_group("gloo", init_method=path, rank=rank, world_size=size)
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
    if not options.scaling:
        for name in ("ResNet-18", "GPT"):
            found.append((f"DDP step, {name}", lambda lib, n=name: training_step(lib, n)))  # type: ignore[misc]
    return [case for case in found if options.only in case[0]]


def bucket_times(lib: Any) -> list[dict[str, Any]]:
    """Backward passes and reductions of a few steps, as events of a trace."""
    from flambeau.distributed.process_group import observers

    events: list[dict[str, Any]] = []

    def see(name: str, shapes: list, begin: float, end: float) -> None:
        events.append(
            {"name": f"{name} {shapes}", "ph": "X", "ts": begin * 1e6, "dur": (end - begin) * 1e6, "tid": "network"}
        )

    step = training_step(lib, "ResNet-18")
    for _ in range(3):
        step()
    observers.append(see)
    for _ in range(2):
        begin = time.perf_counter()
        step()
        events.append(
            {"name": "step", "ph": "X", "ts": begin * 1e6, "dur": (time.perf_counter() - begin) * 1e6, "tid": "step"}
        )
    return events


def run(size: int, options: argparse.Namespace) -> list:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank_main, args=(r, size, folder, options, results)) for r in range(size)]
        for process in ranks:
            process.start()
        found = list(iter(results.get, None))
        for process in ranks:
            process.join()
        while options.timeline and len(found) < size:
            found.append(results.get(timeout=10))
    return found


def shown(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} µs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
    parser.add_argument("--scaling", default="", help="numbers of ranks: Flambeau alone")
    parser.add_argument("--timeline", default="", help="write a trace of two training steps there")
    options = parser.parse_args()
    if options.timeline:
        events = [{**event, "pid": f"rank {rank}"} for rank, events in run(options.ranks, options) for event in events]
        Path(options.timeline).write_text(json.dumps(events))
        return
    if options.scaling:
        print("| ranks | " + " | ".join(SIZES) + " |\n| --: |" + " --: |" * len(SIZES))
        for size in map(int, options.scaling.split(",")):
            print(f"| {size} | " + " | ".join(shown(times[0]) for _, times in run(size, options)) + " |", flush=True)
        return
    print(f"| {options.ranks} ranks | PyTorch gloo | Flambeau | ratio |\n| --- | --: | --: | --: |")
    for title, (theirs, ours) in run(options.ranks, options):
        print(f"| {title} | {shown(theirs)} | {shown(ours)} | {theirs / ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
