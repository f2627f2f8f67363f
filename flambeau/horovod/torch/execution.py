"""Execution of an operation once all ranks are ready for it."""

from __future__ import annotations

from typing import Any

from ...core.dtype import BY_NAME
from ...core.tensor import Tensor, empty
from ...distributed.reduce_op import RedOpType
from ...ops import namespace

_torch = namespace("torch")
_KINDS = {
    "Sum": RedOpType.SUM,
    "Average": RedOpType.SUM,
    "Min": RedOpType.MIN,
    "Max": RedOpType.MAX,
    "Product": RedOpType.PRODUCT,
}


def execute(group: Any, request: Any, told: dict[int, dict], joined: list[int]) -> Any:
    """Run the operation; `request` is None on a rank that has joined, which contributes nothing."""
    first = told[min(told)]
    return _EXECUTE[first["kind"]](group, request, told, first)


def _zeros_like_description(description: dict) -> list[Tensor]:
    """Return zeros in the shapes of the others' tensors, for a rank that has joined."""
    return [_torch["zeros"](shape, dtype=BY_NAME[dtype]) for dtype, shape in description["tensors"]]


def scaled(tensor: Tensor, factor: float) -> Tensor:
    """Return tensor * factor, computed in a dtype that can hold it, in the tensor's own dtype."""
    if factor == 1.0:
        return tensor
    wide = tensor.dtype
    if not wide.is_floating_point:
        wide = BY_NAME["float64"]
    elif wide.itemsize < 4:
        wide = BY_NAME["float32"]
    return (tensor.to(wide) * _torch["tensor"](factor, dtype=BY_NAME["float64"]).to(wide)).to(tensor.dtype)


def _prescaled_copy(tensor: Tensor, first: dict) -> Tensor:
    copy = scaled(tensor.detach(), first["scale"][0])
    return copy.clone() if copy is tensor or copy._storage is tensor._storage else copy


def _finish_reduction(tensor: Tensor, first: dict, size: int) -> Tensor:
    if first["op"] == "Average":
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            tensor = scaled(tensor, 1.0 / size) if tensor.dtype.itemsize < 4 else tensor.div_(size)
        else:
            tensor = tensor.div(size, rounding_mode="trunc")
    return scaled(tensor, first["scale"][1])


def _allreduce(group: Any, request: Any, told: dict[int, dict], first: dict) -> Any:
    sources = _zeros_like_description(first) if request is None else request.tensors
    results = []
    for source in sources:
        copy = _prescaled_copy(source, first).contiguous()
        if first["op"] == "Adasum":
            copy = _adasum(group, copy)
        else:
            group.allreduce([copy], _KINDS[first["op"]], _wait=True)
        results.append(_finish_reduction(copy, first, group.size()))
    if request is not None and request.settings.get("in_place"):
        for target, result in zip(request.tensors, results):
            target.detach().copy_(result)
        return request.tensors
    return results


def _adasum(group: Any, tensor: Tensor) -> Tensor:
    """Reduce by Adasum (Maleki et al., 2020): parallel gradients are averaged, orthogonal ones added; in pairs, like a tree."""
    parts = [_torch["empty_like"](tensor) for _ in range(group.size())]
    group.allgather([parts], [tensor], _wait=True)
    while len(parts) > 1:
        parts = [_adasum_pair(a, b) for a, b in zip(parts[::2], parts[1::2])]
    return parts[0]


def _adasum_pair(a: Tensor, b: Tensor) -> Tensor:
    x, y = a.double(), b.double()
    dot, xx, yy = float((x * y).sum()), float((x * x).sum()), float((y * y).sum())
    left = 1 - dot / (2 * xx) if xx else 1.0
    right = 1 - dot / (2 * yy) if yy else 1.0
    return (x * left + y * right).to(a.dtype)


def _rows(shape: tuple) -> int:
    return shape[0] if shape else 1


def _allgather(group: Any, request: Any, told: dict[int, dict], first: dict) -> Any:
    results = []
    for position, tensor in enumerate(request.tensors):
        source = (tensor.detach() if tensor.dim() else tensor.detach().view(1)).contiguous()
        sizes = [_rows(told[rank]["tensors"][position][1]) for rank in range(group.size())]
        outputs = [empty((n, *source.shape[1:]), source.dtype) for n in sizes]
        group.allgather([outputs], [source], _wait=True)
        results.append((_torch["cat"](outputs), sizes))
    return results


def _broadcast(group: Any, request: Any, told: dict[int, dict], first: dict) -> Any:
    root = group.ranks.index(first["root"])
    results = []
    for tensor in request.tensors:
        copy = tensor.detach().clone()
        group.broadcast([copy], root, _wait=True)
        if request.settings.get("in_place"):
            tensor.detach().copy_(copy)
            copy = tensor
        results.append(copy)
    return results


def _alltoall(group: Any, request: Any, told: dict[int, dict], first: dict) -> Any:
    source = request.tensors[0].detach().contiguous()
    own = group.rank()
    received = [told[rank]["splits"][own] for rank in range(group.size())]
    output = empty((sum(received), *source.shape[1:]), source.dtype)
    group.alltoall_base(output, source, received, told[own]["splits"], _wait=True)
    return output, received


def shares(rows: int, size: int) -> list[int]:
    """Return the number of rows of each rank; the first ones get one more if it does not divide."""
    return [rows // size + (1 if rank < rows % size else 0) for rank in range(size)]


def _reducescatter(group: Any, request: Any, told: dict[int, dict], first: dict) -> Any:
    if first["op"] not in ("Sum", "Average"):
        raise NotImplementedError(f"reducescatter does not support {first['op']}")
    results = []
    for tensor in request.tensors:
        sizes = shares(tensor.shape[0], group.size())
        copy = _prescaled_copy(tensor, first).contiguous()
        output = empty((sizes[group.rank()], *tensor.shape[1:]), tensor.dtype)
        group.reduce_scatter([output], [list(copy.split(sizes))], RedOpType.SUM, _wait=True)
        results.append(_finish_reduction(output, first, group.size()))
    return results


def _barrier(group: Any, request: Any, told: dict[int, dict], first: dict) -> None:
    """Do nothing: all ranks have arrived once a barrier is executed."""


_EXECUTE = {
    "allreduce": _allreduce,
    "allgather": _allgather,
    "broadcast": _broadcast,
    "alltoall": _alltoall,
    "reducescatter": _reducescatter,
    "barrier": _barrier,
}
