"""Views that give another shape to the same memory: view, permute, expand, squeeze, select, slice."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import dtype as dt
from ..core.dtype import dtype
from ..core.layout import broadcast_shapes as broadcast
from ..core.layout import memory_span, wrap_dim
from ..core.size import Size, make_size
from ..core.tensor import Tensor, contiguous_strides, copy_of_array, numel_of
from ..core.typenames import type_name
from .arguments import as_int, as_ints, collected, is_int, varargs_ints
from .convert import check_bounds, copy_raw
from .declare import composite, primitive, view
from .view_op import ViewOp, geometry_view

# -- derivatives of views -----------------------------------------------------------------------------------------------


@primitive(grads={"part": lambda g, place: place(g)}, function=False, method=False, name="_spread")
def spread(part: Tensor, shape: Any, place: Any) -> Tensor:
    """Zeros of `shape` with `part` written where the view function `place` points: the derivative of that view."""
    full = part.new_zeros(shape)  # type: ignore[attr-defined]
    copy_raw(place(full), part)
    return full


# -- the general view ---------------------------------------------------------------------------------------------------


def _as_strided_backward(
    g: Tensor, size: Any, stride: Any, storage_offset: Any, input_shape: Any, input_strides: Any, input_offset: int
) -> Any:
    """Sum the gradient back to the memory cells, then read them through the input's own geometry."""
    offset = input_offset if storage_offset is None else storage_offset
    low = min(offset, input_offset)
    high = max(memory_span(size, stride, offset)[1], memory_span(input_shape, input_strides, input_offset)[1])
    if _may_repeat(size, stride):
        where = cell_numbers(size, stride, offset - low)
        cells = g.new_zeros((max(high - low, 1),)).index_add(0, where.reshape(-1), g.reshape(-1))  # type: ignore[attr-defined]
    else:
        cells = spread(g, (max(high - low, 1),), lambda t: t.as_strided(size, stride, offset - low))
    if _may_repeat(input_shape, input_strides):  # several input elements share a cell: each gets an equal part
        own = cell_numbers(input_shape, input_strides, input_offset - low).reshape(-1)
        count = g.new_zeros((max(high - low, 1),)).index_add(0, own, g.new_ones((own.numel(),)))  # type: ignore[attr-defined]
        cells = cells / count.clamp(min=1)
    return cells.as_strided(input_shape, input_strides, input_offset - low)


def _may_repeat(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two indices may name one cell: false only when each stride is larger than all faster ones span."""
    reach = 0
    for stride, n in sorted((s, n) for n, s in zip(shape, strides) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (n - 1)
    return False


def cell_numbers(shape: Any, strides: Any, offset: int) -> Any:
    """The memory cell of every element, as an int64 tensor of that shape."""
    span = memory_span(shape, strides, offset)[1]
    return copy_of_array(np.arange(span), dt.int64)._view(shape, strides, offset).contiguous()  # type: ignore[attr-defined]


@view(grads={"input": _as_strided_backward})
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view with any shape, strides and offset that stay inside the storage."""
    return input._view(*strided_geometry(input, size, stride, storage_offset, "as_strided"))


def strided_geometry(input: Tensor, size: Any, stride: Any, offset: Any, name: str) -> tuple[Size, tuple[int, ...], int]:
    shape, strides = as_ints(size, name, "size", 2), as_ints(stride, name, "stride", 3)
    if len(shape) != len(strides):
        raise RuntimeError(f"mismatch in length of strides and shape: got {len(shape)} sizes and {len(strides)} strides")
    if any(n < 0 for n in shape):
        raise RuntimeError(f"{name}: sizes must be non-negative, got {list(shape)}")
    if any(s < 0 for s in strides):
        raise RuntimeError(f"{name}: Negative strides are not supported at the moment, got strides: {list(strides)}")
    start = input._offset if offset is None else as_int(offset, name, "storage_offset", 4)
    check_bounds(input._storage, shape, strides, start, input.dtype)
    return make_size(shape), tuple(strides), start


# -- reshaping ----------------------------------------------------------------------------------------------------------


def infer_shape(shape: tuple[int, ...], numel: int) -> tuple[int, ...]:
    """Replace one -1 by what makes the element count fit."""
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
            f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension size -1 can be"
            " any value and is ambiguous"
        )
    if numel % known:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
    return (*shape[:unknown], numel // known, *shape[unknown + 1 :])


_VIEW_STRIDES: dict[tuple, tuple[int, ...] | None] = {}


def view_strides(shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides that show the same elements as `target`, or None if only a copy can."""
    key = (shape, strides, target)
    try:
        return _VIEW_STRIDES[key]
    except KeyError:
        if len(_VIEW_STRIDES) > 10000:
            _VIEW_STRIDES.clear()
        found = _VIEW_STRIDES[key] = _find_view_strides(shape, strides, target)
        return found


def _find_view_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Walk from the last dimension: each maximal run of dimensions that is contiguous in itself must be covered exactly
    by a run of target dimensions."""
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


@geometry_view(backward=lambda g, shape, size: g.reshape(shape), label="ViewBackward0", function=False, method=False)
def view_shape(input: Tensor, size: tuple[int, ...]) -> tuple:
    """`input` seen as `size` (one of which may be -1), which must be possible without a copy."""
    shape = infer_shape(size, numel_of(input.shape))
    strides = view_strides(input.shape, input._strides, shape)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two"
            " contiguous subspaces). Use .reshape(...) instead."
        )
    return shape, strides, input._offset


@view(label="ViewBackward0", function=False, method=False)
def view_dtype(input: Tensor, d: dtype) -> Tensor:
    """The same bytes read as another dtype; the last dimension shrinks or grows with the element size."""
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
            f"self.dim() cannot be 0 to view {_word(input.dtype)} as {_word(d)} (different element sizes)"
        )
    if input._strides[-1] != 1 and input.shape[-1] != 1:
        raise RuntimeError(
            f"self.stride(-1) must be 1 to view {_word(input.dtype)} as {_word(d)} (different element sizes), but got"
            f" {input._strides[-1]}"
        )
    if new > old:
        ratio = new // old
        for what, values in (("self.size(-1)", (input.shape[-1],)), ("self.storage_offset()", (input._offset,))):
            if values[0] % ratio:
                raise RuntimeError(
                    f"{what} must be divisible by {ratio} to view {_word(input.dtype)} as {_word(d)} (different element"
                    f" sizes), but got {values[0]}"
                )
        for i, s in enumerate(input._strides[:-1]):
            if s % ratio:
                raise RuntimeError(
                    f"self.stride({i}) must be divisible by {ratio} to view {_word(input.dtype)} as {_word(d)} (different"
                    f" element sizes), but got {s}"
                )


def _word(d: dtype) -> str:
    return (d.legacy_name or d.name).replace("Tensor", "")


@composite(function=False, name="view")
def view_(self: Tensor, *shape: Any, dtype: Any = None, size: Any = None) -> Tensor:
    """Another shape (or dtype) of the same memory."""
    if size is not None:
        shape = (size,)
    kind = shape[0] if len(shape) == 1 and isinstance(shape[0], dt.dtype) else dtype
    if kind is not None:
        return view_dtype(self, kind)
    if not shape:
        raise TypeError(
            "view() received an invalid combination of arguments - got (), but expected (torch.dtype dtype) or (tuple of ints"
            " size)"
        )
    return view_shape(self, varargs_ints(shape, "view"))


@composite(function=False)
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """view with another tensor's shape."""
    return view_shape(self, other.shape)


@primitive(
    grads={"input": lambda g, input_shape: g.reshape(input_shape)},
    label="UnsafeViewBackward0",
    function=False,
    method=False,
    name="_unsafe_view",
)
def unsafe_view(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A view of a fresh copy that nobody else holds, so it counts as a tensor of its own."""
    t = input._view(make_size(shape), contiguous_strides(shape), input._offset)
    t._base = None
    return t


_RESHAPES: dict[tuple, tuple[tuple[int, ...], bool]] = {}


def reshaped(input: Tensor, size: tuple[int, ...]) -> Tensor:
    key = (input.shape, input._strides, size)
    known = _RESHAPES.get(key)
    if known is None:
        target = infer_shape(size, numel_of(input.shape))
        if len(_RESHAPES) > 20000:
            _RESHAPES.clear()
        known = _RESHAPES[key] = (target, view_strides(input.shape, input._strides, target) is not None)
    target, is_view = known
    return view_shape(input, target) if is_view else unsafe_view(input.contiguous(), target)  # type: ignore[attr-defined]


@composite
def reshape(input: Tensor, *shape: Any, **named: Any) -> Tensor:
    """Another shape: a view where possible, else a copy."""
    if named or not shape:
        shape = collected(shape, named, "shape", "reshape")
    return reshaped(input, varargs_ints(shape, "reshape", "shape", 2))


@composite(function=False)
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """reshape to another tensor's shape."""
    return reshaped(self, other.shape)


@composite
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dimensions from start_dim to end_dim merged into one."""
    n = len(input.shape)
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
    """One dimension split into several."""
    parts = as_ints(sizes, "unflatten", "sizes", 3)
    d = wrap_dim(dim, len(input.shape))
    if not parts:
        raise RuntimeError("unflatten: sizes must be non-empty")
    if not input.shape:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    size = input.shape[d]
    if parts.count(-1) > 1:
        raise RuntimeError("only one dimension can be inferred")
    known = numel_of([p for p in parts if p != -1])  # type: ignore[arg-type]
    fits = known == size if -1 not in parts else known != 0 and size % known == 0
    if not fits:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(parts)} don't multiply up to the size of dim {d} ({size}) in the input tensor"
        )
    return view_shape(input, (*input.shape[:d], *infer_shape(parts, size), *input.shape[d + 1 :]))


@composite
def ravel(input: Tensor) -> Tensor:
    """All elements as one vector, copied only if needed."""
    return view_shape(input.contiguous(), (numel_of(input.shape),))  # type: ignore[attr-defined]


# -- reordering dimensions ----------------------------------------------------------------------------------------------


def _inverse(dims: tuple[int, ...]) -> tuple[int, ...]:
    inverse = [0] * len(dims)
    for i, d in enumerate(dims):
        inverse[d] = i
    return tuple(inverse)


@geometry_view(
    backward=lambda g, shape, dims: permute_dims(g, _inverse(tuple([d % len(shape) for d in dims]))),
    label="PermuteBackward0",
    function=False,
    method=False,
)
def permute_dims(input: Tensor, dims: tuple[int, ...]) -> tuple:
    n = len(input.shape)
    if len(dims) != n:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering"
            f" of dimensions i.e. input.dim() = {n} is not equal to len(dims) = {len(dims)}"
        )
    order = [wrap_dim(d, n) for d in dims]
    if len(set(order)) != n:
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return [input.shape[d] for d in order], [input._strides[d] for d in order], input._offset


@composite
def permute(input: Tensor, *dims: Any, **named: Any) -> Tensor:
    """Dimensions in another order."""
    if named or not dims:
        dims = collected(dims, named, "dims", "permute") if named or input.shape else ((),)
    return permute_dims(input, varargs_ints(dims, "permute", "dims", 2))


def _listed(dims: Any, name: str, argument: str) -> tuple[int, ...]:
    return (int(dims),) if is_int(dims) else as_ints(dims, name, argument, 2)


@composite(aliases=("moveaxis",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions moved to new places, the others in their order."""
    sources, targets = _listed(source, "movedim", "source"), _listed(destination, "movedim", "destination")
    n = len(input.shape)
    if len(sources) != len(targets):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(sources)} dims) should contain the same number of"
            f" dims as destination ({list(targets)} dims)"
        )
    old, new = [wrap_dim(d, n) for d in sources], [wrap_dim(d, n) for d in targets]
    for name, wrapped, given in (("source", old, sources), ("destination", new, targets)):
        if len(set(wrapped)) != len(wrapped):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(given)})")
    if n == 0:
        return permute_dims(input, ())
    order = [-1] * n
    for a, b in zip(old, new):
        order[b] = a
    rest = iter([d for d in range(n) if d not in old])
    return permute_dims(input, tuple([next(rest) if d < 0 else d for d in order]))


@geometry_view(backward=lambda g, shape, dim0, dim1: g.transpose(dim0, dim1))
def transpose(input: Tensor, dim0: int, dim1: int) -> tuple:
    """Two dimensions exchanged."""
    return swapped(input, dim0, dim1)


def _swap_alias(name: str, first: str, second: str) -> None:
    """The same operator with NumPy's argument names."""

    def alias(input: Tensor, *args: Any, **named: Any) -> Tensor:
        given = dict(zip((first, second), args), **named)
        return transpose(input, given.pop(first), given.pop(second), **given)

    composite(alias, name=name)


_swap_alias("swapaxes", "axis0", "axis1")
_swap_alias("swapdims", "dim0", "dim1")


def swapped(input: Tensor, dim0: int, dim1: int) -> tuple[Size, tuple[int, ...], int]:
    n = len(input.shape)
    a, b = wrap_dim(dim0, n), wrap_dim(dim1, n)
    shape, strides = list(input.shape), list(input._strides)
    if n:
        shape[a], shape[b] = shape[b], shape[a]
        strides[a], strides[b] = strides[b], strides[a]
    return make_size(shape), tuple(strides), input._offset


@geometry_view(backward=lambda g, shape: g.t(), label="TBackward0")
def t(input: Tensor) -> tuple:
    """The transpose of a matrix; vectors and scalars as they are."""
    if len(input.shape) > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {len(input.shape)}D")
    return input.shape[::-1], input._strides[::-1], input._offset


@composite
def adjoint(input: Tensor) -> Tensor:
    """The conjugate transpose of matrices."""
    if len(input.shape) < 2:
        raise RuntimeError(
            f"tensor.adjoint() is only supported on matrices or batches of matrices. Got {len(input.shape)}-D tensor."
        )
    flipped = transpose(input, -2, -1)
    return flipped.conj() if input.dtype.is_complex else flipped


# -- size-one dimensions and broadcasting -------------------------------------------------------------------------------


@geometry_view(
    backward=lambda g, shape, size: g.sum_to_size(shape), label="ExpandBackward0", function=False, method=False
)
def expand_to(input: Tensor, size: tuple[int, ...]) -> tuple:
    shape = expanded_shape(input, list(size))
    shift = len(shape) - len(input.shape)
    strides = []
    for have, want, stride in zip(input.shape, shape[shift:], input._strides):
        strides.append(0 if have == 1 and want != 1 else stride)
    lead: list[int] = []
    for i in range(shift - 1, -1, -1):  # a new dimension of size one is laid out as if it had been there
        following = (shape[i + 1], (lead[0] if lead else strides[0])) if i + 1 < len(shape) else (1, 1)
        lead.insert(0, 0 if shape[i] != 1 else following[0] * following[1])
    return shape, (*lead, *strides), input._offset


@composite(function=False)
def expand(self: Tensor, *size: Any, implicit: bool = False, **named: Any) -> Tensor:
    """Size-one dimensions repeated without copying; -1 keeps a dimension."""
    if named or not size:
        size = collected(size, named, "size", "expand") if named or self.shape else ((),)
    return expand_to(self, varargs_ints(size, "expand"))


def expanded_shape(self: Tensor, sizes: list[int]) -> tuple[int, ...]:
    shift = len(sizes) - len(self.shape)
    if shift < 0:
        raise RuntimeError(
            f"expand({self.type()}{{{list(self.shape)}}}, size={sizes}): the number of sizes provided ({len(sizes)}) must be"  # type: ignore[attr-defined]
            f" greater or equal to the number of dimensions in the tensor ({len(self.shape)})"
        )
    for i, n in enumerate(sizes):
        if i < shift:
            if n < 0:
                raise RuntimeError(
                    f"The expanded size of the tensor ({n}) isn't allowed in a leading, non-existing dimension {i}"
                )
            continue
        have = self.shape[i - shift]
        if n == -1:
            sizes[i] = have
        elif n != have and (have != 1 or n < 0):
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) must match the existing size ({have}) at non-singleton dimension"
                f" {i}.  Target sizes: {sizes}.  Tensor sizes: {list(self.shape)}"
            )
    return tuple(sizes)


@composite(function=False)
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """expand to another tensor's shape."""
    return expand_to(self, other.shape)


@composite
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """expand to `size`."""
    return expand_to(input, as_ints(size, "broadcast_to", "size", 2))


@composite(method=False)
def broadcast_tensors(*tensors: Any) -> tuple:
    """All tensors expanded to their common shape."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    for i, x in enumerate(given):
        if not isinstance(x, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type_name(x)}")
    shape = broadcast(*[x.shape for x in given])
    return tuple(x if x.shape == shape else expand_to(x, shape) for x in given)


@composite(method=False)
def broadcast_shapes(*shapes: Any) -> Size:
    """The shape operands of these shapes broadcast to."""
    sizes = []
    for s in shapes:
        s = (int(s),) if is_int(s) else as_ints(s, "broadcast_shapes", "shapes", 1)
        if any(n < 0 for n in s):
            raise RuntimeError(f"Trying to create tensor with negative dimension ({min(s)}): ({min(s)})")
        sizes.append(s)
    try:
        return make_size(broadcast(*sizes))
    except RuntimeError:
        raise RuntimeError(
            "Shape mismatch: objects cannot be broadcast to a single shape, got " + ", ".join(str(list(s)) for s in sizes)
        ) from None


def _unsqueeze_backward(g: Tensor, shape: Size, dim: int) -> Any:
    return squeeze_one(g, dim if dim >= 0 else dim + len(shape) + 1)


@geometry_view(backward=_unsqueeze_backward)
def unsqueeze(input: Tensor, dim: int) -> tuple:
    """A new dimension of size one."""
    return unsqueezed(input, dim)


def unsqueezed(input: Tensor, dim: int) -> tuple[Size, tuple[int, ...], int]:
    n = len(input.shape) + 1
    d = wrap_dim(dim, n)
    stride = input.shape[d] * input._strides[d] if d < n - 1 else 1
    shape = (*input.shape[:d], 1, *input.shape[d:])
    return make_size(shape), (*input._strides[:d], stride, *input._strides[d:]), input._offset


def squeezed(input: Tensor, dims: tuple[int, ...]) -> tuple[Size, tuple[int, ...], int]:
    keep = [i for i, n in enumerate(input.shape) if n != 1 or i not in dims]
    return make_size([input.shape[i] for i in keep]), tuple([input._strides[i] for i in keep]), input._offset


def _squeeze_view(number: int, dims_of: Any) -> Any:
    def squeeze_dims(input: Tensor, *dim: Any) -> tuple:
        return squeezed(input, dims_of(input, *dim))

    label = f"SqueezeBackward{number}"
    backward = lambda g, shape, *dim: g.reshape(shape)  # noqa: E731
    return geometry_view(squeeze_dims, backward=backward, label=label, function=False, method=False, name="_" + label)


squeeze_all = _squeeze_view(0, lambda input: range(len(input.shape)))
squeeze_one = _squeeze_view(1, lambda input, dim: (wrap_dim(dim, len(input.shape)),))
squeeze_some = _squeeze_view(2, lambda input, dims: squeeze_argument(dims, len(input.shape)))


def squeeze_argument(dim: Any, n: int) -> tuple[int, ...]:
    """The dimensions `dim` names: None means all, an int or several ints those."""
    if dim is None:
        return tuple(range(n))
    if is_int(dim):
        return (wrap_dim(int(dim), n),)
    dims = tuple([wrap_dim(d, n) for d in as_ints(dim, "squeeze", "dim", 2)])
    if len(set(dims)) != len(dims):
        repeated = next(d for d in dims if dims.count(d) > 1)
        raise RuntimeError(f"dim {repeated} appears multiple times in the list of dims")
    return dims


@composite
def squeeze(input: Tensor, *dim: Any, **named: Any) -> Tensor:
    """Without its size-one dimensions (all, or the given ones)."""
    which = named.pop("dim", None) if not dim else (dim[0] if len(dim) == 1 else dim)
    if named:
        raise TypeError(f"squeeze() got an unexpected keyword argument '{next(iter(named))}'")
    if which is None:
        return squeeze_all(input)
    return squeeze_one(input, int(which)) if is_int(which) else squeeze_some(input, as_ints(which, "squeeze", "dim", 2))


def _at_least(tensors: tuple, raise_one: Any, name: str) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return raise_one(tensors[0])
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    for i, x in enumerate(given):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): argument 'tensors' must be tuple of Tensors, but found element of type {type_name(x)} at pos {i}")
    return tuple(raise_one(x) for x in given)


@composite(method=False)
def atleast_1d(*tensors: Any) -> Any:
    """Scalars become vectors."""
    return _at_least(tensors, lambda x: view_shape(x, (1,)) if not x.shape else x, "atleast_1d")


@composite(method=False)
def atleast_2d(*tensors: Any) -> Any:
    """Vectors become rows."""

    def raise_one(x: Tensor) -> Tensor:
        if not x.shape:
            return view_shape(x, (1, 1))
        return unsqueeze(x, 0) if len(x.shape) == 1 else x

    return _at_least(tensors, raise_one, "atleast_2d")


@composite(method=False)
def atleast_3d(*tensors: Any) -> Any:
    """Matrices get a third dimension behind."""

    def raise_one(x: Tensor) -> Tensor:
        if not x.shape:
            return view_shape(x, (1, 1, 1))
        if len(x.shape) == 1:
            return unsqueeze(unsqueeze(x, 0), -1)
        return unsqueeze(x, -1) if len(x.shape) == 2 else x

    return _at_least(tensors, raise_one, "atleast_3d")


# -- one index, one range -----------------------------------------------------------------------------------------------


def _select_backward(g: Tensor, shape: Size, dim: int, index: int) -> Any:
    return spread(g, shape, lambda t: t.select(dim, index))


def _without(input: Tensor, d: int) -> tuple:
    return (*input.shape[:d], *input.shape[d + 1 :]), (*input._strides[:d], *input._strides[d + 1 :]), input._offset


_select = ViewOp("select", _without, _select_backward, "SelectBackward0")


@composite(kind="view")
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One index of a dimension, which disappears."""
    n = len(input.shape)
    if n == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = dim if 0 <= dim < n else wrap_dim(dim, n)
    i = index if type(index) is int else index.__index__()
    size = input.shape[d]
    if not -size <= i < size:
        raise IndexError(f"select(): index {i} out of range for tensor of size {list(input.shape)} at dimension {d}")
    if i < 0:
        i += size
    return _select.place(input, (d,), (d, i), i * input._strides[d])


def _slice_backward(g: Tensor, shape: Size, dim: int, start: int, stop: int, step: int) -> Any:
    return spread(g, shape, lambda t: slice_dim(t, dim, start, stop, step))


def _sliced(input: Tensor, dim: int, count: int, step: int) -> tuple:
    shape = (*input.shape[:dim], count, *input.shape[dim + 1 :])
    strides = (*input._strides[:dim], input._strides[dim] * step, *input._strides[dim + 1 :])
    return shape, strides, input._offset


_slice = ViewOp("slice", _sliced, _slice_backward, "SliceBackward0")


@composite(kind="view", function=False, method=False)
def slice_dim(input: Tensor, dim: int, start: int, stop: int, step: int = 1) -> Tensor:
    """input[..., start:stop:step, ...] with 0 <= start <= stop <= size already settled."""
    count = max(0, (stop - start + step - 1) // step)
    return _slice.place(input, (dim, count, step), (dim, start, stop, step), start * input._strides[dim])
