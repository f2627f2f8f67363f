"""Collectives of the ranks of a group: reduce, gather, scatter, broadcast, exchange, and messages between two.

Every function takes `group` (all ranks by default) and, with `async_op=True`, returns a `Work` to wait for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from ..core.modes import named_range
from ..core.tensor import Tensor
from ..ops import namespace
from . import groups, records
from .groups import _group_or_default, _rank_not_in_group, _warn_not_in_group, get_group_rank
from .options import AllreduceOptions, BarrierOptions
from .process_group import ProcessGroup
from .reduce_op import RedOpType, ReduceOp, kind_of
from .work import Work

__all__ = [
    "P2POp", "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single", "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "gather", "irecv",
    "isend", "monitored_barrier", "record_comm", "recv", "reduce", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_tensor", "scatter", "send", "supports_complex",
]  # fmt: skip

# -- arguments --------------------------------------------------------------------------------------------------------------


def _check_tensor(value: Any, name: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n             but got {type(value)}"
            " instead."
        )
    return value


def _check_tensors(value: Any, name: str) -> list[Tensor]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, Tensor) for v in value):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n             but got"
            f" {type(value)} with elements of type {[type(v) for v in value] if isinstance(value, (list, tuple)) else None}."
        )
    return list(value)


def _check_same_dtype(*tensors: Any) -> None:
    kinds = {t.dtype for group in tensors for t in (group if isinstance(group, (list, tuple)) else [group])}
    if len(kinds) > 1:
        one, other = sorted(kinds, key=str)[:2]
        raise ValueError(f"Invalid usage of tensors with different dtypesFound {one} and  {other}")


def _root(pg: ProcessGroup, world_rank: int | None, group_rank: int | None, name: str, required: bool = True) -> int:
    """Return the rank within the group of a root that is given as a global rank or as a rank of the group."""
    if world_rank is not None and group_rank is not None:
        raise ValueError(f"Can't specify both {name} and group_{name}")
    if group_rank is not None:
        return group_rank
    if world_rank is None:
        if required:
            raise ValueError(f"Must specify {name} or group_{name}")
        return 0
    return get_group_rank(pg, world_rank)


def supports_complex(reduceOp: Any) -> bool:
    """Return whether the reduction supports complex numbers."""
    return kind_of(reduceOp) in (RedOpType.SUM, RedOpType.AVG, RedOpType.PREMUL_SUM, RedOpType.UNUSED)


def _check_complex(tensors: Sequence[Tensor], op: Any) -> None:
    if any(t.dtype.is_complex for t in tensors) and not supports_complex(op):
        raise ValueError(f"all_reduce does not support {op!s} on complex tensors")


_view_as_real = namespace("torch")["view_as_real"]


def _group_if_member(group: Any, name: str) -> ProcessGroup | None:
    """Return the group of a collective; None, after a warning, if this rank is not in it."""
    if _rank_not_in_group(group):
        _warn_not_in_group(name)
        return None
    return _group_or_default(group)


class _CoalescingManager:
    """Waits for the operations of a `_coalescing_manager` block."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def append(self, work: Work | None = None) -> None:
        if work is not None:
            self.works.append(work)

    def wait(self) -> None:
        for work in self.works:
            work.wait()


_coalescing: dict[int, _CoalescingManager] = {}


@contextlib.contextmanager
def _coalescing_manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[_CoalescingManager]:
    """Context manager: start the collectives inside without waiting; its end waits for all of them, unless `async_ops`."""
    pg = _group_or_default(group)
    manager = _coalescing[id(pg)] = _CoalescingManager()
    try:
        yield manager
    finally:
        del _coalescing[id(pg)]
    if not async_ops:
        manager.wait()


def _run_or_start(record: Any, *args: Any, async_op: bool) -> Work | None:
    """Run a collective whose last argument is the group: wait for it, return its Work, or leave it to the coalescing manager."""
    manager = _coalescing.get(id(args[-1])) if _coalescing else None
    if manager is None and not async_op:
        record(*args)
        return None
    work = records.started(record, *args)
    if manager is not None:
        manager.append(work)
    return work if async_op else None


# -- collectives --------------------------------------------------------------------------------------------------------


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Copy the tensor of rank `src` to all ranks, in place."""
    _check_tensor(tensor, "tensor")
    if (pg := _group_if_member(group, "broadcast")) is None:
        return None
    return _run_or_start(records.broadcast_, tensor, _root(pg, src, group_src, "src"), pg, async_op=async_op)


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Reduce a tensor over all ranks with `op` (by default the sum), in place, on all ranks."""
    _check_tensor(tensor, "tensor")
    if not _rank_not_in_group(group):
        _check_complex([tensor], op)
    if (pg := _group_if_member(group, "all_reduce")) is None:
        return None
    return _run_or_start(records.all_reduce_, tensor, op, pg, async_op=async_op)


def all_reduce_coalesced(
    tensors: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Reduce several tensors of one dtype over all ranks, in place."""
    tensors = [tensors] if isinstance(tensors, Tensor) else _check_tensors(tensors, "tensors")
    _check_complex(tensors, op)
    tensors = [_view_as_real(t.detach()) if t.dtype.is_complex else t for t in tensors]
    _check_same_dtype(tensors)
    if (pg := _group_if_member(group, "all_reduce_coalesced")) is None:
        return None
    options = AllreduceOptions()
    options.reduceOp = op
    return _run_or_start(records.all_reduce_coalesced_, tensors, options, pg, async_op=async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Reduce a tensor over all ranks, in place, on rank `dst` only."""
    _check_tensor(tensor, "tensor")
    if (pg := _group_if_member(group, "reduce")) is None:
        return None
    return _run_or_start(records.reduce_, tensor, _root(pg, dst, group_dst, "dst"), op, pg, async_op=async_op)


def all_gather(tensor_list: Any, tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Gather the tensors of all ranks into a list on every rank. Sizes may differ between ranks."""
    _check_tensors(tensor_list, "tensor_list")
    _check_tensor(tensor, "tensor")
    _check_same_dtype(tensor_list, tensor)
    if (pg := _group_if_member(group, "all_gather")) is None:
        return None
    return _run_or_start(records.all_gather_, tensor_list, tensor, pg, async_op=async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Gather the tensors of all ranks into one tensor, concatenated along the first dimension."""
    _check_tensor(input_tensor, "input_tensor")
    _check_tensor(output_tensor, "output_tensor")
    if (pg := _group_if_member(group, "all_gather_into_tensor")) is None:
        return None
    return _run_or_start(records.all_gather_into_tensor_, output_tensor, input_tensor, pg, async_op=async_op)


all_gather_single = _all_gather_base = all_gather_into_tensor


def all_gather_coalesced(
    output_tensor_lists: Any, input_tensor_list: Any, group: Any = None, async_op: bool = False
) -> Work | None:
    """Gather several tensors: output_tensor_lists[rank][i] receives input_tensor_list[i] of that rank."""
    if (pg := _group_if_member(group, "all_gather_coalesced")) is None:
        return None
    _check_tensors(input_tensor_list, "input_tensor_list")
    if not isinstance(output_tensor_lists, list):
        raise TypeError("Invalid function argument: output_tensor_lists should be a list")
    for output in output_tensor_lists:
        _check_tensors(output, "output_tensor_lists")
    return _run_or_start(records.all_gather_coalesced_, output_tensor_lists, input_tensor_list, pg, async_op=async_op)


def gather(
    tensor: Tensor,
    gather_list: Any = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Gather the tensors of all ranks into a list on rank `dst`."""
    _check_tensor(tensor, "tensor")
    if (pg := _group_if_member(group, "gather")) is None:
        return None
    root = _root(pg, dst, group_dst, "dst", required=False)
    gather_list = _check_tensors(gather_list, "gather_list") if gather_list else []
    _check_same_dtype(tensor, gather_list)
    if pg.rank() == root:
        if not gather_list:
            raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    elif gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    return _run_or_start(records.gather_, gather_list, tensor, root, pg, async_op=async_op)


def scatter(
    tensor: Tensor,
    scatter_list: Any = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Send one tensor of rank `src`'s list to each rank."""
    _check_tensor(tensor, "tensor")
    scatter_list = _check_tensors(scatter_list, "scatter_list") if scatter_list else []
    _check_same_dtype(tensor, scatter_list)
    if (pg := _group_if_member(group, "scatter")) is None:
        return None
    root = _root(pg, src, group_src, "src", required=False)
    if pg.rank() == root:
        if not scatter_list:
            raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
    elif scatter_list:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    return _run_or_start(records.scatter_, tensor, scatter_list, root, pg, async_op=async_op)


def reduce_scatter(
    output: Tensor, input_list: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Reduce lists of tensors over all ranks; rank r receives the result for input_list[r]."""
    _check_tensor(output, "output")
    _check_tensors(input_list, "input_list")
    _check_same_dtype(output, input_list)
    if (pg := _group_if_member(group, "reduce_scatter")) is None:
        return None
    return _run_or_start(records.reduce_scatter_, output, input_list, op, pg, async_op=async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Reduce a tensor over all ranks; rank r receives the r-th part of the result."""
    _check_tensor(output, "output")
    _check_tensor(input, "input")
    if (pg := _group_if_member(group, "reduce_scatter_tensor")) is None:
        return None
    return _run_or_start(records.reduce_scatter_tensor_, output, input, op, pg, async_op=async_op)


reduce_scatter_single = _reduce_scatter_base = reduce_scatter_tensor


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Send the r-th part of the input to rank r, and receive one part from each rank."""
    _check_tensor(output, "output")
    _check_tensor(input, "input")
    _check_same_dtype(output, input)
    if (pg := _group_if_member(group, "all_to_all_single")) is None:
        return None
    return _run_or_start(
        records.all_to_all_single_, output, input, output_split_sizes, input_split_sizes, pg, async_op=async_op
    )


def all_to_all(
    output_tensor_list: Any, input_tensor_list: Any, group: Any = None, async_op: bool = False
) -> Work | None:
    """Send input_tensor_list[r] to rank r, and receive output_tensor_list[r] from it."""
    _check_tensors(output_tensor_list, "output_tensor_list")
    _check_tensors(input_tensor_list, "input_tensor_list")
    _check_same_dtype(output_tensor_list, input_tensor_list)
    if (pg := _group_if_member(group, "all_to_all")) is None:
        return None
    return _run_or_start(records.all_to_all_, output_tensor_list, input_tensor_list, pg, async_op=async_op)


def barrier(
    group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: timedelta | None = None
) -> Work | None:
    """Wait until all ranks have called this."""
    if (pg := _group_if_member(group, "barrier")) is None:
        return None
    options = BarrierOptions()
    if timeout is not None:
        options.timeout = timeout
    return _run_or_start(records.barrier, options, pg, async_op=async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """Barrier at which rank 0 raises an error naming the ranks that timed out."""
    if (pg := _group_if_member(group, "monitored_barrier")) is None:
        return
    if groups.get_backend(pg) not in ("gloo", "mpi"):
        raise ValueError("monitored_barrier is only implemented for GLOO backend.")
    if timeout is not None and not isinstance(timeout, timedelta):
        timeout = timedelta(seconds=timeout)
    elif timeout is None:
        timeout = pg._timeout
    pg.monitored_barrier(timeout, wait_all_ranks=wait_all_ranks)


# -- between two ranks ------------------------------------------------------------------------------------------------------


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """Start sending a tensor to one rank."""
    _check_tensor(tensor, "tensor")
    if (pg := _group_if_member(group, "isend")) is None:
        return None
    return pg.send([tensor], _check_other_rank(pg, _root(pg, dst, group_dst, "dst"), "destination"), tag)


def _check_other_rank(pg: ProcessGroup, peer: int, name: str) -> int:
    if peer == pg.rank():
        raise ValueError(f"Invalid {name} rank: {name} rank should not be the same as the rank of the current process.")
    return peer


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Start receiving a tensor, from one rank or (without `src`) from any."""
    _check_tensor(tensor, "tensor")
    if (pg := _group_if_member(group, "irecv")) is None:
        return None
    if src is None and group_src is None:
        return pg.recv_anysource([tensor], tag)
    return pg.recv([tensor], _check_other_rank(pg, _root(pg, src, group_src, "src"), "source"), tag)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor to one rank."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive a tensor; returns the rank of the sender."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    pg = _group_or_default(group)
    if src is not None:
        return src
    return groups.get_global_rank(pg, work.source_rank() if group_src is None else group_src)


class P2POp:
    """An `isend` or `irecv` for `batch_isend_irecv`."""

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``."
            )
        self.op, self.tensor, self.tag = op, _check_tensor(tensor, "tensor"), tag
        self.group = _group_or_default(group)
        self.group_peer = _root(self.group, peer, group_peer, "peer")
        self.peer = groups.get_global_rank(self.group, self.group_peer)

    def __repr__(self) -> str:
        name = self.op.__name__
        shape = tuple(self.tensor.shape)
        return f"P2POp({name} pg={self.group.group_name}, group_peer={self.group_peer}, tensor={shape}, {self.tensor.dtype})"


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Start several messages at once."""
    if not isinstance(p2p_op_list, list) or not p2p_op_list or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    if any(op.group is not p2p_op_list[0].group for op in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    works = []
    with p2p_op_list[0].group.together(p2p_op_list[0].tensor):
        for op in p2p_op_list:
            peer = {"group_dst" if op.op is isend else "group_src": op.group_peer}
            works.append(op.op(op.tensor, group=op.group, tag=op.tag, **peer))
    return works


@contextlib.contextmanager
def record_comm(name: str) -> Iterator[None]:
    """Context manager: record what runs inside under a name in profiles."""
    with named_range(name):
        yield
