"""Joining tensors: cat, stack and the forms that add a dimension first."""

from __future__ import annotations

from typing import Any

from ...core import modes
from ...core.caching import remember
from ...core.device import default_device, device
from ...core.dtype import dtype
from ...core.layout import channels_last_strides, suggests_channels_last, wrap_dim
from ...core.promotion import can_cast, result_dtype
from ...core.size import Size, make_size
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, contiguous_strides, is_contiguous_layout, new_tensor, numel_of
from ...core.tensor import empty as raw_empty
from ...core.typenames import type_name
from ..creation.filled import fill_raw
from ..machinery.aten_form import aten_parts
from ..machinery.declare import composite, internal, primitive
from ..machinery.inplace import copy_kernel, needs_copy_before_write, raw_copy
from ..machinery.out import write_out
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
from ..machinery.watched import watched
from .dimensions import atleast_1d, atleast_2d, atleast_3d, slice_dim

_active = modes.active


def tensor_list(tensors: Any, name: str) -> list[Tensor]:
    """Check an argument that is a list of tensors, and return it."""
    if not isinstance(tensors, (tuple, list)):
        raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not {type_name(tensors)}")
    for i, t in enumerate(tensors):
        if type(t) is not Tensor and not isinstance(t, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type_name(t)}")
    return list(tensors)


def _is_skipped(t: Tensor) -> bool:
    """Return whether a tensor is one-dimensional and empty: PyTorch ignores those whatever the others' shapes."""
    return t.shape == (0,)


def _check_devices(tensors: list[Tensor]) -> device:
    where = tensors[0].device
    for t in tensors:
        if t.device is not where:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {where} and"
                f" {t.device}!"
            )
    return where


def _cat_shape(tensors: list[Tensor], dim: int) -> tuple[list[Tensor], int, Size]:
    """Return the tensors that are joined, the wrapped dimension and the result's shape."""
    for i, t in enumerate(tensors):
        if not t.shape:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    parts = [t for t in tensors if not _is_skipped(t)]
    if not parts:
        return [], 0, make_size((0,))  # whatever the dimension: nothing says how many there are
    first = parts[0].shape
    d = wrap_dim(dim, len(first))
    total = 0
    for i, t in enumerate(tensors):
        if _is_skipped(t):
            continue
        if len(t.shape) != len(first):
            raise RuntimeError(f"Tensors must have same number of dimensions: got {len(first)} and {len(t.shape)}")
        for k, (want, have) in enumerate(zip(first, t.shape)):
            if want != have and k != d:
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {d}. Expected size {want} but got size {have} for"
                    f" tensor number {i} in the list."
                )
        total += t.shape[d]
    return parts, d, make_size((*first[:d], total, *first[d + 1 :]))


def _channels_last(parts: list[Tensor]) -> bool:
    return bool(parts) and all(suggests_channels_last(t.shape, t._strides) for t in parts)


class JoinPlan:
    """Plan of a join: where each tensor goes in the result and, once needed, the kernels that copy them there."""

    __slots__ = ("layout", "parts", "copies", "others")

    layout: tuple[Size, dtype, device, tuple[int, ...] | None, JoinPlan]
    # Position in the list, and a view of the result: where it goes.
    parts: list[tuple[int, tuple[int, ...], tuple[int, ...], int]]
    copies: list[tuple[int, Any, Any, int]] | None  # position in the list, kernel, its first argument, byte offset
    others: list[tuple[int, tuple[int, ...], tuple[int, ...], int]]  # parts for which there is no such kernel

    def __init__(self, given: list[Tensor], shape: Size, channels_last: bool):
        where, d = _check_devices(given), given[0].dtype
        if not all(t.dtype is d for t in given):
            d = result_dtype(tuple(given))
        self.layout = (shape, d, where, channels_last_strides(shape) if channels_last else None, self)
        self.parts, self.copies, self.others = [], None, []

    @property
    def strides(self) -> tuple[int, ...]:
        shape, _, _, strides, _ = self.layout
        return contiguous_strides(shape) if strides is None else strides

    def find_copies(self, given: Any) -> list[tuple[int, Any, Any, int]]:
        """Return the kernels for tensors of these layouts."""
        _, d, where, _, _ = self.layout
        copies, others = [], []
        for part in self.parts:
            i, shape, strides, offset = part
            if 0 in shape:
                continue
            target = new_tensor(
                UntypedStorage(0), make_size(shape), strides, offset, d, where, is_contiguous_layout(shape, strides)
            )
            fn, first = copy_kernel(target, given[i])
            if fn is not None:
                copies.append((i, fn, first, offset * d.itemsize))
            else:
                others.append(part)
        self.copies, self.others = copies, others
        return copies


def _join(out: Tensor, plan: JoinPlan, tensors: Any, dim: int) -> None:
    """Copy every tensor to its place: the kernel. `out` starts its storage."""
    start, copies = out._storage.ptr, plan.copies
    if copies is None:
        copies = plan.find_copies(tensors)
    for i, fn, first, offset in copies:
        t = tensors[i]
        fn(first, start + offset, t._storage.ptr + t._offset * t.dtype.itemsize)
    for i, shape, strides, at in plan.others:
        raw_copy(out._view(shape, strides, at), tensors[i])


_cat_plans: dict[tuple[Any, ...], JoinPlan] = {}
_stack_plans: dict[tuple[Any, ...], JoinPlan] = {}


def _layout(plans: dict[tuple[Any, ...], JoinPlan], make: Any, tensors: Any, dim: int) -> tuple[Any, ...]:
    """Return the layout of the joined tensors, with the plan to join them, which is cached for lists and tuples of tensors."""
    kind = type(tensors)
    if (kind is not list and kind is not tuple) or not tensors or type(dim) is not int:  # 1.0 would find the plan for 1
        return make(tensors, dim).layout
    try:
        first = tensors[0]
        shape, strides, d, where = first.shape, first._strides, first.dtype, first.device
        for t in tensors:
            if t.dtype is not d or t._strides != strides or t.shape != shape or t.device is not where:
                key: tuple[Any, ...] = (dim, *[(t.shape, t._strides, t.dtype, t.device) for t in tensors])
                break
        else:
            key = (dim, len(tensors), shape, strides, d, where)
    except AttributeError:  # of what is not a tensor
        return make(tensors, dim).layout
    plan = plans.get(key)
    if plan is None:
        plan = remember(plans, key, make(tensors, dim))
    return plan.layout


@watched(writes=("out",), batching="each")
def stack_into(out: Tensor, tensors: list[Tensor]) -> None:
    """Stack tensors, without recording, into new memory: a contiguous tensor of that shape and dtype."""
    _join(out, _layout(_stack_plans, _stack_plan, tensors, 0)[-1], tensors, 0)


def _cat_backward(
    g: Tensor, tensors_shape: list[Size], tensors_dtype: list[dtype], dim: int, needs: dict[str, list[bool]]
) -> list[Any]:
    shares: list[Any] = []
    start = 0
    axis = 0 if all(shape == (0,) for shape in tensors_shape) else wrap_dim(dim, len(g.shape))
    for shape, d, wanted in zip(tensors_shape, tensors_dtype, needs["tensors"]):
        if shape == (0,):
            shares.append(g.new_zeros((0,)) if wanted else None)
            continue
        stop = start + shape[axis]
        shares.append(_share(slice_dim(g, axis, start, stop, 1), d) if wanted else None)
        start = stop
    return shares


@composite(method=False, aliases=("concat", "concatenate"), autocast="widest", sharding="cat")
def cat(tensors: Any, dim: int = 0, *, out: Any = None) -> Tensor:
    """The tensors concatenated along a dimension they already have.

    >>> cat([ones(1, 2), zeros(1, 2)])
    tensor([[1., 1.],
            [0., 0.]])
    """
    if out is None:
        return joined(tensors, dim) if _active else _cat(tensors, dim)
    for i, t in enumerate(tensors):
        if isinstance(t, Tensor) and isinstance(out, Tensor) and (t is out or needs_copy_before_write(out, t)):
            raise RuntimeError(
                "unsupported operation: the input tensors cannot refer to any of the output memory locations. Found"
                f" overlap in input tensor {i}"
            )
    result = joined(tensors, dim)
    if isinstance(out, Tensor) and not can_cast(result.dtype, out.dtype):
        raise TypeError(f"torch.cat(): input types can't be cast to the desired output type {out.dtype.scalar_type}")
    return write_out("cat", out, result)


def _cat_layout(tensors: Any, dim: int) -> tuple[Any, ...]:
    return _layout(_cat_plans, _cat_plan, tensors, dim)


@internal(
    layout=_cat_layout,
    pieces=lambda tensors, dim: _cat_layout(tensors, dim)[-1].parts,
    planned=True,
    grads={"tensors": _cat_backward},
    quirks=Quirks(label="CatBackward0"),
    name="_cat",
    batching="each",
    sharding="cat",
    aten="cat(list(tensors), dim)",
)
def joined(tensors: Any, dim: int) -> Tensor:
    """The tensors concatenated along a dimension they already have."""


_cat = joined.op.impl  # where no mode is on, cat need not ask again
joined.on("any")(_join)


def _cat_plan(tensors: Any, dim: int) -> JoinPlan:
    given = tensor_list(tensors, "cat")
    if not given:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    parts, axis, shape = _cat_shape(given, dim)
    plan = JoinPlan(given, shape, _channels_last(parts))
    strides, offset = plan.strides, 0
    for i, t in enumerate(given):
        if not _is_skipped(t):
            n = t.shape[axis]
            plan.parts.append((i, (*shape[:axis], n, *shape[axis + 1 :]), strides, offset))
            offset += n * strides[axis]
    return plan


def _share(part: Tensor, d: dtype) -> Tensor:
    """Return a part of the gradient for a tensor of dtype `d`."""
    return (part.real if part.dtype.is_complex and not d.is_complex else part).to(d)


def _stack_backward(g: Tensor, tensors_dtype: list[dtype], dim: int, needs: dict[str, list[bool]]) -> list[Any]:
    axis = wrap_dim(dim, len(g.shape))
    wanted = zip(tensors_dtype, needs["tensors"])
    return [_share(g.select(axis, i), d) if yes else None for i, (d, yes) in enumerate(wanted)]


def _stack_layout(tensors: Any, dim: int = 0) -> tuple[Any, ...]:
    return _layout(_stack_plans, _stack_plan, tensors, dim)


@primitive(
    layout=_stack_layout,
    pieces=lambda tensors, dim: _stack_layout(tensors, dim)[-1].parts,
    planned=True,
    grads={"tensors": _stack_backward},
    out=True,
    method=False,
    autocast="widest",
    sharding="cat",
)
def stack(tensors: Any, dim: int = 0) -> Tensor:
    """The tensors joined along a new dimension."""


@aten_parts("stack")
def _(aten: Any, tensors: list[Tensor], dim: int = 0) -> Tensor:
    rank = tensors[0].dim() + 1
    dim %= rank
    if dim == rank - 1:
        return aten.cat.default([aten.unsqueeze.default(t, dim) for t in tensors], dim)
    shape = list(tensors[0].shape)
    return aten.view.default(aten.cat.default(tensors, dim), [*shape[:dim], len(tensors), *shape[dim:]])


stack.on("any")(_join)


def _stack_plan(tensors: Any, dim: int) -> JoinPlan:
    given = tensor_list(tensors, "stack")
    if not given:
        raise RuntimeError("stack expects a non-empty TensorList")
    first = given[0].shape
    axis = wrap_dim(dim, len(first) + 1)
    for i, t in enumerate(given):
        if t.shape != first:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first)} at entry 0 and {list(t.shape)} at"
                f" entry {i}"
            )
    plan = JoinPlan(given, make_size((*first[:axis], len(given), *first[axis:])), False)
    strides = plan.strides
    rest, step = (*strides[:axis], *strides[axis + 1 :]), strides[axis]
    plan.parts = [(i, first, rest, i * step) for i in range(len(given))]
    return plan


def _non_empty(tensors: Any, name: str) -> list[Tensor]:
    given = tensor_list(tensors, name)
    if not given:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return given


@composite(out=True, method=False)
def hstack(tensors: Any) -> Tensor:
    """Join tensors side by side: along the first dimension of vectors, the second of anything else."""
    given = [atleast_1d(t) for t in _non_empty(tensors, "hstack")]
    return cat(given, 0 if len(given[0].shape) == 1 else 1)


@composite(out=True, method=False, aliases=("row_stack",))
def vstack(tensors: Any) -> Tensor:
    """Join tensors one below the other."""
    return cat([atleast_2d(t) for t in _non_empty(tensors, "vstack")], 0)


@composite(out=True, method=False)
def dstack(tensors: Any) -> Tensor:
    """Join tensors along the third dimension."""
    return cat([atleast_3d(t) for t in _non_empty(tensors, "dstack")], 2)


@composite(out=True, method=False)
def column_stack(tensors: Any) -> Tensor:
    """Join tensors side by side, vectors as columns."""
    given = _non_empty(tensors, "column_stack")
    columns = [t.reshape(t.numel(), 1) if len(t.shape) <= 1 else t for t in given]
    return hstack(columns)


def _block_diag_backward(
    g: Tensor, tensors_shape: list[Size], tensors_dtype: list[dtype], needs: dict[str, list[bool]]
) -> list[Any]:
    shares: list[Any] = []
    row = column = 0
    for shape, d, wanted in zip(tensors_shape, tensors_dtype, needs["tensors"]):
        height, width = _matrix_shape(shape)
        part = slice_dim(slice_dim(g, 0, row, row + height, 1), 1, column, column + width, 1) if wanted else None
        shares.append(None if part is None else _share(part.reshape(shape), d))
        row, column = row + height, column + width
    return shares


def _matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    return (shape[0], shape[1]) if len(shape) == 2 else (1, numel_of(shape))


@internal(
    grads={"tensors": _block_diag_backward},
    quirks=Quirks(label="BlockDiagBackward0"),
    name="_block_diag",
    batching="each",
)
def block_diagonal(tensors: list[Tensor]) -> NewTensor:
    """The matrices along the diagonal of one large matrix of zeros."""
    for i, t in enumerate(tensors):
        if len(t.shape) > 2:
            raise RuntimeError(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {len(t.shape)}"
                " dimensions"
            )
    shapes = [_matrix_shape(t.shape) for t in tensors]
    shape = (sum(h for h, _ in shapes), sum(w for _, w in shapes))
    return shape, result_dtype(tuple(tensors)), _check_devices(tensors)


@block_diagonal.on("any")
def _(out: Tensor, tensors: list[Tensor]) -> None:
    fill_raw(out, 0)
    offset = 0
    for t in tensors:
        height, width = _matrix_shape(t.shape)
        if height and width:
            raw_copy(out._view((height, width), out._strides, offset), t.reshape(height, width))
        offset += height * out._strides[0] + width


@composite(method=False)
def block_diag(*tensors: Any) -> Tensor:
    """The matrices along the diagonal of one large matrix."""
    given = tensor_list(
        tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors, "block_diag"
    )
    if not given:
        return raw_empty((1, 0), result_dtype((1.0,)), default_device())
    return block_diagonal(given)
