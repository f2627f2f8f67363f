"""Several processes that run a list of checks together, once for all tests of a file: starting them is what takes time."""

from __future__ import annotations

import functools
import multiprocessing
import queue
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta

import pytest

import flambeau.distributed as dist


def _rank(
    rank: int, size: int, path: str, backend: str, checks: list[Callable], results: multiprocessing.Queue
) -> None:
    import flambeau

    flambeau.set_num_threads(1)
    dist.init_process_group(
        backend, init_method=f"file://{path}", rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    for check in checks:
        problem = None
        try:
            check(rank, size)
        except BaseException:
            problem = traceback.format_exc()
        results.put((check.__name__, rank, problem))
        dist.get_rank()
        dist.barrier()
    dist.destroy_process_group()


def run(checks: list[Callable], size: int, backend: str = "gloo", limit: float = 120) -> dict[str, str]:
    """What went wrong in each check, "" if nothing did."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    path = tempfile.mktemp()
    ranks = [
        context.Process(target=_rank, args=(rank, size, path, backend, checks, results), daemon=True)
        for rank in range(size)
    ]
    for rank in ranks:
        rank.start()
    outcome: dict[str, str] = {check.__name__: "" for check in checks}
    missing = {(check.__name__, rank) for check in checks for rank in range(size)}
    try:
        while missing:
            name, rank, problem = results.get(timeout=limit)
            missing.discard((name, rank))
            if problem:
                outcome[name] += f"rank {rank}: {problem}\n"
                if all((name, r) not in missing for r in range(size)):
                    continue
    except queue.Empty:
        for name, rank in sorted(missing):
            outcome[name] += f"rank {rank} did not get there\n"
    for process in ranks:
        process.join(20)
        if process.is_alive():
            process.kill()
    return outcome


def test_of(checks: list[Callable], size: int) -> Callable[[Callable], None]:
    """The test of a list of checks, one case for each. The first case to run starts the processes, which run all of them."""
    outcome = functools.cache(lambda: run(checks, size))

    @pytest.mark.parametrize("check", checks, ids=lambda check: check.__name__)
    def test(check: Callable) -> None:
        assert not outcome()[check.__name__], outcome()[check.__name__]

    return test
