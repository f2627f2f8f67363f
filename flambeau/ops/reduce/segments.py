"""`segment_reduce`, and other rarely used functions of PyTorch that are composed of other operators."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ...core.device import cpu
from ...core.dtype import int64
from ...core.layout import wrap_dim
from ...core.promotion import get_default_dtype
from ...core.size import make_size
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor, new_tensor
from ..creation.filled import finish, full
from ..creation.ranges import arange
from ..index.unique import searchsorted
from ..machinery.arguments import read_options
from ..machinery.declare import composite, internal
from ..machinery.dtype_rules import unsupported
from ..machinery.quirks import Quirks
from ..shape.joining import cat
from .norms import matrix_norm, vector_norm

_START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -math.inf, "amin": math.inf}
_SCATTER = {"sum": "sum", "mean": "sum", "prod": "prod", "amax": "amax", "amin": "amin"}


@composite(method=False)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Reduce consecutive segments of `axis` to one element each; segments are given by their lengths, or by where they start."""
    kind = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if kind not in _START:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    bounds = _segment_bounds(lengths, offsets)  # (..., segments + 1)
    axis = wrap_dim(axis, data.dim())
    if axis != bounds.dim() - 1:
        raise RuntimeError(
            f"segment_reduce(): expected axis to be {bounds.dim() - 1}, the last dimension of lengths, got {axis}"
        )
    if offsets is None and not unsafe and bool((bounds[..., -1] != data.shape[axis]).any()):
        raise RuntimeError(
            "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe."
        )
    if data.dtype.category != 2 or bounds.dtype.category != 1:
        raise unsupported("_segment_reduce_cpu", data.dtype)
    return _reduced(data, kind, bounds, axis, initial)


def _segment_bounds(lengths: Tensor | None, offsets: Tensor | None) -> Tensor:
    """Return where each segment begins, and where the last one ends."""
    if lengths is None:
        assert offsets is not None
        if bool((offsets.diff() < 0).any()):
            raise RuntimeError("Expected segment_length >= 0 to be true, but got false: offsets must not decrease")
        return offsets
    if bool((lengths < 0).any()):
        raise RuntimeError("lengths contains negative value!")
    return cat([lengths.new_zeros((*lengths.shape[:-1], 1)), lengths], dim=-1).cumsum(-1)


def _segments(data: Tensor, bounds: Tensor, axis: int) -> Tensor:
    """Return the number of each element's segment, from 1; elements before or after all segments have numbers, too."""
    places = arange(data.shape[axis], device=data.device).expand(*bounds.shape[:-1], data.shape[axis]).contiguous()
    index = searchsorted(bounds.to(int64).contiguous(), places, right=True)
    return _beside(index, data, axis).expand(data.shape)


def _beside(t: Tensor, data: Tensor, axis: int) -> Tensor:
    return t.reshape(*t.shape, *(1 for _ in data.shape[axis + 1 :]))


def _spread(t: Tensor, segment: Tensor, axis: int) -> Tensor:
    """Return for every element of data its segment's element of t; zero outside segments."""
    outside = t.new_zeros((*t.shape[:axis], 1, *t.shape[axis + 1 :]))
    return cat([outside, t, outside], axis).gather(axis, segment)


def _reduced_backward(
    g: Tensor, data: Tensor, kind: str, bounds: Tensor, axis: int, initial: float | None, out: Tensor
) -> Tensor:
    segment = _segments(data, bounds, axis)
    share = _spread(g, segment, axis)
    if kind == "sum":
        return share
    if kind == "mean":
        counts = _spread(_beside(bounds.diff(), data, axis).to(data.dtype).expand(out.shape), segment, axis)
        return share / counts.clamp(min=1)
    if kind == "prod":
        return share * _product_of_the_others(data, segment, axis, out, 1.0 if initial is None else initial)
    # The elements that are the extreme share the gradient; `initial` takes none.
    chosen = ((data == _spread(out, segment, axis)) | data.isnan()).to(data.dtype)
    count = data.new_zeros((*out.shape[:axis], out.shape[axis] + 2, *out.shape[axis + 1 :]))
    count = count.scatter_add(axis, segment, chosen).gather(axis, segment)
    return share * chosen / count.clamp(min=1)


def _product_of_the_others(data: Tensor, segment: Tensor, axis: int, out: Tensor, initial: float) -> Tensor:
    """Return the product of an element's segment without the element, which may be zero or NaN."""
    result = _spread(out, segment, axis) / data
    for place in ((data == 0) | data.isnan()).nonzero().tolist():
        line = tuple(slice(None) if d == axis else i for d, i in enumerate(place))
        others = segment[line] == segment[tuple(place)]
        others[place[axis]] = False
        result[tuple(place)] = data[line][others].prod() * initial
    return result


@internal(grads={"data": _reduced_backward}, quirks=Quirks(label="SegmentReduceBackward0"), batching="each")
def _reduced(data: Tensor, kind: str, bounds: Tensor, axis: int, initial: float | None) -> Tensor:
    start = _START[kind] if initial is None else initial
    count = bounds.shape[-1] - 1
    out = full((*data.shape[:axis], count + 2, *data.shape[axis + 1 :]), start, dtype=data.dtype, device=data.device)
    out = out.scatter_reduce(axis, _segments(data, bounds, axis), data, _SCATTER[kind], include_self=True)
    out = out.narrow(axis, 1, count).contiguous()
    if kind != "mean":
        return out
    counts = _beside(bounds.diff(), data, axis).expand(out.shape)
    return (out / counts.to(data.dtype)).where(counts > 0, math.nan if initial is None else initial)


@composite(method=False, out=True, autocast_cuda="float32")
def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The root of the sum of squares over `dim`. Deprecated: use `linalg.vector_norm`."""
    warnings.warn(
        "at::frobenius_norm is deprecated and it is just left for JIT compatibility. It will be removed in a future PyTorch"
        " release. Please use `linalg.vector_norm(A, 2., dim, keepdim)` instead",
        UserWarning,
        stacklevel=3,
    )
    return vector_norm(input, 2, dim if isinstance(dim, int) or len(dim) else None, keepdim=keepdim)


@composite(method=False, out=True, autocast_cuda="float32")
def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of the singular values. Deprecated: use `linalg.matrix_norm`."""
    warnings.warn(
        "at::nuclear_norm is deprecated and it is just left for JIT compatibility. It will be removed in a future PyTorch"
        " release. Please use `linalg.matrix_norm(A, 'nuc', dim, keepdim)` instead",
        UserWarning,
        stacklevel=3,
    )
    return matrix_norm(input, "nuc", dim, keepdim)


def from_file(filename: str, shared: bool | None = None, size: int | None = 0, **options: Any) -> Tensor:
    """A tensor of `size` elements over a file's memory; with shared=True, changes go to the file, which is made if it does not exist."""
    chosen = read_options("from_file", options)
    if chosen.device not in (None, cpu):
        raise NotImplementedError(f"from_file: a file's memory is the CPU's, got device {chosen.device}")
    kind = chosen.dtype or get_default_dtype()
    count = size or 0
    storage = UntypedStorage.from_file(filename, shared, count * kind.itemsize)
    made = new_tensor(storage, make_size((count,)), (1,), 0, kind, cpu, True)
    return finish(made, chosen.requires_grad)


def detach_(input: Tensor) -> Tensor:
    """Detach the tensor from the graph, in place."""
    return input.detach_()


def is_distributed(input: Tensor) -> bool:
    """Return False: a plain tensor belongs to one process."""
    return input.is_distributed()


def _copied_part(name: str) -> Any:
    def function(input: Tensor) -> Tensor:
        return getattr(input, name)().clone()

    function.__name__ = function.__qualname__ = f"{name}_copy"
    function.__doc__ = f"A copy of `input.{name}()`."
    return function


PLAIN_FUNCTIONS = {
    function.__name__: function
    for function in (
        from_file,
        detach_,
        is_distributed,
        *map(_copied_part, ("crow_indices", "col_indices", "ccol_indices", "row_indices")),
    )
}
PLAIN_FUNCTIONS["_segment_reduce"] = segment_reduce  # the name other libraries call it by
