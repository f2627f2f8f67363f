"""Collectives as operators: what each reads and writes, the method of a process group that runs it, and its derivative.

Those with a trailing underscore write into existing tensors, as PyTorch's `dist.all_reduce` does; the others return new tensors, and are
differentiable. All pass through the dispatcher, so that a mode (a recorder, a compiler) sees a collective like any other operator, with its
effects declared. PyTorch's functions are derived from these: `distributed.collectives`, `distributed._functional_collectives` and
`distributed.nn.functional`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..core import watching
from ..core.modes import active, deciding, intercept, observing
from ..core.modes import watching as is_watched
from ..core.tensor import Tensor
from ..futures import settled
from ..ops import namespace
from ..ops.machinery.declare import internal
from ..ops.machinery.inplace import raw_copy
from ..ops.machinery.record import NewTensor, Op, register
from .pieces import Share, memory_of
from .reduce_op import RedOpType, ReduceOp, kind_of
from .work import WatchedWork, Work

_torch = namespace("torch")


class _Listeners(threading.local):
    """Listeners that are notified of every collective that this thread starts: `CommDebugMode`."""

    def __init__(self) -> None:
        self.found: list[Callable[[str], None]] = []


listeners = _Listeners()


def told(name: str) -> None:
    """Notify the listeners of a collective: by its name in `torch.ops.c10d_functional`, or with another namespace before it."""
    for tell in listeners.found:
        tell(name)


class _UnderWay(threading.local):
    """Collectives that this thread has started, under a mode or in a recording, and not waited for, by the first tensor's address."""

    def __init__(self) -> None:
        self.works: dict[int, Work] = {}


_under_way = _UnderWay()


def _tensors(args: Any) -> list[Tensor]:
    if isinstance(args, (list, tuple)):
        return [t for a in args for t in _tensors(a)]
    return [args] if isinstance(args, Tensor) else []


def _face(op: Op, run: Callable) -> Any:
    """Return the function that users and modes call."""

    def face(*args: Any) -> None:
        if active and is_watched():
            intercept(op, face, args, {})
        else:
            run(*args)

    face.op, face._unwatched, face.__name__, face.__doc__ = op, run, op.name, op.doc  # type: ignore[attr-defined]
    op.function = face
    return face


def collective(method: str, writes: str = "") -> Callable[[Callable], Any]:
    """Declare a collective that a method of the process group runs, and that changes the argument `writes`. The decorated function returns
    that method's arguments; its last argument is the group. `face.start` only starts it: `wait_` is called afterwards."""

    def declare(fn: Callable) -> Any:
        def record(key: str, sends: str) -> Op:
            op = Op(fn.__name__, "primitive", fn, (), doc=fn.__doc__ or "", key=key, source=fn, sends=sends)
            op.differentiable, op.batching, op.writes = False, "each", (writes,) if writes else ()
            return op

        def begin(*args: Any, **how: Any) -> Work:
            return getattr(args[-1], method)(*fn(*args), **how)

        def run(*args: Any) -> None:
            if watching.active:
                watching.tell_looked()  # the engine accesses memory directly
            begin(*args, _wait=True)

        def run_start(*args: Any) -> None:
            if watching.active:
                watching.tell_looked()
            _under_way.works[memory_of(_tensors(args)[0]).address] = begin(*args)

        name = f"collective.{fn.__name__}"
        face = _face(register(record(name, "whole")), run)
        face.begin, face.start = begin, _face(record(f"{name}.start", "start"), run_start)
        return face

    return declare


def _run_wait(tensors: list[Tensor]) -> None:
    if watching.active:
        watching.tell_looked()
    work = _under_way.works.pop(memory_of(tensors[0]).address, None)
    if work is not None:
        work.wait()


def _waits(tensors: list[Tensor]) -> None:
    """Wait for the collective that was started on these tensors."""


wait_ = _face(
    register(
        Op("wait_", "primitive", _waits, (), differentiable=False, doc=_waits.__doc__ or "", key="collective.wait_",
           source=_waits, writes=("tensors",), sends="end", batching="each")
    ),
    _run_wait,
)  # fmt: skip


def started(record: Any, *args: Any) -> Work:
    """Start a collective that writes, without waiting. A mode that watches this thread sees its start and, when the work is waited for,
    `wait_`."""
    tensors = _tensors(args)
    if not (active and is_watched()):
        return record.begin(*args)
    if not tensors or not all(hasattr(t, "_storage") for t in tensors):
        record(*args)
        return Work(settled(tensors), what=record.op.name)
    record.start(*args)
    place, works = memory_of(tensors[0]).address, _under_way.works
    observer = observing()
    if not deciding() and not (observer is not None and observer.sees_messages):
        return works.pop(place)
    shown = list(args[0]) if isinstance(args[0], (list, tuple)) else [args[0]]

    def fetch() -> list:
        wait_(tensors)
        return shown

    return WatchedWork(fetch, lambda: place not in works or works[place].is_completed(), record.op.name)


# -- into tensors that exist --------------------------------------------------------------------------------------------------


@collective("allreduce", writes="tensor")
def all_reduce_(tensor: Tensor, op: Any, group: Any) -> tuple:
    """Reduce every rank's tensor, on all ranks."""
    return [tensor], op


@collective("allreduce_coalesced", writes="tensors")
def all_reduce_coalesced_(tensors: list[Tensor], options: Any, group: Any) -> tuple:
    """Reduce several tensors of one dtype, on all ranks."""
    return tensors, options


@collective("reduce", writes="tensor")
def reduce_(tensor: Tensor, root: int, op: Any, group: Any) -> tuple:
    """Reduce every rank's tensor on one rank."""
    return [tensor], root, op


@collective("broadcast", writes="tensor")
def broadcast_(tensor: Tensor, root: int, group: Any) -> tuple:
    """Copy one rank's tensor to all."""
    return [tensor], root


@collective("allgather", writes="outputs")
def all_gather_(outputs: list[Tensor], tensor: Tensor, group: Any) -> tuple:
    """Copy every rank's tensor into every rank's list."""
    return [outputs], [tensor]


@collective("_allgather_base", writes="output")
def all_gather_into_tensor_(output: Tensor, tensor: Tensor, group: Any) -> tuple:
    """Copy every rank's tensor, concatenated, into one."""
    return output, tensor


@collective("allgather_coalesced", writes="outputs")
def all_gather_coalesced_(outputs: list[list[Tensor]], tensors: list[Tensor], group: Any) -> tuple:
    """Gather several tensors from all ranks into lists on every rank."""
    return outputs, tensors


@collective("gather", writes="outputs")
def gather_(outputs: list[Tensor], tensor: Tensor, root: int, group: Any) -> tuple:
    """Copy every rank's tensor into the list of one rank."""
    return [outputs] if outputs else [], [tensor], root


@collective("scatter", writes="tensor")
def scatter_(tensor: Tensor, inputs: list[Tensor], root: int, group: Any) -> tuple:
    """Copy one tensor of a rank's list to each rank."""
    return [tensor], [inputs] if inputs else [], root


@collective("reduce_scatter", writes="output")
def reduce_scatter_(output: Tensor, inputs: list[Tensor], op: Any, group: Any) -> tuple:
    """Reduce every rank's list, of which each rank gets one tensor."""
    return [output], [inputs], op


@collective("_reduce_scatter_base", writes="output")
def reduce_scatter_tensor_(output: Tensor, input: Tensor, op: Any, group: Any) -> tuple:
    """Reduce every rank's tensor, of which each rank gets one part."""
    return output, input, op


@collective("all_gather_parts", writes="outputs")
def all_gather_parts_(outputs: list[Tensor], tensors: list[Tensor], group: Any) -> tuple:
    """Gather each of several tensors of every rank, concatenated, into one. The outputs' versions do not change."""
    return outputs, tensors


@collective("reduce_scatter_parts", writes="output")
def reduce_scatter_parts_(output: Tensor, shares: list[list[tuple]], op: Any, group: Any) -> tuple:
    """Reduce the shares (fields of `Share`) of all ranks for each rank, which receives them one after the other."""
    return output, [[Share(*share) for share in own] for own in shares], op


@collective("alltoall", writes="outputs")
def all_to_all_(outputs: list[Tensor], inputs: list[Tensor], group: Any) -> tuple:
    """Copy the r-th tensor of every rank's list to rank r."""
    return outputs, inputs


@collective("alltoall_base", writes="output")
def all_to_all_single_(output: Tensor, input: Tensor, takes: Any, sends: Any, group: Any) -> tuple:
    """Copy the r-th part of every rank's tensor to rank r."""
    return output, input, takes, sends


@collective("barrier")
def barrier(options: Any, group: Any) -> tuple:
    """Wait until all ranks have called it."""
    return (options,)


# -- new tensors, with derivatives ----------------------------------------------------------------------------------------------


_collective: Any = functools.partial(internal, batching="each", runs_empty=True, sends="whole")


def _same(input: Tensor, *settings: Any) -> NewTensor:
    return input.shape, input.dtype, input.device


def _with_rows(input: Tensor, rows: int) -> NewTensor:
    return (rows, *input.shape[1:]), input.dtype, input.device


@_collective(layout=_same, grads={"input": lambda g, reduction, group: all_reduce(g, reduction, group)})
def all_reduce(input: Tensor, reduction: Any, group: Any) -> Tensor:
    """Return the tensors of all ranks, reduced to one."""


@all_reduce.on("any")
def _(out: Tensor, input: Tensor, reduction: Any, group: Any) -> None:
    raw_copy(out, input)
    all_reduce_(out, reduction, group)


def _to_root(g: Tensor, root: int, group: Any) -> Tensor:
    total = reduce(g, root, ReduceOp.SUM, group)
    return total if group.rank() == root else _torch["zeros_like"](total)


@_collective(layout=_same, grads={"input": _to_root})
def broadcast(input: Tensor, root: int, group: Any) -> Tensor:
    """Return a copy of the source rank's tensor."""


@broadcast.on("any")
def _(out: Tensor, input: Tensor, root: int, group: Any) -> None:
    raw_copy(out, input)
    broadcast_(out, root, group)


@_collective(layout=_same, grads={"input": lambda g, root, group: broadcast(g, root, group)})
def reduce(input: Tensor, root: int, reduction: Any, group: Any) -> Tensor:
    """Return every rank's tensor, reduced, on one rank; on the others their own tensor."""


@reduce.on("any")
def _(out: Tensor, input: Tensor, root: int, reduction: Any, group: Any) -> None:
    raw_copy(out, input)
    reduce_(out, root, reduction, group)


@_collective(grads={"input": lambda g, group: reduce_scatter(g, ReduceOp.SUM, group)})
def all_gather(input: Tensor, group: Any) -> NewTensor:
    """Return every rank's tensor, concatenated along the first dimension."""
    return _with_rows(input, input.shape[0] * group.size())


@all_gather.on("any")
def _(out: Tensor, input: Tensor, group: Any) -> None:
    told("all_gather_into_tensor")
    all_gather_into_tensor_(out, input.contiguous(), group)


def _gathered(g: Tensor, reduction: Any, group: Any) -> Tensor:
    if kind_of(reduction) not in (RedOpType.SUM, RedOpType.AVG):
        raise AssertionError(f"only the sum and the average have a derivative, not {reduction}")
    wide = all_gather(g, group)
    return wide / group.size() if kind_of(reduction) is RedOpType.AVG else wide


@_collective(grads={"input": _gathered})
def reduce_scatter(input: Tensor, reduction: Any, group: Any) -> NewTensor:
    """Return this rank's part, along the first dimension, of every rank's tensor reduced."""
    return _with_rows(input, input.shape[0] // group.size())


@reduce_scatter.on("any")
def _(out: Tensor, input: Tensor, reduction: Any, group: Any) -> None:
    told("reduce_scatter_tensor")
    reduce_scatter_tensor_(out, input.contiguous(), reduction, group)


@_collective(grads={"input": lambda g, takes, sends, group: all_to_all(g, sends, takes, group)})
def all_to_all(input: Tensor, takes: Sequence[int] | None, sends: Sequence[int] | None, group: Any) -> NewTensor:
    """Return the rows that every rank sent to this rank: `takes[r]` rows from rank r, for `sends[r]` rows to it; without them, equal
    parts."""
    return _with_rows(input, input.shape[0] if takes is None else sum(takes))


@all_to_all.on("any")
def _(out: Tensor, input: Tensor, takes: Any, sends: Any, group: Any) -> None:
    told("all_to_all_single")
    all_to_all_single_(out, input.contiguous(), takes, sends, group)
