"""Views with other dimensions: permute, transpose, expand, squeeze, select, slice."""

from __future__ import annotations

import operator
from typing import Any

from ...core.layout import broadcast_shapes as broadcast
from ...core.layout import wrap_dim
from ...core.size import Size, make_size
from ...core.tensor import Tensor
from ...core.typenames import type_name
from ..machinery.arguments import as_ints, collected, is_int, varargs_ints
from ..machinery.aten_form import aten_only, aten_parts
from ..machinery.declare import composite
from ..machinery.quirks import Quirks
from ..machinery.record import Batched
from ..machinery.view_op import ViewOp, geometry_view
from .reshape import view_shape
from .strided import spread

# -- reordering dimensions ------------------------------------------------------------------------------------------


def _inverse(dims: tuple[int, ...]) -> tuple[int, ...]:
    inverse = [0] * len(dims)
    for i, d in enumerate(dims):
        inverse[d] = i
    return tuple(inverse)


def permutation(dims: tuple[int, ...], n: int) -> list[int]:
    """Return a new order of n dimensions, checked."""
    if len(dims) != n:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired"
            f" ordering of dimensions i.e. input.dim() = {n} is not equal to len(dims) = {len(dims)}"
        )
    order = [wrap_dim(d, n) for d in dims]
    if len(set(order)) != n:
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return order


@geometry_view(
    backward=lambda g, shape, dims: permute_dims(g, _inverse(tuple([d % len(shape) for d in dims]))),
    quirks=Quirks(label="PermuteBackward0"),
    function=False,
    method=False,
)
def permute_dims(input: Tensor, dims: tuple[int, ...]) -> tuple[Any, ...]:
    order = permutation(dims, len(input.shape))
    return [input.shape[d] for d in order], [input._strides[d] for d in order], input._offset


@permute_dims.op.as_aten
def _(recorder: Any, input: Tensor, dims: Any) -> Tensor:
    if list(dims) == list(range(input.dim() - 1, -1, -1)):
        return recorder.aten.numpy_T.default(input)
    return recorder.aten.permute.default(input, list(dims))


@composite
def permute(input: Tensor, *dims: Any, **named: Any) -> Tensor:
    """Return a view with its dimensions in the given order."""
    if named or not dims:
        dims = collected(dims, named, "dims", "permute") if named or input.shape else ((),)
    return permute_dims(input, varargs_ints(dims, "permute", "dims", 2))


def _listed(dims: Any, name: str, argument: str) -> tuple[int, ...]:
    return (int(dims),) if is_int(dims) else as_ints(dims, name, argument, 2)


@composite(aliases=("moveaxis",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """A view with dimensions moved to new places, the others in their order."""
    sources, targets = _listed(source, "movedim", "source"), _listed(destination, "movedim", "destination")
    n = len(input.shape)
    if len(sources) != len(targets):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(sources)} dims) should contain the same"
            f" number of dims as destination ({list(targets)} dims)"
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


@geometry_view(
    backward=lambda g, shape, dim0, dim1: g.transpose(dim0, dim1), batching=Batched("along", dims=("dim0", "dim1"))
)
def transpose(input: Tensor, dim0: int, dim1: int) -> tuple[Any, ...]:
    """Return a view with two dimensions exchanged."""
    return swapped(input, dim0, dim1)


@aten_parts("transpose.int")
def _(aten: Any, self: Tensor, dim0: int, dim1: int) -> Tensor:
    dims = list(range(self.dim()))
    dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return aten.permute.default(self, dims)


@composite
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """A view with two dimensions exchanged; NumPy's name."""
    return transpose(input, axis0, axis1)


@composite
def swapdims(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Return a view with two dimensions exchanged."""
    return transpose(input, dim0, dim1)


def swapped(input: Tensor, dim0: int, dim1: int) -> tuple[Size, tuple[int, ...], int]:
    n = len(input.shape)
    a, b = wrap_dim(dim0, n), wrap_dim(dim1, n)
    shape, strides = list(input.shape), list(input._strides)
    if n:
        shape[a], shape[b] = shape[b], shape[a]
        strides[a], strides[b] = strides[b], strides[a]
    return make_size(shape), tuple(strides), input._offset


@geometry_view(backward=lambda g, shape: g.t(), quirks=Quirks(label="TBackward0"))
def t(input: Tensor) -> tuple[Any, ...]:
    """The transpose of a matrix; vectors and scalars unchanged."""
    if len(input.shape) > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {len(input.shape)}D")
    return input.shape[::-1], input._strides[::-1], input._offset


aten_parts("t")(lambda aten, self: aten.permute.default(self, [1, 0]) if self.dim() == 2 else self)


@composite
def adjoint(input: Tensor) -> Tensor:
    """The conjugate transpose of matrices."""
    if len(input.shape) == 1:
        raise RuntimeError(
            f"tensor.adjoint() is only supported on matrices or batches of matrices. Got {len(input.shape)}-D tensor."
        )
    flipped = transpose(input, -2, -1) if input.shape else input
    return flipped.conj() if input.dtype.is_complex else flipped


# -- size-one dimensions and broadcasting --------------------------------------------------------------------------


@geometry_view(
    backward=lambda g, shape, size: g.sum_to_size(shape),
    quirks=Quirks(label="ExpandBackward0"),
    function=False,
    method=False,
    sharding="expand",
    aten="expand(input, list(size))",
)
def expand_to(input: Tensor, size: tuple[int, ...]) -> tuple[Any, ...]:
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
    """A view with size-one dimensions repeated without copying; -1 keeps a dimension."""
    if named or not size:
        size = collected(size, named, "size", "expand") if named or self.shape else ((),)
    return expand_to(self, varargs_ints(size, "expand"))


def expanded_shape(self: Tensor, sizes: list[int]) -> tuple[int, ...]:
    shift = len(sizes) - len(self.shape)
    if shift < 0:
        raise RuntimeError(
            f"expand({self.type()}{{{list(self.shape)}}}, size={sizes}): the number of sizes provided ({len(sizes)})"
            f" must be greater or equal to the number of dimensions in the tensor ({len(self.shape)})"
        )
    for i, n in reversed(list(enumerate(sizes))):
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
                f"The expanded size of the tensor ({n}) must match the existing size ({have}) at non-singleton"
                f" dimension {i}.  Target sizes: {sizes}.  Tensor sizes: {list(self.shape)}"
            )
    return tuple(sizes)


@composite(function=False)
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """A view expanded to another tensor's shape."""
    return expand_to(self, other.shape)


@composite
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """Return a view expanded to `size`."""
    return expand_to(input, as_ints(size, "broadcast_to", "size", 2))


@composite(method=False)
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
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
    result: tuple[int, ...] = ()
    for i, given in enumerate(shapes):
        if not is_int(given) and not isinstance(given, (tuple, list)):
            raise RuntimeError(f"Input shapes should be of type ints, a tuple of ints, or a list of ints, got {given}")
        shape = (int(given),) if is_int(given) else as_ints(given, "broadcast_shapes", "shapes", i + 1)
        if any(n < 0 for n in shape):
            raise ValueError(f"Attempting to broadcast a dimension with negative length! Got {list(shape)}")
        try:
            result = broadcast(result, shape)
        except RuntimeError:
            raise RuntimeError(
                f"Attempting to broadcast shapes that do not fit! Mismatching argument at index {i} had {shape}; but"
                f" expected shape should be broadcastable to {list(result)}"
            ) from None
    return make_size(result)


def _unsqueeze_backward(g: Tensor, shape: Size, dim: int) -> Any:
    return squeeze_one(g, dim if dim >= 0 else dim + len(shape) + 1)


@geometry_view(backward=_unsqueeze_backward, batching=Batched("along", extra=1))
def unsqueeze(input: Tensor, dim: int) -> tuple[Any, ...]:
    """Return a view with a new dimension of size one."""
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


def _squeeze_view(number: int, dims_of: Any, aten: str) -> Any:
    def squeeze_dims(input: Tensor, *dim: Any) -> tuple[Any, ...]:
        return squeezed(input, dims_of(input, *dim))

    label = f"SqueezeBackward{number}"
    return geometry_view(
        squeeze_dims,
        backward=lambda g, shape, *dim: g.reshape(shape),
        quirks=Quirks(label=label),
        function=False,
        method=False,
        name="_" + label,
        sharding="squeeze",
        aten=aten,
    )


squeeze_all = _squeeze_view(0, lambda input: range(len(input.shape)), "squeeze(input)")
squeeze_one = _squeeze_view(1, lambda input, dim: (wrap_dim(dim, len(input.shape)),), "squeeze.dim(input, *dim)")
squeeze_some = _squeeze_view(
    2, lambda input, dims: squeeze_argument(dims, len(input.shape)), "squeeze.dims(input, *dim)"
)


def squeeze_argument(dim: Any, n: int) -> tuple[int, ...]:
    """Return the dimensions that `dim` names: None means all, else an int or several ints."""
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
    """Remove size-one dimensions (all, or the given ones)."""
    which: Any = named.pop("dim", None) if not dim else (dim[0] if len(dim) == 1 else dim)
    if named:
        raise TypeError(f"squeeze() got an unexpected keyword argument '{next(iter(named))}'")
    if which is None:
        return squeeze_all(input)
    return squeeze_one(input, int(which)) if is_int(which) else squeeze_some(input, as_ints(which, "squeeze", "dim", 2))


aten_parts("squeeze.dim")(lambda aten, self, dim: aten.squeeze.dims(self, [dim]))


def _at_least(tensors: tuple[Any, ...], raise_one: Any, name: str) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return raise_one(tensors[0])
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    for i, x in enumerate(given):
        if not isinstance(x, Tensor):
            raise TypeError(
                f"{name}(): argument 'tensors' must be tuple of Tensors, but found element of type {type_name(x)} at"
                f" pos {i}"
            )
    return tuple(raise_one(x) for x in given)


@composite(method=False)
def atleast_1d(*tensors: Any) -> Tensor | tuple[Tensor, ...]:
    """Return tensors with at least one dimension: scalars become vectors."""
    return _at_least(tensors, lambda x: view_shape(x, (1,)) if not x.shape else x, "atleast_1d")


@composite(method=False)
def atleast_2d(*tensors: Any) -> Tensor | tuple[Tensor, ...]:
    """Return tensors with at least two dimensions: vectors become rows."""

    def raise_one(x: Tensor) -> Tensor:
        if not x.shape:
            return view_shape(x, (1, 1))
        return unsqueeze(x, 0) if len(x.shape) == 1 else x

    return _at_least(tensors, raise_one, "atleast_2d")


@composite(method=False)
def atleast_3d(*tensors: Any) -> Tensor | tuple[Tensor, ...]:
    """Return tensors with at least three dimensions: matrices get a third one at the end."""

    def raise_one(x: Tensor) -> Tensor:
        if not x.shape:
            return view_shape(x, (1, 1, 1))
        if len(x.shape) == 1:
            return unsqueeze(unsqueeze(x, 0), -1)
        return unsqueeze(x, -1) if len(x.shape) == 2 else x

    return _at_least(tensors, raise_one, "atleast_3d")


# -- one index, one range ------------------------------------------------------------------------------------------


@aten_only("select_backward")
def _select_backward(g: Tensor, shape: Size, dim: int, index: int) -> Any:
    return spread(g, shape, lambda t: t.select(dim, index), ("select_backward", dim, index))


def _without(input: Tensor, d: int) -> tuple[Any, ...]:
    return (*input.shape[:d], *input.shape[d + 1 :]), (*input._strides[:d], *input._strides[d + 1 :]), input._offset


_select = ViewOp("select", _without, _select_backward, "SelectBackward0")


@composite(kind="view", batching=Batched("along", repeat=False))
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The part at an index of a dimension, which is removed."""
    n = len(input.shape)
    if n == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = dim if 0 <= dim < n else wrap_dim(dim, n)
    i = index if type(index) is int else operator.index(index)
    size = input.shape[d]
    if not -size <= i < size:
        raise IndexError(f"select(): index {i} out of range for tensor of size {list(input.shape)} at dimension {d}")
    return _select.place(input, (d,), (dim, i), (i + size if i < 0 else i) * input._strides[d])


def _slice_backward(g: Tensor, shape: Size, dim: int, start: int, stop: int, step: int) -> Any:
    first, last = _bounds(shape[dim], start, stop)
    named = ("slice_backward", dim, first or 0, last, step)
    return spread(g, shape, lambda t: slice_dim(t, dim, start, stop, step), named)


def _bounds(length: int, start: Any, stop: Any) -> tuple[Any, int]:
    """Return the bounds of a slice as the program wrote them, in PyTorch's notation."""
    if hasattr(stop, "given"):  # bounds that know what the program wrote
        first = 0 if start.given is None and type(stop.given) in (int, type(None)) else start.given
        return first, _NO_END if stop.given is None else stop.given
    return start, _NO_END if stop == length else stop


def _sliced(input: Tensor, dim: int, count: int, step: int) -> tuple[Any, ...]:
    shape = (*input.shape[:dim], count, *input.shape[dim + 1 :])
    strides = (*input._strides[:dim], input._strides[dim] * step, *input._strides[dim + 1 :])
    return shape, strides, input._offset


_slice = ViewOp("slice", _sliced, _slice_backward, "SliceBackward0")


_NO_END = 2**63 - 1  # how PyTorch writes a slice without an end


@composite(kind="view", function=False, method=False, batching=Batched("along", repeat=False), aten="slice")
def slice_dim(input: Tensor, dim: int, start: int, stop: int, step: int = 1) -> Tensor:
    """input[..., start:stop:step, ...] with 0 <= start <= stop <= size already ensured."""
    count = max(0, (stop - start + step - 1) // step)
    return _slice.place(input, (dim, count, step), (dim, start, stop, step), start * input._strides[dim])


@slice_dim.op.as_aten
def _(recorder: Any, input: Tensor, dim: int, start: Any, stop: Any, step: int = 1) -> Tensor:
    return recorder.aten.slice.Tensor(input, dim, *_bounds(input.size(dim), start, stop), step)
