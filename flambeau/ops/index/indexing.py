"""x[...] and x[...] = v: slices, integers, None, Ellipsis, masks and index tensors in any mix."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core import modes
from ...core.batched import BatchedTensor
from ...core.graph import grad_mode
from ...core.layout import broadcast_shapes, dense_strides
from ...core.sharded import ShardedOperand
from ...core.size import make_size
from ...core.tensor import Tensor, copy_of_array, empty, numel_of
from ...kernels.library import advanced_index as kernels
from ..machinery.declare import composite, effect, internal
from ..machinery.inplace import raw_copy
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
from ..shape.dimensions import select, slice_dim, unsqueeze
from .positions import Places, beside, coordinates, places, true_positions

INDEX_DTYPES = (dt.int64, dt.int32, dt.int16, dt.int8)
_BYTE_MASK = "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool instead."


# -- understanding an index -------------------------------------------------------------------------------------------


def as_index_tensor(value: Any) -> Tensor:
    """Return a list, range or NumPy array used as an index as a tensor."""
    if isinstance(value, Tensor):
        return value
    array = (
        np.asarray([v.item() if isinstance(v, Tensor) and v.numel() == 1 else v for v in value])
        if isinstance(value, (list, tuple, range)) and any(isinstance(v, Tensor) for v in value)
        else np.asarray(value)
    )
    if array.size == 0 and array.dtype == np.float64:
        array = array.astype(np.int64)
    if array.dtype == np.bool_:
        return copy_of_array(array, dt.bool_)
    if array.dtype == np.uint8:
        return copy_of_array(array, dt.uint8)
    if array.dtype.kind not in "iu":
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    return copy_of_array(array.astype(np.int64), dt.int64)


def is_sequence_index(item: Any) -> bool:
    return isinstance(item, (list, range, np.ndarray, tuple))


def _consumed(item: Any) -> int:
    """Return the number of the input's dimensions that an index item takes."""
    if item is None or item is Ellipsis or item is True or item is False:
        return 0
    if isinstance(item, Tensor) and item.dtype in (dt.bool_, dt.uint8):
        return len(item.shape)
    return 1


def is_tuple_in_disguise(index: Any) -> bool:
    """Return whether a list is read as a tuple, because only a tuple of indices can have its parts, such as x[[[0, 1], [1, 0]]]."""
    parts = (list, tuple, range, np.ndarray, Tensor, slice, type(None), type(Ellipsis))
    return isinstance(index, list) and len(index) < 32 and any(isinstance(item, parts) for item in index)


_PLAIN_ITEMS = frozenset((int, slice, type(None), type(Ellipsis), Tensor))


def _normalise(index: Any) -> list[Any]:
    items = list(index) if isinstance(index, tuple) or is_tuple_in_disguise(index) else [index]
    result = []
    for item in items:
        if type(item) in _PLAIN_ITEMS:
            result.append(item)
            continue
        if isinstance(item, np.ndarray) and item.ndim == 0 and item.dtype != np.bool_:
            item = item.item()
        if isinstance(item, np.bool_):
            item = bool(item)
        elif isinstance(item, np.integer):
            item = int(item)
        elif is_sequence_index(item):
            item = as_index_tensor(item)
        result.append(item)
    return result


def _expand_ellipsis(items: list[Any], ndim: int) -> list[Any]:
    used = sum([1 if type(i) is int or type(i) is slice else _consumed(i) for i in items])
    if used > ndim:
        if not ndim and len(items) == 1 and isinstance(items[0], int):
            raise IndexError(
                "invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor to a number"
            )
        raise IndexError(f"too many indices for tensor of dimension {ndim}")
    at = [i for i, item in enumerate(items) if item is Ellipsis]
    fill = [_ALL] * (ndim - used)
    if len(at) > 1:  # the first ellipsis covers all remaining dimensions, the others none
        if fill and any(item is not Ellipsis for item in items[at[1] :]):
            raise IndexError(
                "an index behind a second ellipsis ('...') is about dimensions that the tensor does not have"
            )
        items = [item for i, item in enumerate(items) if item is not Ellipsis or i == at[0]]
    if at:
        return items[: at[0]] + fill + items[at[0] + 1 :]
    return items + fill


class Written(int):
    """A bound of a slice, within the tensor, while a mode is on: `given` is the bound in the program, which may count from the end, be
    beyond it, or be computed from a size."""

    given: int | None

    @staticmethod
    def of(number: int, given: Any) -> Written:
        made = Written(number)
        made.given = given if given is None or isinstance(given, int) else number
        return made


def slice_bounds(item: slice, size: int) -> tuple[int, int, int]:
    step = 1 if item.step is None else _integer(item.step)
    if step <= 0:
        raise ValueError("step must be greater than zero")
    start, stop, _ = slice(
        None if item.start is None else _integer(item.start), None if item.stop is None else _integer(item.stop), step
    ).indices(size)
    if modes.active:
        return Written.of(start, item.start), Written.of(max(start, stop), item.stop), step
    return start, max(start, stop), step


def _integer(value: Any) -> int:
    if isinstance(value, Tensor):
        return int(value.item())
    try:
        return value.__index__()
    except AttributeError:
        raise TypeError("slice indices must be integers or None or have an __index__ method") from None


_ALL = slice(None)


def apply_basic(t: Tensor, index: Any) -> tuple[Tensor, list[Tensor | None]]:
    """Apply everything that is a view; return it with the remaining index tensors, one per dimension (None: all). Masks become the positions
    of their True elements, unless a mode wants them unchanged."""
    items = _expand_ellipsis(_normalise(index), len(t.shape))
    dim = 0
    advanced: list[Tensor | None] = []
    for place, item in enumerate(items):
        if item is None:
            t = unsqueeze(t, dim)
            advanced.append(None)
            dim += 1
        elif item is True or item is False:
            t = unsqueeze(t, dim)
            advanced.append(t.new_zeros(int(item), dtype=dt.int64))
            dim += 1
        elif isinstance(item, slice):
            if not (item.start is item.stop is item.step is None):
                start, stop, step = slice_bounds(item, t.shape[dim])
                partly = stop - start != t.shape[dim] or step != 1 or item.start not in (None, 0)
                if partly or (type(stop) is Written and stop.given is not None):
                    t = slice_dim(t, dim, start, stop, step)
            advanced.append(None)
            dim += 1
        elif isinstance(item, int):
            t = select_index(t, dim, item, place)
        elif is_mask(item) and modes.keeping_masks():
            advanced.append(item)
            dim += len(item.shape)
        elif isinstance(item, Tensor):
            t, dim = _take_tensor_index(t, item, dim, advanced, place)
        elif hasattr(item, "__index__"):
            t = select_index(t, dim, item.__index__(), place)
        else:
            if isinstance(item, str):
                raise TypeError("new(): invalid data type 'str'")
            raise IndexError(
                "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices"
                f" (got {type(item).__name__})"
            )
    return t, advanced


def is_mask(item: Any) -> bool:
    """Return whether a part of a key is a mask over the elements of some dimensions."""
    return isinstance(item, Tensor) and item.dtype in (dt.bool_, dt.uint8) and bool(item.shape)


def select_index(t: Tensor, dim: int, i: int, place: int = 0) -> Tensor:
    """Return t with index i taken from dimension dim, which errors call `place`: the index's position in the brackets."""
    size = t.shape[dim]
    if not -size <= i < size:
        raise IndexError(f"index {i} is out of bounds for dimension {place} with size {size}")
    return select(t, dim, i)


def _is_one_run(t: Tensor, dim: int, count: int) -> bool:
    """Return whether `count` dimensions are stored in memory like a single one."""
    return all(t._strides[d] == t._strides[d + 1] * t.shape[d + 1] for d in range(dim, dim + count - 1))


def _collapsed(t: Tensor, dim: int, count: int) -> Tensor:
    end = dim + count
    shape = (*t.shape[:dim], numel_of(t.shape[dim:end]), *t.shape[end:])
    return t._view(shape, t._strides[:dim] + t._strides[end - 1 :], t._offset)


def _take_tensor_index(
    t: Tensor, item: Tensor, dim: int, advanced: list[Any], place: int = 0, collapse: bool = True
) -> tuple[Tensor, int]:
    if item.device is not t.device:
        item = beside(item, t)
    if item.dtype in (dt.bool_, dt.uint8):
        if item.dtype is dt.uint8:
            warnings.warn(_BYTE_MASK, UserWarning, stacklevel=4)
        for i, n in enumerate(item.shape):
            if n != t.shape[dim + i]:
                raise IndexError(
                    f"The shape of the mask {list(item.shape)} at index {i} does not match the shape of the indexed tensor"
                    f" {list(t.shape)} at index {dim + i}"
                )
        if not item.shape:
            t = unsqueeze(t, dim)
            advanced.append(t.new_zeros(int(bool(item.item())), dtype=dt.int64))
            return t, dim + 1
        positions = true_positions(item)
        if len(item.shape) == 1:
            advanced.append(positions)
            return t, dim + 1
        if collapse and not (grad_mode.enabled and t.requires_grad) and _is_one_run(t, dim, len(item.shape)):
            advanced.append(positions)
            return _collapsed(t, dim, len(item.shape)), dim + 1
        advanced += coordinates(positions, item.shape).unbind(1)
        return t, dim + len(item.shape)
    if item.dtype not in INDEX_DTYPES:
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    if not item.shape and not isinstance(item, BatchedTensor) and not (grad_mode.enabled and item.requires_grad):
        return select_index(t, dim, int(item.item()), place), dim
    advanced.append(item)
    return t, dim + 1


# -- operators --------------------------------------------------------------------------------------------------------


def _index_backward(g: Tensor, input_shape: Any, indices: Any) -> Tensor:
    return index_put(g.new_zeros(input_shape), indices, g, True)


@internal(grads={"input": _index_backward}, runs_empty=True)
def index(input: Tensor, indices: Sequence[Tensor | None]) -> NewTensor:
    """input[indices]: one index tensor (or None) per dimension."""
    where = places(input, indices)
    return where.shape, input.dtype, input.device, where.strides


@index.op.as_aten
def _(recorder: Any, input: Tensor, indices: Any) -> Tensor:
    found = list(indices)
    while found and found[-1] is None:
        found.pop()
    return recorder.aten.index.Tensor(input, found)


@index.on("any")
def _(out: Tensor, input: Tensor, indices: Sequence[Tensor | None]) -> None:
    where = places(input, indices)
    if where.strides is None:
        where.take(out, input, indices)
    else:
        taken = empty(where.shape, input.dtype, out.device)
        where.take(taken, input, indices)
        raw_copy(out, taken)


@effect(runs_empty=True, batching="each", aten="index_put_(t, indices, values, accumulate)")
def put_at_(t: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    """t[indices] = values (or +=)."""


@put_at_.on("meta")
def _checked_places(t: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Places:
    where = places(t, indices)
    if values.shape and values.shape != where.shape:
        _check_fits(values, where.shape)
    _check_dtypes(t, values)
    return where


@put_at_.on("any")
def put_raw(t: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> None:
    """t[indices] = values (or +=), directly into memory. For kernels."""
    where = _checked_places(t, indices, values, accumulate)
    picked = where.picked(indices, t.device)
    if where.empty:
        return
    single = not values.shape
    values = values if single else values.expand(where.shape).contiguous()
    if accumulate and t.dtype is dt.bool_:
        accumulate = single = False
        values = values | index(t, indices)
    before, after = where.offsets(t.device)
    kernels.put_positions(
        t, values, before, picked, after, where.blocks, where.count, where.inner,
        dense=where.dense, single=single, accumulate=bool(accumulate),
    )  # fmt: skip


def _check_fits(values: Tensor, shape: tuple[int, ...]) -> None:
    try:
        fits = broadcast_shapes(values.shape, shape) == tuple(shape)
    except RuntimeError:
        fits = False
    if not fits:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of shape"
            f" {list(shape)}"
        )


def _check_dtypes(t: Tensor, values: Tensor) -> None:
    if values.dtype is not t.dtype:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {t.dtype.scalar_type} for the destination and"
            f" {values.dtype.scalar_type} for the source."
        )


def _index_put_values_grad(g: Tensor, indices: Any, values_shape: Any) -> Tensor:
    return index(g, indices).sum_to_size(values_shape)


def _index_put_input_grad(g: Tensor, indices: Any, accumulate: bool) -> Tensor:
    return g if accumulate else index_put(g, indices, g.new_zeros(()), False)


@internal(
    grads={"input": _index_put_input_grad, "values": _index_put_values_grad},
    quirks=Quirks(label="IndexPutBackward0"),
    runs_empty=True,
    sharding="index_put",
)
def index_put_prepared(
    input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> NewTensor:
    """A copy of input with input[indices] = values (or +=): one index tensor (or None) per dimension."""
    _checked_places(input, indices, values, accumulate)
    return input.shape, input.dtype, input.device, dense_strides(input.shape, input._strides)


@index_put_prepared.on("any")
def _(out: Tensor, input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> None:
    raw_copy(out, input)
    put_raw(out, indices, values, accumulate)


def _prepare_indices(t: Tensor, indices: Sequence[Any]) -> list[Tensor | None]:
    """Return the indices of index_put: masks become positions, missing trailing dimensions mean all."""
    prepared: list[Tensor | None] = []
    for item in indices:
        item = None if item is None else as_index_tensor(item)
        if item is None or item.dtype in INDEX_DTYPES:
            prepared.append(item if item is None or item.device is t.device else beside(item, t))
        else:
            _take_tensor_index(t, item, len(prepared), prepared, collapse=False)
    if len(prepared) > len(t.shape):
        raise IndexError(f"too many indices for tensor of dimension {len(t.shape)} (got {len(prepared)})")
    return prepared + [None] * (len(t.shape) - len(prepared))


def _check_put(indices: Any) -> None:
    if not isinstance(indices, (tuple, list)):
        raise TypeError(
            f"index_put_(): argument 'indices' (position 1) must be tuple of Tensors, not {type(indices).__name__}"
        )
    if all(i is None for i in indices):
        raise RuntimeError("index_put_(): expected at least one index tensor")


def _put_into(out: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> bool:
    _check_put(indices)
    put_at_(out, _prepare_indices(out, indices), values, accumulate)
    return True


@effect(batching="each")
def put_shared_(t: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    """t[indices] = values (or +=), where elements of t may share memory."""


@put_shared_.on("cpu")
def _(t: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> None:
    where = tuple(slice(None) if i is None else i._array() for i in indices)
    array, new = t._array(), values._array()
    if not accumulate:
        array[where] = new
    elif t.dtype is dt.bfloat16:
        put_raw(t, indices, values, True)
    else:
        np.add.at(array, where, new)  # type: ignore[arg-type]


def _put_shared(t: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> None:
    put_shared_(t, _prepare_indices(t, indices), values, accumulate)


@composite(inplace=_put_into, shared=_put_shared, quirks=Quirks(inplace_function=True), autocast_cuda="widest")
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of input with input[indices] = values (or += values)."""
    _check_put(indices)
    return index_put_prepared(input, _prepare_indices(input, indices), values, accumulate)


def plain_view(t: Tensor, key: Any) -> Tensor | None:
    """Return t[key] in one step if key consists of integers, slices, None and Ellipsis, and nothing has to be recorded; None for other or
    invalid keys."""
    base = t._base
    if t._autograd is not None or (base is not None and base._autograd is not None) or modes.active:
        return None
    items = key if type(key) is tuple else (key,)
    try:
        old_shape, old_strides, dim = tuple(t.shape), t._strides, 0  # slices of a Size take longer
    except ShardedOperand:
        return None
    ndim = len(old_shape)
    shape: list[int] = []
    strides: list[int] = []
    offset, ellipsis = t._offset, False
    for item in items:
        kind = type(item)
        if item is None:
            shape.append(1)
            strides.append(old_shape[dim] * old_strides[dim] if dim < ndim else 1)
        elif item is Ellipsis:
            end = dim + ndim - len(items) + 1 + sum([i is None for i in items])
            if end < dim or ellipsis:
                return None
            ellipsis = True
            shape += old_shape[dim:end]
            strides += old_strides[dim:end]
            dim = end
        elif dim >= ndim:
            return None
        elif kind is int:
            size = old_shape[dim]
            if not -size <= item < size:
                return None
            offset += (item + size if item < 0 else item) * old_strides[dim]
            dim += 1
        elif kind is slice:
            start, stop, step = item.indices(old_shape[dim])
            if step <= 0:
                return None
            shape.append((stop - start + step - 1) // step if stop > start else 0)
            strides.append(old_strides[dim] * step)
            offset += start * old_strides[dim]
            dim += 1
        else:
            return None
    return t._view(make_size([*shape, *old_shape[dim:]]), (*strides, *old_strides[dim:]), offset)


PLAIN_KEYS = (tuple, slice, type(None), type(Ellipsis))
