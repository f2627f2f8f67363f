"""Sources of the elements of each dimension of a view, as dimensions of its argument."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]


# -- dim maps -----------------------------------------------------------------------------------------------------------------------


@dataclass
class DimSpec:
    """Source of the elements of one dimension of a view."""

    def inputs(self) -> Iterable[DimSpec]:
        """Return the dimensions from which it is composed."""
        return ()


DimMap = tuple[DimSpec, ...]


@dataclass
class Singleton(DimSpec):
    """A dimension of size one."""


@dataclass(eq=False)
class InputDim(DimSpec):
    """Unchanged dimension of the argument."""

    input_dim: int

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DimSpec):
            # A number next to it would be a silent mistake.
            raise TypeError(f"Cannot compare InputDim with {type(other).__name__}. Did you mean to use .input_dim?")
        return isinstance(other, InputDim) and self.input_dim == other.input_dim

    def __hash__(self) -> int:
        return hash((InputDim, self.input_dim))


@dataclass
class Broadcast(DimSpec):
    """A dimension of size one, expanded to `dim_size`."""

    dim: DimSpec
    dim_size: int

    @classmethod
    def new(cls, dim: DimSpec, dim_size: int) -> DimSpec:
        return cls(dim, dim_size)

    def inputs(self) -> Iterable[DimSpec]:
        return (self.dim,)


@dataclass
class NewDim(DimSpec):
    """A dimension of size one that is inserted into the result."""

    size: int

    @classmethod
    def new(cls, size: int) -> DimSpec:
        return Singleton() if size == 1 else cls(size)


@dataclass
class Repeat(DimSpec):
    """A dimension repeated several times."""

    input_dim: DimSpec
    times: int

    @classmethod
    def new(cls, dim: DimSpec, times: int) -> DimSpec:
        if times == 1:
            return dim
        return Broadcast(dim, times) if isinstance(dim, Singleton) else cls(dim, times)

    def inputs(self) -> Iterable[DimSpec]:
        return (self.input_dim,)


@dataclass
class Flatten(DimSpec):
    """Dimension made of several; the last of them varies fastest."""

    input_dims: Sequence[DimSpec]

    @classmethod
    def new(cls, dims: Sequence[DimSpec]) -> DimSpec:
        if len(dims) < 2:
            return dims[0] if dims else Singleton()
        return cls(dims)

    def inputs(self) -> Iterable[DimSpec]:
        return self.input_dims


@dataclass
class Split(DimSpec):
    """Number `split_id` of the dimensions `group_shape` that a dimension is split into."""

    input_dim: DimSpec
    group_shape: Shape
    split_id: int

    @classmethod
    def new(cls, dim: DimSpec, group_shape: Shape, idx: int) -> DimSpec:
        if len(group_shape) == 1:
            return dim
        if group_shape[idx] == 1:
            return Singleton()
        before = sum(1 for n in group_shape[:idx] if n != 1)
        return cls(dim, tuple(n for n in group_shape if n != 1), before)

    def inputs(self) -> Iterable[DimSpec]:
        return (self.input_dim,)


def kept_dims(dims: Iterable[int]) -> DimMap:
    return tuple(InputDim(d) for d in dims)


def wrapped_dim(dim: int, ndim: int) -> int:
    return dim + ndim if dim < 0 else dim


def as_ints(sizes: Sequence[Any]) -> Shape:
    """Return sizes that were given one by one or as one sequence."""
    return tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else tuple(sizes)


def dim_pad_left(ndim: int, min_dims: int) -> DimMap:
    """Return the dim map that adds leading dimensions up to `min_dims`."""
    return (Singleton(),) * max(0, min_dims - ndim) + kept_dims(range(ndim))


def dim_atleast_3d(ndim: int) -> DimMap:
    """Return the dim map of `torch.atleast_3d`."""
    one = Singleton()
    short: tuple[DimMap, ...] = ((one, one, one), (one, InputDim(0), one), (InputDim(0), InputDim(1), one))
    return short[ndim] if ndim < 3 else kept_dims(range(ndim))


def expand(input_shape: Shape, shape: Shape) -> DimMap:
    """Return dimensions broadcast to a shape, in which -1 keeps a size."""
    if len(shape) < len(input_shape):
        raise AssertionError(f"a tensor of {len(input_shape)} dimensions cannot have {len(shape)}")
    found: list[DimSpec] = []
    for spec, wanted in zip(dim_pad_left(len(input_shape), len(shape)), shape):
        size = input_shape[spec.input_dim] if isinstance(spec, InputDim) else 1
        if isinstance(spec, InputDim) and size != 1 and wanted not in (-1, size):
            raise AssertionError(f"a dimension of size {size} cannot be expanded to {wanted}")
        found.append(spec if wanted in (1, -1, size) else Broadcast.new(spec, wanted))
    return tuple(found)


def dim_flatten(ndim: int, start_dim: int = 0, end_dim: int = -1) -> DimMap:
    """Return the dim map that joins the dimensions from `start_dim` to `end_dim`."""
    if ndim < 2:
        return kept_dims(range(ndim)) or (Singleton(),)
    end = wrapped_dim(end_dim, ndim)
    return (
        *kept_dims(range(start_dim)),
        Flatten.new(kept_dims(range(start_dim, end + 1))),
        *kept_dims(range(end + 1, ndim)),
    )


def dim_movedim(ndim: int, input: Any, destination: Any) -> DimMap:
    """Return dimensions with some moved to other places, the others in their order between them."""
    sources, places = (
        [wrapped_dim(d, ndim) for d in ((dims,) if isinstance(dims, int) else dims)] for dims in (input, destination)
    )
    if len(sources) != len(places) or len(set(sources)) < len(sources) or len(set(places)) < len(places):
        raise AssertionError(f"movedim: {sources} and {places} must be as many, and all different")
    at = dict(zip(places, sources))
    rest = iter(d for d in range(ndim) if d not in sources)
    return kept_dims(at[d] if d in at else next(rest) for d in range(ndim))


def dim_repeat(ndim: int, sizes: Sequence[Any]) -> DimMap:
    """Return dimensions repeated; additional sizes are new dimensions in front."""
    times = as_ints(sizes)
    new = len(times) - ndim
    if new < 0:
        raise AssertionError(
            f"Number of dimensions of repeat dims {times} can not be smaller than number of dimensions of tensor {ndim}."
        )
    return tuple(Repeat.new(InputDim(i - new) if i >= new else Singleton(), n) for i, n in enumerate(times))


def dim_tile(ndim: int, dims: Shape) -> DimMap:
    """Return the dim map of `tile`: `repeat` with leading ones if there are too few sizes."""
    return dim_repeat(ndim, (1,) * (ndim - len(dims)) + tuple(dims))


def dim_transpose(ndim: int, dim1: int, dim2: int) -> DimMap:
    """Return the dim map that exchanges two dimensions."""
    order = list(range(ndim))
    one, other = wrapped_dim(dim1, ndim), wrapped_dim(dim2, ndim)
    order[one], order[other] = other, one
    return kept_dims(order)


def dim_squeeze(shape: Shape, dim: Any = None) -> DimMap:
    """Return the dimensions without those of the given ones (or of all) that have size one."""
    given = range(len(shape)) if dim is None else (dim,) if isinstance(dim, int) else dim
    named = {wrapped_dim(d, len(shape)) for d in given}
    return kept_dims(i for i, n in enumerate(shape) if n != 1 or i not in named)


def dim_unsqueeze(ndim: int, dim: int) -> DimMap:
    """Return the dim map that adds a dimension of size one at `dim`."""
    kept, place = kept_dims(range(ndim)), wrapped_dim(dim, ndim + 1)
    return (*kept[:place], Singleton(), *kept[place:])


def dim_view_as_real(shape: Shape) -> DimMap:
    """Return the dimensions of complex numbers as pairs: a new last dimension of size two."""
    last = InputDim(len(shape) - 1)
    return (*kept_dims(range(len(shape) - 1)), *(Split(last, (shape[-1], 2), i) for i in range(2)))


def infer_size(total_size: int, sizes: Shape) -> Shape:
    """Return `sizes` with the -1 in it replaced so that they hold `total_size` elements."""
    known = math.prod(n for n in sizes if n != -1)
    if sizes.count(-1) > 1:
        raise AssertionError("can only infer one size")
    if -1 not in sizes:
        if known != total_size:
            raise RuntimeError(f"sizes do not match {total_size} vs {known}")
        return sizes
    if known == 0 or total_size % known:
        raise RuntimeError(f"size inferred for -1 is not integral {sizes} should have {total_size} elements.")
    return tuple(total_size // known if n == -1 else n for n in sizes)


def view_groups(from_size: Sequence[int], to_size: Sequence[Any]) -> DimMap:
    """Return the dim map of `view`: the shortest runs of dimensions of both shapes with equally many elements correspond.

    >>> view_groups([2, 3, 4], [2, 12])
    (InputDim(input_dim=0), Flatten(input_dims=(InputDim(input_dim=1), InputDim(input_dim=2))))
    """
    target = infer_size(math.prod(from_size), as_ints(to_size) if len(to_size) else ())
    found: list[DimSpec] = []
    for ins, outs in _runs(tuple(from_size), target):
        joined = Flatten.new(kept_dims(d for d in ins if from_size[d] >= 1))
        found += [Split.new(joined, outs, i) for i in range(len(outs))]
    return tuple(found)


def _runs(source: Shape, target: Shape) -> Iterator[tuple[list[int], Shape]]:
    """Yield dimensions of the argument, and sizes in the view, that correspond."""
    i = j = 0
    while i < len(source) or j < len(target):
        left = source[i] if i < len(source) else 1
        right = target[j] if j < len(target) else 1
        if left == 1 and right != 1:  # a one beside something else stands alone
            yield [i] if i < len(source) else [], ()
            i += 1
            if i > len(source):
                return
            continue
        if left != 1 and right == 1:
            yield [], (1,) if j < len(target) else ()
            j += 1
            if j > len(target):
                return
            continue
        ins, outs = [i] if i < len(source) else [], [right] if j < len(target) else []
        i, j = i + 1, j + 1
        while left != right:
            if i < len(source) and (j >= len(target) or right > left or (left and right % left == 0)):
                ins.append(i)
                left, i = left * source[i], i + 1
            elif j < len(target):
                outs.append(target[j])
                right, j = right * target[j], j + 1
            else:
                break
        yield ins, tuple(outs)
