"""Everything a group can do, on shared memory and on MPI."""

from __future__ import annotations

import importlib.util
import multiprocessing
import time
from datetime import timedelta

import pytest

import flambeau as torch
import flambeau.distributed as dist

from . import worlds

SIZES = [0, 1, 7, 5000, 700_001]


def all_reduce_of_every_dtype(rank, size):
    total = size * (size + 1) // 2
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8,
                  torch.int8, torch.complex64):  # fmt: skip
        for count in SIZES if dtype in (torch.float32, torch.bfloat16) else [5]:
            x = torch.full((count,), rank + 1, dtype=dtype)
            dist.all_reduce(x)
            assert (x == total).all(), (dtype, count)
    flags = torch.tensor([True, rank == 0, False])
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    assert flags.tolist() == [True, True, False]


def operations(rank, size):
    expected = {"MIN": 1, "MAX": size, "PRODUCT": 6 if size == 3 else 2, "AVG": (size + 1) / 2}
    for name, value in expected.items():
        x = torch.tensor([float(rank + 1)] * 3)
        dist.all_reduce(x, getattr(dist.ReduceOp, name))
        assert x.tolist() == [value] * 3, name
    bits = torch.tensor([1 << rank])
    dist.all_reduce(bits, dist.ReduceOp.BOR)
    assert bits.item() == (1 << size) - 1
    x = torch.ones(2)
    dist.all_reduce(x, dist._make_nccl_premul_sum(2.0))
    assert x.tolist() == [2.0 * size] * 2
    try:
        dist.all_reduce(torch.ones(2, dtype=torch.complex64), dist.ReduceOp.MAX)
    except ValueError as problem:
        assert "does not support" in str(problem)
    else:
        raise AssertionError


def broadcast_gather_scatter(rank, size):
    for count in SIZES:
        x = torch.arange(count) * (1 if rank == 1 else 0)
        dist.broadcast(x, 1)
        assert (x == torch.arange(count)).all()
        parts = [torch.empty(count) for _ in range(size)]
        dist.all_gather(parts, torch.full((count,), float(rank)))
        assert all((part == r).all() for r, part in enumerate(parts))
        mine = [torch.empty(count) for _ in range(size)] if rank == 0 else None
        dist.gather(torch.full((count,), float(rank)), mine, 0)
        assert mine is None or all((part == r).all() for r, part in enumerate(mine))
        out = torch.empty(count)
        dist.scatter(out, [torch.full((count,), 10.0 * r) for r in range(size)] if rank == 1 else None, 1)
        assert (out == 10.0 * rank).all()
        summed = torch.full((count,), rank + 1.0)
        dist.reduce(summed, 0)
        assert rank != 0 or (summed == size * (size + 1) / 2).all()


def scattered_sums(rank, size):
    for count in (1, 1000, 300_000):
        out = torch.empty(count)
        dist.reduce_scatter(out, [torch.full((count,), float(r + rank)) for r in range(size)])
        assert (out == size * rank + size * (size - 1) / 2).all()
    out = torch.empty(2)
    dist.reduce_scatter_tensor(out, torch.arange(2.0 * size))
    assert out.tolist() == [size * 2.0 * rank, size * (2.0 * rank + 1)]
    whole = torch.empty(2 * size)
    dist.all_gather_into_tensor(whole, torch.tensor([rank, rank]).float())
    assert whole.tolist() == [float(r) for r in range(size) for _ in range(2)]


def wrong_lists_are_refused(rank, size):
    x, wrong = torch.ones(2), [torch.zeros(3) for _ in range(size)]
    for function, pattern in (
        (lambda: dist.all_gather(wrong, x), r"allgather: invalid tensor size at index 0 \(expected \(2\), got \(3\)\)"),
        (lambda: dist.reduce_scatter(x, wrong), "reduce_scatter: invalid tensor size"),
        (lambda: dist.reduce_scatter(x, [torch.ones(2)]), f"input list size 1. Input list size should be {size}"),
        (lambda: dist.broadcast(x, 7), "broadcast: invalid root rank: 7"),
        (lambda: dist.new_group([0, 7]), "Rank 7 is out of range"),
    ):
        with pytest.raises((RuntimeError, ValueError), match=pattern):
            function()
    if rank == 0:
        for function in (dist.gather, dist.scatter):
            for given, pattern in ((wrong, "invalid tensor size at index 0"), (wrong[1:], "list size should be")):
                with pytest.raises(RuntimeError, match=pattern):
                    function(x, given)
    dist.all_reduce(x)  # nothing was sent, so the group goes on
    assert x.tolist() == [size, size]


def uneven_exchange(rank, size):
    sends, receives = [rank + r for r in range(size)], [r + rank for r in range(size)]
    out = torch.empty(sum(receives), 2)
    source = torch.cat([torch.full((n, 2), 10.0 * rank + r) for r, n in enumerate(sends)])
    dist.all_to_all_single(out, source, receives, sends)
    assert (out == torch.cat([torch.full((n, 2), 10.0 * r + rank) for r, n in enumerate(receives)])).all()
    outs = [torch.empty(r + 1) for r in range(size)]
    dist.all_gather(outs, torch.full((rank + 1,), float(rank)))
    assert [o.tolist() for o in outs] == [[float(r)] * (r + 1) for r in range(size)]


def asynchronous(rank, size):
    works = [dist.all_reduce(torch.full((1000,), float(i)), async_op=True) for i in range(10)]
    x = torch.ones(3)
    dist.all_reduce(x)  # waits for its turn
    assert x.tolist() == [size] * 3
    for i, work in enumerate(works):
        assert work.wait() and work.is_completed() and work.is_success()
        assert work.result()[0][0] == i * size
    future = dist.broadcast(torch.tensor([rank]), 0, async_op=True).get_future().then(lambda f: f.value()[0].item())
    assert future.wait() == 0


def messages(rank, size):
    big = torch.arange(200_000.0)
    if rank == 0:
        for peer in range(1, size):
            work = dist.isend(big * peer, peer, tag=5)
            dist.send(torch.tensor([peer]), peer)
            work.wait()
    else:
        small, large = torch.zeros(1, dtype=torch.int64), torch.empty(200_000)
        assert dist.recv(small, 0) == 0  # the later one first: tags keep them apart
        dist.recv(large, 0, tag=5)
        assert small.item() == rank and (large == big * rank).all()
    if rank == 0:
        seen = {dist.recv(torch.zeros(2), tag=9) for _ in range(1, size)}
        assert seen == set(range(1, size))
    else:
        dist.send(torch.ones(2), 0, tag=9)
    after, before = (rank + 1) % size, (rank - 1) % size
    got = torch.zeros(1)
    ops = [dist.P2POp(dist.isend, torch.tensor([float(rank)]), after), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert got.item() == before


def objects(rank, size):
    everybody = [None] * size
    dist.all_gather_object(everybody, {"rank": rank, "text": "x" * rank * 3000})
    assert [one["rank"] for one in everybody] == list(range(size))
    told = [rank, {"a": rank}]
    dist.broadcast_object_list(told, 1)
    assert told == [1, {"a": 1}]
    mine = [None]
    dist.scatter_object_list(mine, [f"for {r}" for r in range(size)] if rank == 0 else None, 0)
    assert mine == [f"for {rank}"]
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(rank * 2, gathered, 0)
    assert rank != 0 or gathered == [2 * r for r in range(size)]


def groups(rank, size):
    pair = dist.new_group([0, 1])
    if rank < 2:
        x = torch.ones(1)
        dist.all_reduce(x, group=pair)
        assert x.item() == 2 and dist.get_rank(pair) == rank
        assert dist.get_process_group_ranks(pair) == [0, 1]
    else:
        assert pair == dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(pair) == -1
    mine, everyone = dist.new_subgroups(1)
    assert dist.get_world_size(mine) == 1 and len(everyone) == size
    mesh = dist.init_device_mesh("cpu", (1, size), mesh_dim_names=("a", "b"))
    assert mesh["b"].get_group().size() == size and mesh["a"].get_group().size() == 1
    assert mesh.get_coordinate() == [0, rank]


def non_contiguous(rank, size):
    with pytest.raises(ValueError, match="contiguous"):
        dist.all_reduce(torch.ones(4, 4)[:, ::2])
    x = torch.ones(3, 4).t()
    dist.all_reduce(x)
    assert (x == size).all()
    outs = [torch.zeros(4, 3).t() for _ in range(size)]
    dist.all_gather(outs, torch.full((3, 4), float(rank)))
    assert all((o == r).all() for r, o in enumerate(outs))


def gradients_flow(rank, size):
    from flambeau.distributed.nn import functional as F

    x = torch.tensor([float(rank)], requires_grad=True)
    (F.all_reduce(x) ** 2).sum().backward()
    assert x.grad.item() == size * 2 * size * (size - 1) / 2
    y = torch.ones(2, requires_grad=True)
    parts = F.all_gather(y)
    (parts[rank] * 3).sum().backward()
    assert y.grad.tolist() == [3.0, 3.0]


def coalesced(rank, size):
    tensors = [torch.ones(2, 3), torch.full((5,), 2.0)]
    dist.all_reduce_coalesced(tensors)
    assert (tensors[0] == size).all() and (tensors[1] == 2 * size).all()
    x, y = torch.ones(2), torch.ones(3)
    with dist._coalescing_manager():
        dist.all_reduce(x)
        dist.all_reduce(y)
    assert x[0] == size and y[0] == size


def sparse(rank, size):
    index = torch.tensor([[0, rank]])
    x = torch.sparse_coo_tensor(index, torch.tensor([1.0, 1.0]), (size,))
    dist.all_reduce(x)
    expected = torch.ones(size)
    expected[0] += size
    assert x.to_dense().tolist() == expected.tolist()


def monitored(rank, size):
    dist.monitored_barrier(timeout=timedelta(seconds=30))
    group = dist.new_group(list(range(size)))
    if rank == 0:
        with pytest.raises(RuntimeError, match=r"Rank 1 failed to pass monitoredBarrier in 300 ms"):
            group.monitored_barrier(timedelta(milliseconds=300))


def waiting_takes_no_core(rank, size):
    dist.barrier()
    if rank == 0:
        time.sleep(1.0)
        dist.barrier()
    else:
        before = time.process_time()
        dist.barrier()
        assert time.process_time() - before < 0.3


def mismatches_are_found(rank, size):
    group = dist.new_group(list(range(size)))
    with pytest.raises(dist.DistBackendError, match="Detected mismatch between collectives|gave up|failed before"):
        if rank == 0:
            dist.all_reduce(torch.ones(3), group=group)
        else:
            dist.all_reduce(torch.ones(4), group=group)
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.new_group(list(range(size)))
    with pytest.raises(dist.DistBackendError, match=r"torch.float32 \(2, 3\)|gave up|failed before"):
        dist.all_reduce(torch.ones(2, 3) if rank == 0 else torch.ones(3, 2), group=group)
    dist.set_debug_level(dist.DebugLevel.OFF)


CHECKS = [
    all_reduce_of_every_dtype, operations, broadcast_gather_scatter, scattered_sums, wrong_lists_are_refused, uneven_exchange, asynchronous, messages, objects,
    groups, non_contiguous, gradients_flow, coalesced, sparse, monitored, waiting_takes_no_core,
]  # fmt: skip
_outcomes: dict[str, dict[str, str]] = {}


def outcome(backend: str) -> dict[str, str]:
    if backend not in _outcomes:
        checks = [*CHECKS, mismatches_are_found] if backend == "gloo" else CHECKS
        _outcomes[backend] = worlds.run(checks, 3, backend)
    return _outcomes[backend]


@pytest.mark.parametrize("check", [*CHECKS, mismatches_are_found], ids=lambda check: check.__name__)
def test_shared_memory(check):
    assert outcome("gloo")[check.__name__] == ""


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_mpi(check):
    assert outcome("mpi")[check.__name__] == ""


def test_one_process(tmp_path):
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_alone, args=(str(tmp_path / "f"),))
    process.start()
    process.join(60)
    assert process.exitcode == 0


def _alone(path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=0, world_size=1)
    x = torch.ones(3)
    dist.all_reduce(x)
    parts = [torch.zeros(3)]
    dist.all_gather(parts, x * 2)
    out = torch.zeros(3)
    dist.all_to_all_single(out, x * 3)
    assert x.tolist() == [1] * 3 and parts[0].tolist() == [2] * 3 and out.tolist() == [3] * 3
    assert dist.get_backend() == "gloo" and dist.is_initialized()
    dist.destroy_process_group()
    assert not dist.is_initialized()


def test_group_without_a_default_group():
    group = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, timedelta(seconds=30))
    x = torch.tensor([1.0, 2.0])
    assert group.allreduce([x]).wait() and x.tolist() == [1.0, 2.0]
    assert (group.rank(), group.size()) == (0, 1) and not dist.is_initialized()


def test_one_rank_cannot_receive_from_itself_or_shrink():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        for receive in (dist.recv, dist.irecv):
            with pytest.raises(ValueError, match="source rank should not be the same"):
                receive(torch.zeros(2), src=0)
        with pytest.raises(ValueError, match="source rank should not be the same"):
            dist.recv_object_list([None], src=0)
        with pytest.raises(ValueError, match="at least 2 ranks"):
            dist.shrink_group([0])
    finally:
        dist.destroy_process_group()


def test_debug_levels_are_numbers():
    assert [int(level) for level in dist.DebugLevel] == [0, 1, 2]


def test_errors_without_a_group():
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        dist.get_rank()
    if not dist.is_nccl_available():
        with pytest.raises(RuntimeError, match="NCCL"):
            dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    assert not dist.is_initialized()
    with pytest.raises(ValueError, match="environment variable RANK expected"):
        dist.init_process_group("gloo")
    with pytest.raises(RuntimeError, match="No rendezvous handler for bad://"):
        dist.init_process_group("gloo", init_method="bad://", rank=0, world_size=1)
