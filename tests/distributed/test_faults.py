"""Ranks that die, hang or raise: the others are told, and by name."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from datetime import timedelta

import pytest

import flambeau as torch
import flambeau.distributed as dist


def _victim(rank, size, path, pipe, seconds, how):
    dist.init_process_group(
        "gloo", init_method=f"file://{path}", rank=rank, world_size=size, timeout=timedelta(seconds=seconds)
    )
    x = torch.ones(3)
    dist.all_reduce(x)
    if rank == 1:
        if how == "raise":
            raise SystemExit(3)
        if how == "never":
            time.sleep(seconds + 20)
        os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)
    begin = time.monotonic()
    try:
        for _ in range(3):
            if how == "message":
                dist.recv(x, 1)
            dist.all_reduce(torch.ones(100_000))
    except dist.DistBackendError as problem:
        pipe.send((str(problem), time.monotonic() - begin))
        with pytest.raises(dist.DistBackendError, match="failed before"):
            dist.barrier()


def _error(how, seconds, tmp_path):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    path = str(tmp_path / "store")
    ranks = [context.Process(target=_victim, args=(r, 2, path, theirs, seconds, how), daemon=True) for r in range(2)]
    for process in ranks:
        process.start()
    try:
        assert ours.poll(60)
        return ours.recv()
    finally:
        for process in ranks:
            process.kill()
            process.join()


@pytest.mark.parametrize("how", ["kill", "raise"])
def test_a_rank_that_ends_is_named_at_once(how, tmp_path):
    message, seconds = _error(how, 60, tmp_path)
    assert "rank 1 (process" in message and "has ended" in message
    assert seconds < 20


@pytest.mark.parametrize("how", ["stop", "never"])
def test_a_rank_that_hangs_is_named_after_the_timeout(how, tmp_path):
    message, seconds = _error(how, 2, tmp_path)
    assert "rank 1 did not come. Timed out waiting 2000ms" in message
    assert 1.9 < seconds < 15


def test_no_shared_memory_is_left():
    """What there is has no name: it cannot outlive the processes."""
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("flambeau")]
