"""x[...] and x[...] = v: slices, integers, None, Ellipsis, masks and index tensors in any mix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core import dtype as dt
from ..core.device import cpu
from ..core.graph import mode
from ..core.layout import broadcast_shapes, has_internal_overlap, output_strides
from ..core.size import make_size
from ..core.tensor import Tensor, copy_of_array, empty, empty_strided, numel_of
from ..kernels.library.advanced_index import put_positions, take_positions
from .creation import fill_raw
from .declare import composite, primitive, view
from .inplace import assign, check_writable, raw_copy
from .shape import select, slice_dim, unsqueeze

_INDEX_DTYPES = (dt.int64, dt.int32, dt.int16, dt.int8)


# -- understanding an index -------------------------------------------------------------------------------------------


def _as_index_tensor(value: Any) -> Tensor:
    """A list, range or NumPy array used as an index."""
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


def _is_sequence_index(item: Any) -> bool:
    return isinstance(item, (list, range, np.ndarray, tuple))


def _consumed(item: Any) -> int:
    """How many dimensions of the input an index item takes."""
    if item is None or item is Ellipsis or item is True or item is False:
        return 0
    if isinstance(item, Tensor) and item.dtype in (dt.bool_, dt.uint8):
        return len(item.shape)
    return 1


def _is_tuple_in_disguise(index: Any) -> bool:
    """Lists with parts that only a tuple of indices can have, such as x[[[0, 1], [1, 0]]], are read as tuples."""
    parts = (list, tuple, range, np.ndarray, Tensor, slice, type(None), type(Ellipsis))
    return isinstance(index, list) and len(index) < 32 and any(isinstance(item, parts) for item in index)


def _normalise(index: Any) -> list:
    items = list(index) if isinstance(index, tuple) or _is_tuple_in_disguise(index) else [index]
    result = []
    for item in items:
        if isinstance(item, np.ndarray) and item.ndim == 0 and item.dtype != np.bool_:
            item = item.item()
        if isinstance(item, np.bool_):
            item = bool(item)
        elif isinstance(item, np.integer):
            item = int(item)
        elif _is_sequence_index(item):
            item = _as_index_tensor(item)
        result.append(item)
    return result


def _expand_ellipsis(items: list, ndim: int) -> list:
    used = sum(_consumed(i) for i in items)
    if used > ndim:
        raise IndexError(f"too many indices for tensor of dimension {ndim}")
    at = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(at) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    fill = [slice(None)] * (ndim - used)
    if at:
        return items[: at[0]] + fill + items[at[0] + 1 :]
    return items + fill


def _slice_bounds(item: slice, size: int) -> tuple[int, int, int]:
    step = 1 if item.step is None else _integer(item.step)
    if step <= 0:
        raise ValueError("step must be greater than zero")
    start, stop, _ = slice(
        None if item.start is None else _integer(item.start), None if item.stop is None else _integer(item.stop), step
    ).indices(size)
    return start, max(start, stop), step


def _integer(value: Any) -> int:
    if isinstance(value, Tensor):
        return int(value.item())
    try:
        return value.__index__()
    except AttributeError:
        raise TypeError("slice indices must be integers or None or have an __index__ method") from None


def apply_basic(t: Tensor, index: Any) -> tuple[Tensor, list[Tensor | None]]:
    """Apply everything that is a view; return it with the index tensors left over, one per dimension (None: all)."""
    items = _expand_ellipsis(_normalise(index), len(t.shape))
    dim = 0
    advanced: list[Tensor | None] = []
    for item in items:
        if item is None:
            t = unsqueeze(t, dim)
            advanced.append(None)
            dim += 1
        elif item is True or item is False:
            t = unsqueeze(t, dim)
            advanced.append(copy_of_array(np.zeros(1 if item else 0, np.int64), dt.int64))
            dim += 1
        elif isinstance(item, slice):
            start, stop, step = _slice_bounds(item, t.shape[dim])
            if start != 0 or stop != t.shape[dim] or step != 1:
                t = slice_dim(t, dim, start, stop, step)
            advanced.append(None)
            dim += 1
        elif isinstance(item, int):
            t = _select_index(t, dim, item)
        elif isinstance(item, Tensor):
            t, dim = _take_tensor_index(t, item, dim, advanced)
        elif hasattr(item, "__index__"):
            t = _select_index(t, dim, item.__index__())
        else:
            if isinstance(item, str):
                raise TypeError("new(): invalid data type 'str'")
            raise IndexError(
                "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices"
                f" (got {type(item).__name__})"
            )
    return t, advanced


def _select_index(t: Tensor, dim: int, i: int) -> Tensor:
    size = t.shape[dim]
    if not -size <= i < size:
        raise IndexError(f"index {i} is out of bounds for dimension {dim} with size {size}")
    return select(t, dim, i)


def _take_tensor_index(t: Tensor, item: Tensor, dim: int, advanced: list) -> tuple[Tensor, int]:
    if item.dtype in (dt.bool_, dt.uint8):
        for i, n in enumerate(item.shape):
            if n != t.shape[dim + i]:
                raise IndexError(
                    f"The shape of the mask {list(item.shape)} at index {i} does not match the shape of the indexed tensor"
                    f" {list(t.shape)} at index {dim + i}"
                )
        if not item.shape:
            t = unsqueeze(t, dim)
            advanced.append(copy_of_array(np.zeros(int(bool(item.item())), np.int64), dt.int64))
            return t, dim + 1
        for axis in item._array().nonzero():
            advanced.append(copy_of_array(axis, dt.int64))
        return t, dim + len(item.shape)
    if item.dtype not in _INDEX_DTYPES:
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    if not item.shape and not (mode.enabled and item.requires_grad):
        return _select_index(t, dim, int(item.item())), dim
    advanced.append(item)
    return t, dim + 1


# -- positions in memory ----------------------------------------------------------------------------------------------


class Positions:
    """Where the elements named by index tensors lie: before x picked x after offsets, and the result's shape."""

    def __init__(self, t: Tensor, indices: Sequence[Tensor | None], name: str = "index"):
        ndim = len(t.shape)
        where = [d for d, i in enumerate(indices) if i is not None]
        tensors = [indices[d] for d in where]
        arrays = [_checked(i._array(), t.shape[d], d) for i, d in zip(tensors, where)]  # type: ignore[union-attr]
        try:
            picked_shape = broadcast_shapes(*[a.shape for a in arrays])
        except RuntimeError:
            shapes = ", ".join(str(list(a.shape)) for a in arrays)
            raise IndexError(
                f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}"
            ) from None
        picked = np.zeros(picked_shape, np.int64)
        for a, d in zip(arrays, where):
            picked += a * t._strides[d]
        self.picked = picked.reshape(-1)
        together = where[-1] - where[0] == len(where) - 1
        first = where[0] if together else 0
        others = [d for d in range(ndim) if d not in where]
        before = [d for d in others if d < first]
        after = [d for d in others if d >= first]
        self.before = _offsets(t, before)
        self.after = _offsets(t, after)
        self.shape = make_size([*(t.shape[d] for d in before), *picked_shape, *(t.shape[d] for d in after)])
        self.layouts = _layouts(t, tensors, before, after, self.shape)
        self.dense = bool(self.after.size == 0 or (self.after[-1] == self.after.size - 1 and _is_range(t, after)))


def _layouts(t: Tensor, tensors: list, before: list[int], after: list[int], shape: tuple[int, ...]) -> list[tuple]:
    """Shapes and strides that decide the result's layout: of the tensor, repeated along the indices, and of the indices."""
    picked, tail = len(shape) - len(before) - len(after), (0,) * len(after)
    head = tuple(t._strides[d] for d in before)
    layouts: list[tuple] = [(shape, head + (0,) * picked + tuple(t._strides[d] for d in after))]
    for i in tensors:
        lead = len(before) + picked - len(i.shape)
        layouts.append(((1,) * lead + tuple(i.shape) + (1,) * len(after), (0,) * lead + i._strides + tail))
    return layouts


def _is_range(t: Tensor, dims: list[int]) -> bool:
    step = 1
    for d in reversed(dims):
        if t.shape[d] != 1 and t._strides[d] != step:
            return False
        step *= t.shape[d]
    return True


def _checked(index: np.ndarray, size: int, dim: int) -> np.ndarray:
    """Non-negative int64 positions, or IndexError."""
    if index.size:
        low, high = int(index.min()), int(index.max())
        if high >= size or low < -size:
            bad = high if high >= size else low
            raise IndexError(f"index {bad} is out of bounds for dimension {dim} with size {size}")
        if low < 0:
            return np.where(index < 0, index + np.int64(size), index)
    return index


def _offsets(t: Tensor, dims: list[int]) -> np.ndarray:
    result = np.zeros(1, np.int64)
    for d in dims:
        result = (result[:, None] + np.arange(t.shape[d], dtype=np.int64) * t._strides[d]).reshape(-1)
    return result


# -- operators --------------------------------------------------------------------------------------------------------


def _index_backward(g: Tensor, input_shape: Any, indices: Any) -> Tensor:
    return index_put(g.new_zeros(input_shape), indices, g, True)


@primitive(grads={"input": _index_backward}, function=False, method=False)
def index(input: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """input[indices]: one index tensor (or None) per dimension."""
    if input.device is not cpu:
        shape = broadcast_shapes(*[i.shape for i in indices if i is not None])
        return empty((*shape, *(n for n, i in zip(input.shape, indices) if i is None)), input.dtype, input.device)
    where = Positions(input, indices)
    out = empty(where.shape, input.dtype)
    if numel_of(where.shape):
        strides = output_strides(where.shape, where.layouts)
        take_positions(
            out, input, where.before, where.picked, where.after, where.before.size, where.picked.size, where.after.size,
            dense=where.dense,
        )  # fmt: skip
        if strides != out._strides:
            turned = empty_strided(where.shape, strides, input.dtype)
            raw_copy(turned, out)
            return turned
    return out


def put_raw(t: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> None:
    """t[indices] = values (or +=), straight into memory."""
    where = Positions(t, indices)
    try:
        fits = broadcast_shapes(values.shape, where.shape) == tuple(where.shape)
    except RuntimeError:
        fits = False
    if not fits:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of shape"
            f" {list(where.shape)}"
        )
    if not numel_of(where.shape):
        return
    values = values.expand(where.shape).contiguous()
    if accumulate and t.dtype is dt.bool_:
        accumulate = False
        values = values | index(t, indices)
    put_positions(
        t, values, where.before, where.picked, where.after, where.before.size, where.picked.size, where.after.size,
        accumulate=bool(accumulate),
    )  # fmt: skip


def _index_put_values_grad(g: Tensor, indices: Any, values_shape: Any) -> Tensor:
    return index(g, indices).sum_to_size(values_shape)


def _index_put_input_grad(g: Tensor, indices: Any, accumulate: bool) -> Tensor:
    return g if accumulate else index_put(g, indices, g.new_zeros(()), False)


@primitive(
    grads={"input": _index_put_input_grad, "values": _index_put_values_grad},
    label="IndexPutBackward0",
    function=False,
    method=False,
)
def index_put_prepared(
    input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    out = input.clone()
    put_raw(out, indices, values, accumulate)
    return out


def _prepare_indices(t: Tensor, indices: Sequence[Any]) -> list[Tensor | None]:
    """index_put's tuple: masks become positions, missing trailing dimensions mean all."""
    prepared: list[Tensor | None] = []
    for item in indices:
        if item is None:
            prepared.append(None)
            continue
        _, _ = _take_tensor_index_only(t, _as_index_tensor(item), len(prepared), prepared)
    if len(prepared) > len(t.shape):
        raise IndexError(f"too many indices for tensor of dimension {len(t.shape)} (got {len(prepared)})")
    return prepared + [None] * (len(t.shape) - len(prepared))


def _take_tensor_index_only(t: Tensor, item: Tensor, dim: int, advanced: list) -> tuple[None, None]:
    if item.dtype in (dt.bool_, dt.uint8):
        _take_tensor_index(t, item, dim, advanced)
    elif item.dtype in _INDEX_DTYPES:
        advanced.append(item)
    else:
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    return None, None


def _check_put(input: Tensor, indices: Any, values: Tensor) -> None:
    if not isinstance(indices, (tuple, list)):
        raise TypeError(
            f"index_put_(): argument 'indices' (position 1) must be tuple of Tensors, not {type(indices).__name__}"
        )
    if values.dtype is not input.dtype:
        raise RuntimeError(
            f"Index put requires the source and destination dtypes match, got {_word(input)} for the destination and"
            f" {_word(values)} for the source."
        )


def _word(t: Tensor) -> str:
    return t.type().split(".")[-1].replace("Tensor", "")


@composite(inplace=True)
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of input with input[indices] = values (or += values)."""
    _check_put(input, indices, values)
    return index_put_prepared(input, _prepare_indices(input, indices), values, accumulate)


@view(grads={"input": lambda g: g}, label="AliasBackward0", function=False, method=False)
def alias(input: Tensor) -> Tensor:
    """The whole tensor as a view of itself: what x[...] is."""
    return input._view(input.shape, input._strides, input._offset)


def getitem(self: Tensor, key: Any) -> Tensor:
    """x[key]"""
    if type(key) is int and self.shape:  # rows of a dataset, elements of a vector: worth a short cut
        return _select_index(self, 0, key)
    part, advanced = apply_basic(self, key)
    if any(i is not None for i in advanced):
        return index(part, advanced)
    return alias(self) if part is self else part


def setitem(self: Tensor, key: Any, value: Any) -> None:
    """x[key] = value"""
    if key is False:  # selects nothing; PyTorch does not even look at the value
        return
    if key is True:
        key = None
    part, advanced = apply_basic(self, key)
    if not isinstance(value, Tensor):
        value = _value_tensor(value, self)
    if any(i is not None for i in advanced):
        if value.dtype is not part.dtype and value.numel() == 1 and _only_masks(key):
            value = value.to(part.dtype)  # filling a mask with one number converts it
        _check_put(part, advanced, value)
        _set_advanced(part, advanced, value)
    else:
        if value.shape != part.shape:
            value = _strip_leading_ones(value, len(part.shape))
        part.copy_(value)


def _only_masks(key: Any) -> bool:
    """Whether the arrays in x[key] are all truth values."""
    items = key if isinstance(key, tuple) or _is_tuple_in_disguise(key) else (key,)
    arrays = [i for i in items if isinstance(i, Tensor) or _is_sequence_index(i)]
    return not any(isinstance(i, bool) for i in items) and all(
        (i if isinstance(i, Tensor) else _as_index_tensor(i)).dtype in (dt.bool_, dt.uint8) for i in arrays
    )


def _set_advanced(part: Tensor, advanced: list, value: Tensor) -> None:
    check_writable(part, "index_put_")
    if has_internal_overlap(part.shape, part._strides):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location."
        )
    if mode.enabled and (part.requires_grad or value.requires_grad):
        assign(part, index_put_prepared(part, advanced, value, False), "index_put_")
    else:
        put_raw(part, advanced, value, False)
        part._bump("index_put_")


def _value_tensor(value: Any, like: Tensor) -> Tensor:
    if isinstance(value, (bool, int, float, complex, np.generic)):
        if isinstance(value, complex) and not like.dtype.is_complex:
            raise RuntimeError(f"value cannot be converted to type {like.dtype} without losing its imaginary part")
        return fill_raw(empty((), like.dtype, like.device), value.item() if isinstance(value, np.generic) else value)
    return like.new_tensor(value)


def _strip_leading_ones(value: Tensor, ndim: int) -> Tensor:
    while len(value.shape) > ndim and value.shape[0] == 1:
        value = select(value, 0, 0)
    return value


Tensor.__getitem__ = getitem  # type: ignore[method-assign]
Tensor.__setitem__ = setitem  # type: ignore[method-assign]
