"""Steps of a pipeline on four ranks of the CPU, schedule by schedule, beside PyTorch's with gloo; and whether they train as one process does.

    python benchmarks/pipelines.py                      # needs torch beside flambeau; without it, Flambeau alone
    python benchmarks/pipelines.py --check --steps 50   # losses of all schedules and of a split graph beside one process

A rank has two layers, in one stage or in two; each rank has one thread. The ratio is PyTorch's time over Flambeau's.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import multiprocessing
import statistics
import tempfile
import time
from typing import Any

RANKS, LAYERS, MICROBATCHES = 4, 8, 8
WHERE = {  # stages of a rank
    "ScheduleGPipe": "one", "Schedule1F1B": "one", "ScheduleInterleaved1F1B": "loop", "ScheduleLoopedBFS": "loop",
    "ScheduleInterleavedZeroBubble": "loop", "ScheduleZBVZeroBubble": "v", "ScheduleDualPipeV": "v",
}  # fmt: skip


def whole_model(lib: Any, width: int) -> Any:
    lib.manual_seed(0)
    nn = lib.nn
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(LAYERS))
    )


def batch(lib: Any, width: int, rows: int, step: int = 0) -> tuple[Any, Any]:
    generator = lib.Generator().manual_seed(1 + step)
    return lib.randn(rows, width, generator=generator), lib.randn(rows, width, generator=generator)


def pipeline_of(lib: Any, rank: int, name: str, width: int, rows: int) -> tuple[Any, list, bool, bool]:
    """(schedule, modules of this rank, whether it has the first stage, whether the last)."""
    pipelining = importlib.import_module(f"{lib.__name__}.distributed.pipelining")
    model, loss = whole_model(lib, width), lib.nn.functional.mse_loss
    if name == "split graph":
        points = {str(2 * i): pipelining.SplitPoint.BEGINNING for i in range(1, RANKS)}
        pipe = pipelining.pipeline(model, (batch(lib, width, rows // MICROBATCHES)[0],), split_spec=points)
        stage = pipe.build_stage(rank, lib.device("cpu"))
        return pipelining.Schedule1F1B(stage, MICROBATCHES, loss_fn=loss), [stage.submod], rank == 0, rank == RANKS - 1
    kind = WHERE[name]
    numbers = {"one": [rank], "loop": [rank, rank + RANKS], "v": [rank, 2 * RANKS - 1 - rank]}[kind]
    count = RANKS * len(numbers)
    size = LAYERS // count
    modules = [model[n * size : (n + 1) * size] for n in numbers]
    stages = [pipelining.PipelineStage(m, n, count, lib.device("cpu")) for m, n in zip(modules, numbers, strict=True)]
    schedule = getattr(pipelining, name)(stages if kind != "one" else stages[0], MICROBATCHES, loss_fn=loss)
    return schedule, modules, 0 in numbers, count - 1 in numbers


def one_step(lib: Any, made: tuple[Any, list, bool, bool], optimizer: Any, data: tuple[Any, Any]) -> list:
    schedule, _, first, last = made
    losses: list = []
    optimizer.zero_grad()
    schedule.step(*((data[0],) if first else ()), **({"target": data[1], "losses": losses} if last else {}))
    optimizer.step()
    return losses


def trained(lib: Any, rank: int, name: str, width: int, rows: int, steps: int) -> list[float]:
    made = pipeline_of(lib, rank, name, width, rows)
    optimizer = lib.optim.AdamW([p for m in made[1] for p in m.parameters()], lr=1e-3)
    found = []
    for step in range(steps):
        losses = one_step(lib, made, optimizer, batch(lib, width, rows, step))
        found.append(sum(one.item() for one in losses) / max(1, len(losses)))
    return found if made[3] else []


def expected(lib: Any, width: int, rows: int, steps: int) -> list[float]:
    model = whole_model(lib, width)
    optimizer, found = lib.optim.AdamW(model.parameters(), lr=1e-3), []
    for step in range(steps):
        x, target = batch(lib, width, rows, step)
        optimizer.zero_grad()
        loss = lib.nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def timed(lib: Any, rank: int, name: str, width: int, rows: int, steps: int) -> list[float]:
    made = pipeline_of(lib, rank, name, width, rows)
    optimizer = lib.optim.SGD([p for m in made[1] for p in m.parameters()], lr=1e-3)
    data, found = batch(lib, width, rows), []
    for _ in range(steps + 2):
        lib.distributed.barrier()
        start = time.perf_counter()
        one_step(lib, made, optimizer, data)
        lib.distributed.barrier()
        found.append(time.perf_counter() - start)
    return found[2:]


def one_rank(rank: int, places: dict[str, str], options: argparse.Namespace, results: Any) -> None:
    libraries = {name: importlib.import_module(name) for name in places}
    for name, lib in libraries.items():
        lib.set_num_threads(1)
        lib.distributed.init_process_group("gloo", init_method=f"file://{places[name]}", rank=rank, world_size=RANKS)
    for name in [*WHERE, *(["split graph"] if options.check else [])]:
        for library, lib in libraries.items():
            if options.check and library != "flambeau":
                continue
            function = trained if options.check else timed
            found = function(lib, rank, name, options.width, options.rows, options.steps)
            if found and (options.check or rank == 0):
                results.put((name, library, found))
    results.put(None)
    for lib in libraries.values():
        lib.distributed.barrier()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--rows", type=int, default=512, help="of a batch")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--alone", action="store_true", help="without PyTorch")
    parser.add_argument("--check", action="store_true", help="compare losses with those of one process")
    options = parser.parse_args()
    libraries = [
        "flambeau",
        *(["torch"] if importlib.util.find_spec("torch") and not (options.check or options.alone) else []),
    ]
    context = multiprocessing.get_context("spawn")
    results, found, running = context.Queue(), {}, RANKS
    with tempfile.TemporaryDirectory() as folder:
        places = {name: f"{folder}/{name}" for name in libraries}
        ranks = [context.Process(target=one_rank, args=(r, places, options, results)) for r in range(RANKS)]
        for rank in ranks:
            rank.start()
        while running:
            entry = results.get(timeout=600)
            running -= entry is None
            if entry is not None:
                found[entry[:2]] = entry[2]
        for rank in ranks:
            rank.join()
    if options.check:
        import flambeau  # noqa: PLC0415 - before the processes are there it would only take time

        wanted = expected(flambeau, options.width, options.rows, options.steps)
        for (name, _), losses in found.items():
            print(
                f"{name:32s} {max(abs(a - b) for a, b in zip(losses, wanted, strict=True)):.1e} at most over {len(losses)} steps"
            )
        return
    for name in WHERE:
        times = {lib: statistics.median(found[name, lib]) for lib in libraries}
        line = "  ".join(f"{lib} {1000 * seconds:7.1f} ms" for lib, seconds in times.items())
        ratio = f"  ratio {times['torch'] / times['flambeau']:.2f}" if "torch" in times else ""
        print(f"{name:32s} {line}{ratio}", flush=True)


if __name__ == "__main__":
    main()
