"""Operators that return the same elements in another shape: view, reshape, flatten, and views as another dtype."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.batched import BatchedTensor
from ...core.caching import remember
from ...core.dtype import dtype
from ...core.held import HeldOperand
from ...core.layout import wrap_dim
from ...core.sharded import ShardedOperand
from ...core.size import make_size
from ...core.tensor import Tensor, contiguous_strides, new_tensor, numel_of
from ..machinery.arguments import as_int, as_ints, collected, varargs_ints
from ..machinery.aten_form import aten_parts
from ..machinery.declare import composite, internal, view
from ..machinery.quirks import Quirks
from ..machinery.view_op import geometry_view


def infer_shape(shape: tuple[int, ...], numel: int) -> tuple[int, ...]:
    """Return the shape with one -1 replaced by the size that makes the element count fit."""
    known, unknown = 1, -1
    for i, n in enumerate(shape):
        if n == -1:
            if unknown >= 0:
                raise RuntimeError("only one dimension can be inferred")
            unknown = i
        elif n < 0:
            raise RuntimeError(f"invalid shape dimension {n} at index {i} of shape {list(shape)}")
        else:
            known *= n
    if unknown < 0:
        if known != numel:
            raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
        return shape
    if known == 0:
        if numel:
            raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension size -1"
            " can be any value and is ambiguous"
        )
    if numel % known:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
    return (*shape[:unknown], numel // known, *shape[unknown + 1 :])


_VIEW_STRIDES: dict[tuple[Any, ...], tuple[int, ...] | None] = {}


def view_strides(shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return strides that show the same elements as `target`, or None if only a copy can."""
    key = (shape, strides, target)
    try:
        return _VIEW_STRIDES[key]
    except KeyError:
        return remember(_VIEW_STRIDES, key, _find_view_strides(shape, strides, target))


def _find_view_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Find the strides from the last dimension on: each maximal run of dimensions that is contiguous in itself must be covered exactly by a
    run of target dimensions."""
    if numel_of(shape) == 0:
        return contiguous_strides(target) if shape != target else strides
    result = [0] * len(target)
    position = len(target) - 1
    run_stride = strides[-1] if strides else 1
    run_size = target_size = 1
    for d in range(len(shape) - 1, -1, -1):
        run_size *= shape[d]
        ends = d == 0 or (shape[d - 1] != 1 and strides[d - 1] != run_size * run_stride)
        if not ends:
            continue
        while position >= 0 and (target_size < run_size or target[position] == 1):
            result[position] = target_size * run_stride
            target_size *= target[position]
            position -= 1
        if target_size != run_size:
            return None
        if d > 0:
            run_stride = strides[d - 1]
            run_size = target_size = 1
    while position >= 0 and target[position] == 1:  # only for 0-dim inputs
        result[position] = run_stride
        position -= 1
    return tuple(result) if position < 0 else None


@geometry_view(
    backward=lambda g, shape, size: g.reshape(shape),
    quirks=Quirks(label="ViewBackward0"),
    aten="view(input, list(size))",
    function=False,
    method=False,
    sharding="reshape",
)
def view_shape(input: Tensor, size: tuple[int, ...]) -> tuple[Any, ...]:
    """A view of `input` with the shape `size` (one of which may be -1), which must be possible without a copy."""
    shape = infer_shape(size, numel_of(input.shape))
    strides = view_strides(input.shape, input._strides, shape)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two"
            " contiguous subspaces). Use .reshape(...) instead."
        )
    return shape, strides, input._offset


@view(quirks=Quirks(label="ViewBackward0"), function=False, method=False, batching="fronted")
def view_dtype(input: Tensor, d: dtype) -> Tensor:
    """The bytes read as another dtype; the last dimension shrinks or grows with the element size."""
    old, new = input.dtype.itemsize, d.itemsize
    shape, strides, offset = list(input.shape), list(input._strides), input._offset
    if old != new:
        _check_bitcast(input, d, old, new)
        if old > new:
            ratio = old // new
            shape[-1] *= ratio
            strides = [s * ratio for s in strides[:-1]] + [1]
            offset *= ratio
        else:
            ratio = new // old
            shape[-1] //= ratio
            strides = [s // ratio for s in strides[:-1]] + [1]
            offset //= ratio
    out = input._view(make_size(shape), tuple(strides), offset)
    out.dtype = d
    return out


def _check_bitcast(input: Tensor, d: dtype, old: int, new: int) -> None:
    if not input.shape:
        raise RuntimeError(
            f"self.dim() cannot be 0 to view {input.dtype.scalar_type} as {d.scalar_type} (different element sizes)"
        )
    if input._strides[-1] != 1:
        raise RuntimeError(
            f"self.stride(-1) must be 1 to view {input.dtype.scalar_type} as {d.scalar_type} (different element sizes), but got"
            f" {input._strides[-1]}"
        )
    if new > old:
        ratio = new // old
        for what, values in (("self.size(-1)", (input.shape[-1],)), ("self.storage_offset()", (input._offset,))):
            if values[0] % ratio:
                raise RuntimeError(
                    f"{what} must be divisible by {ratio} to view {input.dtype.scalar_type} as {d.scalar_type} (different element"
                    f" sizes), but got {values[0]}"
                )
        for i, s in enumerate(input._strides[:-1]):
            if s % ratio:
                raise RuntimeError(
                    f"self.stride({i}) must be divisible by {ratio} to view {input.dtype.scalar_type} as {d.scalar_type}"
                    f" (different element sizes), but got {s}"
                )


@composite(function=False, name="view")
def view_(self: Tensor, *shape: Any, dtype: Any = None, size: Any = None) -> Tensor:
    """Change the shape (or dtype) of the same memory."""
    if size is not None:
        shape = (size,)
    kind = shape[0] if len(shape) == 1 and isinstance(shape[0], dt.dtype) else dtype
    if kind is not None:
        out = view_dtype(self.detach(), kind)
        out._base = None  # autograd knows nothing of reinterpreted bytes: no history, not even that of a view
        return out
    if not shape:
        raise TypeError(
            "view() received an invalid combination of arguments - got (), but expected (torch.dtype dtype) or (tuple"
            " of ints size)"
        )
    return view_shape(self, varargs_ints(shape, "view"))


@composite(function=False)
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """A view with another tensor's shape."""
    return view_shape(self, other.shape)


@internal(
    grads={"input": lambda g, input_shape: g.reshape(input_shape)},
    quirks=Quirks(label="UnsafeViewBackward0"),
    name="_unsafe_view",
    sharding="reshape",
)
def unsafe_view(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor without other references in another shape: it counts as a tensor of its own, not as a view."""
    t = input if input._contig else input.contiguous()
    return new_tensor(t._storage, make_size(shape), contiguous_strides(shape), t._offset, t.dtype, t.device, True)


aten_parts("_unsafe_view")(lambda aten, self, size: aten.view.default(self, size))


_RESHAPES: dict[tuple[Any, ...], tuple[tuple[int, ...], bool]] = {}


def reshaped(input: Tensor, size: tuple[int, ...]) -> Tensor:
    if isinstance(input, BatchedTensor):
        return input.reshape(size)
    try:
        key = (input.shape, input._strides, size)
    except HeldOperand:
        raise
    except ShardedOperand:
        target = infer_shape(size, numel_of(input.shape))
        if view_strides(tuple(input.shape), input.stride(), target) is not None:
            return view_shape(input, target)
        return unsafe_view(input.contiguous(), target)
    known = _RESHAPES.get(key)
    if known is None:
        target = infer_shape(size, numel_of(input.shape))
        known = remember(_RESHAPES, key, (target, view_strides(input.shape, input._strides, target) is not None))
    target, is_view = known
    return view_shape(input, target) if is_view else unsafe_view(input.contiguous(), target)


@composite
def reshape(input: Tensor, *shape: Any, **named: Any) -> Tensor:
    """Return the elements in another shape: a view where possible, else a copy."""
    if named or not shape:
        shape = collected(shape, named, "shape", "reshape")
    return reshaped(input, varargs_ints(shape, "reshape", "shape", 2))


@composite(function=False)
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """The elements in another tensor's shape."""
    return reshaped(self, other.shape)


@composite
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The elements with the dimensions from start_dim to end_dim merged into one."""
    n = len(input.shape)
    if start_dim == 0 and end_dim == -1 and n > 1:
        return reshaped(input, (numel_of(input.shape),))
    start, end = wrap_dim(start_dim, n), wrap_dim(end_dim, n)
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if n == 0:
        return reshaped(input, (1,))
    if start == end:
        return input
    merged = numel_of(input.shape[start : end + 1])
    return reshaped(input, (*input.shape[:start], merged, *input.shape[end + 1 :]))


@composite
def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """A view with one dimension split into several."""
    parts = as_ints(sizes, "unflatten", "sizes", 3)
    d = wrap_dim(as_int(dim, "unflatten", "dim", 1), len(input.shape))
    if not parts:
        raise RuntimeError("unflatten: sizes must be non-empty")
    if not input.shape:
        raise RuntimeError("unflatten: dimension specified as 0 but tensor has no dimensions")
    size = input.shape[d]
    if parts.count(-1) > 1:
        raise RuntimeError("only one dimension can be inferred")
    known = numel_of([p for p in parts if p != -1])
    fits = known == size if -1 not in parts else known != 0 and size % known == 0
    if not fits:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(parts)} don't multiply up to the size of dim {d} ({size}) in the input"
            " tensor"
        )
    return view_shape(input, (*input.shape[:d], *infer_shape(parts, size), *input.shape[d + 1 :]))


@composite
def ravel(input: Tensor) -> Tensor:
    """All elements as one vector, copied only if needed."""
    return view_shape(input.contiguous(), (numel_of(input.shape),))
