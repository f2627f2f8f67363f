"""multiprocessing.spawn: the same function in several processes."""

from __future__ import annotations

import os
import pickle
import signal

import pytest

import flambeau
import flambeau.multiprocessing as mp


def add(rank, tensor, amount):
    tensor[rank] += amount


def fail(rank, how):
    if rank == 1:
        if how == "raise":
            raise ValueError("rank one")
        if how == "exit":
            os._exit(7)
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()  # until it is told to end


def test_spawned_processes_change_a_shared_tensor():
    tensor = flambeau.zeros(2).share_memory_()
    mp.spawn(add, args=(tensor, 3), nprocs=2)
    mp.start_processes(add, args=(tensor, 1), nprocs=2, start_method="fork")
    assert tensor.tolist() == [4.0, 4.0]


def test_processes_are_joined_later():
    tensor = flambeau.zeros(2).share_memory_()
    context = mp.start_processes(add, args=(tensor, 1), nprocs=2, join=False, start_method="fork")
    assert len(context.pids()) == 2
    while not context.join():
        pass
    assert tensor.tolist() == [1.0, 1.0] and context.join()
    assert not any(os.path.exists(name) for name in context.error_files)


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("raise", mp.ProcessRaisedException, "-- Process 1 terminated with the following error:\nTraceback"),
        ("exit", mp.ProcessExitedException, "process 1 terminated with exit code 7"),
        ("kill", mp.ProcessExitedException, "process 1 terminated with signal SIGKILL"),
    ],
)
def test_a_failure_ends_the_others_and_is_reported(how, kind, message):
    context = mp.start_processes(fail, args=(how,), nprocs=3, join=False, start_method="fork")
    with pytest.raises(kind) as caught:
        while not context.join():
            pass
    assert message in str(caught.value) and caught.value.error_index == 1
    assert caught.value.pid == context.pids()[1]
    assert not any(process.is_alive() for process in context.processes)
    assert not any(os.path.exists(name) for name in context.error_files)
    if how == "raise":
        assert str(caught.value).endswith("ValueError: rank one\n")
    again = pickle.loads(pickle.dumps(caught.value))
    assert vars(again) == vars(caught.value)


def test_another_start_method_is_not_spawns_business():
    with pytest.warns(FutureWarning, match="only supports start_method=spawn"):
        mp.spawn(add, args=(flambeau.zeros(1), 1), nprocs=0, start_method="fork")
