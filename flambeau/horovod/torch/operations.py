"""Horovod's operations: each synchronous, asynchronous (returns a handle), in place (a trailing underscore), and for several tensors at
once (grouped). The synchronous ones are differentiable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ...autograd.function import Function
from ...core.dtype import BY_NAME
from ...core.tensor import Tensor
from ...ops import namespace
from . import state
from .compression import Compression
from .negotiation import Request
from .state import Adasum, Average, ProcessSet, Sum, global_process_set

__all__ = [
    "allgather", "allgather_async", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "alltoall",
    "alltoall_async", "barrier", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_", "grouped_allgather",
    "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
    "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async", "join", "poll", "reducescatter",
    "reducescatter_async", "sparse_allreduce_async", "synchronize",
]  # fmt: skip

_torch = namespace("torch")


class Handle(int):
    """Handle of an operation in flight, for `poll` and `synchronize`."""

    request: Request
    take: Callable[[Any], Any]


_handles: dict[int, Handle] = {}
_last_handle = [0]


def _handle(request: Request, take: Callable[[Any], Any]) -> Handle:
    _last_handle[0] += 1
    handle = Handle(_last_handle[0])
    handle.request, handle.take = request, take
    _handles[_last_handle[0]] = handle
    return handle


def poll(handle: int) -> bool:
    """Return whether an operation is done."""
    known = _handles.get(handle)
    return known is None or known.request.done.is_set()


def synchronize(handle: int) -> Any:
    """Wait for an operation; returns its result."""
    known = _handles.pop(handle, None)
    if known is None:
        return None
    return known.take(known.request.wait())


def _check_contiguous(tensors: Sequence[Tensor]) -> list[Tensor]:
    for tensor in tensors:
        if not tensor.is_contiguous():
            raise ValueError("Tensor is required to be contiguous.")
    return list(tensors)


def _first_result(results: Any) -> Any:
    return results[0]


# -- spellings ------------------------------------------------------------------------------------------------------------


def _async(describe: Callable, take: Callable[[Any], Any], grouped: bool = False, in_place: bool = False) -> Any:
    """Return a function that starts an operation on a tensor, or on several as a group, and returns a handle. `describe(tensors, ...)` has
    the function's other parameters and returns what is submitted: kind, name, settings and process set; `take` picks from each result."""
    given, *others = inspect.signature(describe).parameters.values()
    signature = inspect.Signature([given.replace(name="tensors" if grouped else "tensor", annotation=Tensor), *others])

    def start(*args: Any, **kwargs: Any) -> Handle:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        first, *rest = bound.args
        tensors = list(first) if grouped else [first]
        kind, name, settings, process_set = describe(tensors, *rest)
        settings = {**settings, "in_place": True} if in_place else settings
        request = process_set.member().submit(kind, name, _check_contiguous(tensors), settings)
        return _handle(request, lambda results: [*map(take, results)] if grouped else take(results[0]))

    start.__signature__ = signature  # type: ignore[attr-defined]
    start.__name__ = f"{'grouped_' if grouped else ''}{describe.__name__[1:]}_async{'_' if in_place else ''}"
    start.__qualname__, start.__doc__ = start.__name__, f"{describe.__doc__} Returns a handle."
    return start


def _blocking(start: Any) -> Any:
    """Make the blocking form of an asynchronous operation: it returns the result instead of a handle."""

    def run(*args: Any, **kwargs: Any) -> Any:
        return synchronize(start(*args, **kwargs))

    run.__signature__ = start.__signature__  # type: ignore[attr-defined]
    run.__name__ = run.__qualname__ = start.__name__.replace("_async", "")
    run.__doc__ = start.__doc__.removesuffix(" Returns a handle.")
    return run


def _identity(result: Any) -> Any:
    return result


# -- allreduce ------------------------------------------------------------------------------------------------------------


def _operation(op: str | None, average: bool | None) -> str:
    if op is not None and average is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    if op is not None:
        return op
    return Sum if average is False else Average


def _reduce_settings(op: str, pre: float, post: float, process_set: ProcessSet) -> dict[str, Any]:
    if op == Adasum:
        size = process_set.size() or 1
        if process_set is not global_process_set:
            raise NotImplementedError("Adasum does not support non-global process sets yet.")
        if size & (size - 1):
            raise NotImplementedError("Running Adasum with non-power of 2 ranks is not supported yet.")
    return {"op": op, "scale": (float(pre), float(post)), "in_place": False}


def _allreduce(
    tensors: Sequence[Tensor], average: Any = None, name: str | None = None, op: Any = None, prescale_factor: float = 1.0,
    postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> tuple:  # fmt: skip
    """Average (or reduce by `op`) over all processes."""
    settings = _reduce_settings(_operation(op, average), prescale_factor, postscale_factor, process_set)
    return "allreduce", name, settings, process_set


allreduce_async, allreduce_async_ = _async(_allreduce, _identity), _async(_allreduce, _identity, in_place=True)
grouped_allreduce_async = _async(_allreduce, _identity, grouped=True)
grouped_allreduce_async_ = _async(_allreduce, _identity, grouped=True, in_place=True)
allreduce_, grouped_allreduce_ = _blocking(allreduce_async_), _blocking(grouped_allreduce_async_)


class _Allreduce(Function):
    @staticmethod
    def forward(ctx: Any, settings: tuple, name: str | None, *tensors: Tensor) -> tuple:
        ctx.settings = settings
        average, op, *rest = settings
        return tuple(synchronize(grouped_allreduce_async(tensors, average, name, op, *rest)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        return None, None, *_Allreduce.apply(ctx.settings, None, *(g.contiguous() for g in gradients))


def allreduce(
    tensor: Tensor, average: Any = None, name: str | None = None, compression: Any = Compression.none, op: Any = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> Tensor:  # fmt: skip
    """Return the average of a tensor over all processes."""
    return grouped_allreduce([tensor], average, name, compression, op, prescale_factor, postscale_factor, process_set)[
        0
    ]


def grouped_allreduce(
    tensors: Sequence[Tensor], average: Any = None, name: str | None = None, compression: Any = Compression.none, op: Any = None,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set,
) -> list[Tensor]:  # fmt: skip
    small, contexts = zip(*[compression.compress(t) for t in tensors])
    settings = (average, op, prescale_factor, postscale_factor, process_set)
    results = _Allreduce.apply(settings, name, *small)
    return [compression.decompress(t, context) for t, context in zip(results, contexts)]


def sparse_allreduce_async(
    tensor: Any, name: str, op: Any, process_set: ProcessSet = global_process_set
) -> Callable[[], Tensor]:
    """Start reducing a sparse tensor; call the returned function for the result."""
    held = tensor.coalesce() if tensor.is_sparse else tensor
    indices = allgather_async(held.indices().t().contiguous(), f"{name}.indices", process_set)
    values = allgather_async(held.values().contiguous(), f"{name}.values", process_set)

    def finish() -> Tensor:
        all_values = synchronize(values)
        if op == Average:
            all_values = all_values / process_set.size()
        all_indices = synchronize(indices)
        if not all_indices.shape[0]:
            return _torch["zeros_like"](tensor)
        return _torch["sparse_coo_tensor"](all_indices.t(), all_values, tuple(tensor.shape))

    return finish


# -- allgather --------------------------------------------------------------------------------------------------------------


def _allgather(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> tuple:
    """Concatenate every rank's tensor along the first dimension."""
    return "allgather", name, {}, process_set


allgather_async = _async(_allgather, _first_result)
grouped_allgather_async = _async(_allgather, _first_result, grouped=True)
_allgather_with_sizes = _async(_allgather, _identity, grouped=True)


class _Allgather(Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: Tensor) -> tuple:
        ctx.process_set, ctx.shapes = process_set, [t.shape for t in tensors]
        results = synchronize(_allgather_with_sizes(tensors, name, process_set))
        ctx.sizes = [sizes for _, sizes in results]
        return tuple(joined for joined, _ in results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        totals = grouped_allreduce([g.contiguous() for g in gradients], op=Average, process_set=ctx.process_set)
        rank = ctx.process_set.rank()
        parts = []
        for total, sizes, shape in zip(totals, ctx.sizes, ctx.shapes):
            start = sum(sizes[:rank])
            parts.append(total[start : start + sizes[rank]].reshape(shape))
        return None, None, *parts


def allgather(tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set) -> Tensor:
    """Return every rank's tensor, concatenated along the first dimension."""
    return _Allgather.apply(name, process_set, tensor)[0]


def grouped_allgather(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Tensor]:
    return list(_Allgather.apply(name, process_set, *tensors))


# -- broadcast --------------------------------------------------------------------------------------------------------------


def _broadcast(
    tensors: Sequence[Tensor], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> tuple:
    """Send a tensor of one process to all."""
    if process_set.ranks is not None and root_rank not in process_set.ranks:
        raise ValueError(f"broadcast: the root rank {root_rank} is not in the process set {process_set.ranks}")
    return "broadcast", name, {"root": root_rank, "in_place": False}, process_set


broadcast_async, broadcast_async_ = _async(_broadcast, _identity), _async(_broadcast, _identity, in_place=True)
broadcast_ = _blocking(broadcast_async_)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, root: int, name: str | None, process_set: ProcessSet) -> Tensor:
        ctx.root, ctx.process_set = root, process_set
        return synchronize(broadcast_async(tensor, root, name, process_set))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple:
        total = allreduce(gradient.contiguous(), op=Average, process_set=ctx.process_set)
        return total if state.rank() == ctx.root else total * 0, None, None, None


def broadcast(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Return the tensor of one process, on all."""
    return _Broadcast.apply(tensor, root_rank, name, process_set)


# -- alltoall ---------------------------------------------------------------------------------------------------------------


def _start_alltoall(tensor: Tensor, splits: Any, name: str | None, process_set: ProcessSet, take: Any) -> Handle:
    size = process_set.size() or 1
    if splits is None:
        if not tensor.dim() or tensor.shape[0] % size:
            raise ValueError(
                "alltoall: the first dimension of the tensor must be a multiple of the number of processes"
            )
        sizes = [tensor.shape[0] // size] * size
    else:
        if isinstance(splits, Tensor) and splits.dtype not in (BY_NAME["int32"], BY_NAME["int64"]):
            raise ValueError("alltoall expects `splits` to contain 32-bit integer elements.")
        sizes = [int(n) for n in (splits.tolist() if isinstance(splits, Tensor) else splits)]
        if len(sizes) != size or sum(sizes) > tensor.shape[0]:
            raise ValueError(
                "alltoall: the sum of the splits exceeds the first dimension, or there are not as many as processes"
            )
        tensor = tensor[: sum(sizes)]
    request = process_set.member().submit("alltoall", name, _check_contiguous([tensor]), {"splits": sizes})
    return _handle(request, take)


def _result_and_splits(result: tuple) -> tuple[Tensor, Tensor]:
    return result[0], _torch["tensor"](result[1], dtype=BY_NAME["int32"])


def alltoall_async(
    tensor: Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle:
    """Start sending the r-th part of a tensor to process r."""
    take = (lambda result: result[0]) if splits is None else _result_and_splits
    return _start_alltoall(tensor, splits, name, process_set, take)


class _Alltoall(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, splits: Any, name: str | None, process_set: ProcessSet) -> tuple:
        output, received = synchronize(_start_alltoall(tensor, splits, name, process_set, _result_and_splits))
        ctx.process_set, ctx.received, ctx.rows = process_set, received, tensor.shape[0]
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple:
        back, _splits = alltoall(gradient.contiguous(), ctx.received, process_set=ctx.process_set)
        if back.shape[0] < ctx.rows:
            back = _torch["cat"]([back, back.new_zeros((ctx.rows - back.shape[0], *back.shape[1:]))])
        return back, None, None, None


def alltoall(
    tensor: Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Send the r-th part of a tensor to process r; return the received parts and, with `splits`, their sizes."""
    output, received = _Alltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


# -- reducescatter ------------------------------------------------------------------------------------------------------------


def _reducescatter(
    tensors: Sequence[Tensor], name: str | None = None, op: str = Average, process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> tuple:  # fmt: skip
    """Reduce over all processes; process r gets the r-th part."""
    if any(t.dim() == 0 for t in tensors):
        raise ValueError("reducescatter needs tensors of at least one dimension")
    if op not in (Sum, Average):
        raise NotImplementedError(f"reducescatter supports Sum and Average, not {op}")
    return "reducescatter", name, _reduce_settings(op, prescale_factor, postscale_factor, process_set), process_set


reducescatter_async = _async(_reducescatter, _identity)
grouped_reducescatter_async = _async(_reducescatter, _identity, grouped=True)


class _Reducescatter(Function):
    @staticmethod
    def forward(ctx: Any, settings: tuple, name: str | None, *tensors: Tensor) -> tuple:
        ctx.settings = settings
        return tuple(synchronize(grouped_reducescatter_async(tensors, name, *settings)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        op, process_set, pre, post = ctx.settings
        factor = pre * post * (process_set.size() if op == Sum else 1)
        wide = grouped_allgather([(g * factor).contiguous() for g in gradients], process_set=process_set)
        return None, None, *wide


def reducescatter(
    tensor: Tensor, name: str | None = None, compression: Any = Compression.none, op: str = Average,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> Tensor:  # fmt: skip
    """Reduce a tensor over all processes, and return this process's part."""
    return grouped_reducescatter([tensor], name, compression, op, process_set, prescale_factor, postscale_factor)[0]


def grouped_reducescatter(
    tensors: Sequence[Tensor], name: str | None = None, compression: Any = Compression.none, op: str = Average,
    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
) -> list[Tensor]:  # fmt: skip
    small, contexts = zip(*[compression.compress(t) for t in tensors])
    results = _Reducescatter.apply((op, process_set, prescale_factor, postscale_factor), name, *small)
    return [compression.decompress(t, context) for t, context in zip(results, contexts)]


# -- meeting ------------------------------------------------------------------------------------------------------------------


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait for all processes."""
    process_set.member().call("barrier", None, [], {})


def join(device: int = -1) -> int:
    """Signal that this process has no more data: it joins the others' reductions with zeros until all have joined. Returns the rank that
    joined last."""
    return global_process_set.member().call("join", None, [], {})
