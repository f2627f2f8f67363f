"""Calls between workers, references, gradients across them, and who is not listened to."""

from __future__ import annotations

import functools
import os
import pickle
import socket
import tempfile
import threading
from pathlib import Path

import pytest

import flambeau
import flambeau.distributed as dist
import flambeau.distributed.autograd as dist_autograd
from flambeau.distributed import rpc, secret
from flambeau.distributed.nn import RemoteModule
from flambeau.distributed.optim import DistributedOptimizer
from flambeau.distributed.rpc import wire

from . import worlds


def between_workers(check):
    """The check runs on rank 0 of two workers, while the other waits."""

    @functools.wraps(check)
    def run(rank, size):
        place = [tempfile.mktemp()]
        dist.broadcast_object_list(place, src=0)
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{place[0]}", rpc_timeout=30)
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size, rpc_backend_options=options)
        try:
            if rank == 0:
                check()
        finally:
            rpc.shutdown()

    return run


class Counter:
    def __init__(self, value):
        self.value = value

    def add(self, amount):
        self.value += amount
        return self.value


def product(a, b):
    return a * b


def fail():
    raise ValueError("expected")


def value_of(reference):
    return reference.to_here()


def owner_count():
    return int(rpc.api._rref_context_get_debug_info()["num_owner_rrefs"])


@rpc.functions.async_execution
def ask_back(x):
    return rpc.rpc_async("worker0", flambeau.add, args=(x, 1))


def wait_for(event_number):
    threading.Event().wait(5)


@between_workers
def functions_run_on_the_other_worker():
    assert rpc.rpc_sync("worker1", flambeau.add, args=(flambeau.ones(2), 3)).tolist() == [4.0, 4.0]
    assert rpc.rpc_async(1, product, args=(3, 4)).wait() == 12
    weight = flambeau.ones(2, requires_grad=True)
    for sent in (weight, weight * 2):  # outside of a context they arrive as leaves
        assert rpc.rpc_sync("worker1", getattr, args=(sent, "requires_grad"))
        answer = rpc.rpc_sync("worker1", product, args=(sent, 1))
        assert answer.requires_grad and answer.is_leaf
    assert rpc.rpc_sync("worker0", product, args=(3, 4)) == 12
    assert rpc.rpc_sync("worker1", ask_back, args=(flambeau.ones(1),)).item() == 2
    assert rpc.rpc_sync("worker1", rpc.get_worker_info).name == "worker1"
    sliced = flambeau.arange(20.0).reshape(4, 5)[:, 1:3]
    assert rpc.rpc_sync("worker1", product, args=(sliced, 2)).equal(sliced * 2)


@between_workers
def errors_come_back_with_their_type():
    with pytest.raises(ValueError, match="expected"):
        rpc.rpc_sync("worker1", fail)
    with pytest.raises(RuntimeError, match="RPC ran for more than set timeout"):
        rpc.rpc_sync("worker1", wait_for, args=(0,), timeout=0.1)
    with pytest.raises(RuntimeError, match="could not find destination"):
        rpc.get_worker_info("nobody")


@between_workers
def references_keep_values_alive():
    reference = rpc.remote("worker1", Counter, args=(5,))
    assert not reference.is_owner() and reference.owner().name == "worker1"
    assert reference.rpc_sync().add(3) == 8
    assert reference.rpc_async().add(1).wait() == 9
    assert reference.remote().add(1).to_here() == 10
    with pytest.raises(RuntimeError, match="can only be pickled when using RPC"):
        pickle.dumps(reference)
    own = rpc.RRef(flambeau.ones(2))
    assert own.is_owner() and rpc.rpc_sync("worker1", value_of, args=(own,)).sum() == 2
    assert rpc.rpc_sync("worker1", owner_count) >= 1
    del reference
    for _ in range(500):
        if rpc.rpc_sync("worker1", owner_count) == 0:
            return
    raise AssertionError("the value outlives its references")


@between_workers
def gradients_cross_workers():
    a, b = flambeau.rand(3, requires_grad=True), flambeau.rand(3, requires_grad=True)
    with dist_autograd.context() as context:
        c = rpc.rpc_sync("worker1", product, args=(a, b))
        dist_autograd.backward(context, [rpc.rpc_sync("worker1", product, args=(c, b)).sum()])
        grads = dist_autograd.get_gradients(context)
    assert flambeau.allclose(grads[a], b * b) and flambeau.allclose(grads[b], 2 * a * b)
    assert a.grad is None


@between_workers
def remote_modules_are_trained():
    module = RemoteModule("worker1/cpu", flambeau.nn.Linear, args=(4, 1))
    optimizer = DistributedOptimizer(flambeau.optim.SGD, module.remote_parameters(), lr=0.01)
    x, losses = flambeau.ones(2, 4), []
    for _ in range(3):
        with dist_autograd.context() as context:
            loss = (module(x) - 1).pow(2).sum()
            dist_autograd.backward(context, [loss])
            optimizer.step(context)
            losses.append(loss.item())
    assert losses[2] < losses[0]


CHECKS = [
    functions_run_on_the_other_worker,
    errors_come_back_with_their_type,
    references_keep_values_alive,
    gradients_cross_workers,
    remote_modules_are_trained,
]


test_between_two_workers = worlds.test_of(CHECKS, 2)


# -- strangers ------------------------------------------------------------------------------------------------------------------


class _Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture
def listening(monkeypatch):
    """A worker's ear, and what it has heard from others."""
    monkeypatch.setenv(secret.VARIABLE, "the job's")
    heard = []

    def serve(connection):
        while True:
            heard.append(wire.unpacked(connection.receive()[2]))

    listener = wire.Listener(b"s" * 16, serve)
    yield listener, heard
    listener.close()


def _closed(channel: socket.socket) -> bool:
    """Whether the other side ends the connection; waits for it."""
    channel.settimeout(20)
    try:
        while channel.recv(4096):
            pass
    except ConnectionError:
        pass
    return True


def test_who_knows_the_secret_is_heard(listening):
    listener, heard = listening
    connection = wire.connect(("127.0.0.1", listener.port), b"s" * 16, 10)
    connection.send(1, 0, wire.packed("hello"))
    while not heard:
        threading.Event().wait(0.01)
    connection.close()
    assert heard == ["hello"]


def test_nothing_of_a_stranger_is_unpickled(listening, tmp_path):
    listener, heard = listening
    bomb = wire.packed(_Bomb(str(tmp_path / "exploded")))
    frame = wire._FRAME.pack(1, 0, len(bomb)) + bomb
    with socket.create_connection(("127.0.0.1", listener.port)) as stranger:
        stranger.sendall(b"x" * 48 + b"s" * 16 + frame)  # no proof at all
        assert _closed(stranger)
    assert not heard and not Path(tmp_path, "exploded").exists()


def test_another_secret_or_another_world_is_refused(listening, tmp_path, monkeypatch):
    listener, heard = listening
    bomb = wire.packed(_Bomb(str(tmp_path / "exploded")))
    neighbour = wire.connect(("127.0.0.1", listener.port), b"t" * 16, 10)  # the same secret, but another world
    try:
        neighbour.send(1, 0, bomb)
    except OSError:
        pass  # it was refused before
    assert _closed(neighbour.channel)
    monkeypatch.setenv(secret.VARIABLE, "another's")
    with pytest.raises(dist.DistNetworkError, match="another secret"):
        wire.connect(("127.0.0.1", listener.port), b"s" * 16, 10)
    assert not heard and not Path(tmp_path, "exploded").exists()


def test_workers_that_join_as_they_like_have_a_number():
    for method in ("tcp://127.0.0.1:1", "file:///tmp/nowhere"):
        options = rpc.TensorPipeRpcBackendOptions(init_method=method)
        with pytest.raises(ValueError, match="rank parameter missing"):
            rpc.init_rpc("nobody", rpc_backend_options=options)
