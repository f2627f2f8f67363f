"""Collation of samples into a batch.

In a worker process batches are built in shared memory, so that the loader's process gets them without another copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from flambeau.core.device import cpu
from flambeau.core.dtype import FROM_NUMPY, dtype, float64
from flambeau.core.layout import strided
from flambeau.core.size import make_size
from flambeau.core.tensor import Tensor, contiguous_strides, empty, from_array, new_tensor, numel_of
from flambeau.ops import namespace
from flambeau.ops.shape.joining import stack_into

from .blocks import worker_pool
from .containers import each_part, rebuilt_mapping, rebuilt_sequence
from .info import get_worker_info

np_str_obj_array_pattern = re.compile(r"[SaUO]")  # kinds of NumPy's arrays that hold texts or objects
_ops = namespace("torch")
_stack, _tensor, _as_tensor = _ops["stack"], _ops["tensor"], _ops["as_tensor"]

CollateMap = dict[Any, Callable]

_TEXT_KINDS = frozenset("SaUO")  # kinds of NumPy dtypes that no tensor has: strings and objects

_LARGE_SAMPLE = 1 << 18  # bytes: from here on threads copy faster than one


def default_convert(data: Any) -> Any:
    """Convert NumPy arrays and numbers in a sample to tensors; containers keep their type, anything else is returned unchanged.

    >>> default_convert([np.array([0, 1]), "name"])
    [tensor([0, 1]), 'name']
    """
    if isinstance(data, Tensor):
        return data
    if isinstance(data, (np.ndarray, np.generic)):
        return data if data.dtype.kind in _TEXT_KINDS else _as_tensor(data)
    return each_part(data, default_convert)


def _unsupported_error(found: Any) -> TypeError:
    return TypeError(
        f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {found}"
    )


def collate(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Make a batch of samples, field by field. `collate_fn_map` maps types to functions for their fields (the first type that matches,
    subclasses included); containers are collated recursively.

    >>> collate([(1, "a"), (2, "b")], collate_fn_map=default_collate_fn_map)
    [tensor([1, 2]), ('a', 'b')]
    """
    first = batch[0]
    kind = type(first)
    if collate_fn_map is not None:
        function = collate_fn_map.get(kind)
        if function is None:
            function = next((f for k, f in collate_fn_map.items() if isinstance(first, k)), None)
        if function is not None:
            return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        fields = {key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map) for key in first}
        return rebuilt_mapping(first, fields)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*(collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch)))
    if isinstance(first, Sequence):
        size = len(first)
        if any(len(sample) != size for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch)]
        return columns if isinstance(first, tuple) else rebuilt_sequence(first, columns)
    raise _unsupported_error(kind)


# -- one type of field each -------------------------------------------------------------------------------------------


def _new_batch(shape: tuple[int, ...], d: dtype) -> Tensor:
    """Return an uninitialised tensor; in shared memory if this is a worker."""
    if get_worker_info() is None:
        return empty(shape, d)
    storage = worker_pool().storage(numel_of(shape) * d.itemsize)
    return new_tensor(storage, make_size(shape), contiguous_strides(shape), 0, d, cpu, True)


def _check_layout(first: Tensor) -> None:
    if getattr(first, "is_nested", False) or first.layout is not strided:
        form = "nested" if getattr(first, "is_nested", False) else "sparse"
        raise RuntimeError(
            f"Batches of {form} tensors are not currently supported by the default collate_fn; please provide a custom"
            " collate_fn to handle them appropriately."
        )


def collate_tensor_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    first = batch[0]
    _check_layout(first)
    places = _addresses(batch)
    if places is not None:
        out = _new_batch((len(batch), *first.shape), first.dtype)
        _lay_side_by_side(out, places, batch)
        return out
    if get_worker_info() is None or first.device is not cpu:
        return _stack(batch, 0)
    return _stack(batch, 0, out=_new_batch((len(batch), *first.shape), first.dtype))


def _addresses(batch: Any) -> list[int] | None:
    """Return the addresses of the samples if stacking them is copying their bytes side by
    side: plain dense CPU tensors of one shape and dtype outside any graph. None if not."""
    first = batch[0]
    shape, d, size = first.shape, first.dtype, first.dtype.itemsize
    places = []
    for t in batch:
        if type(t) is not Tensor or t.dtype is not d or t.shape != shape or not t._contig or t.device is not cpu:
            return None
        if t._autograd is not None and t.requires_grad:
            return None
        places.append(t._storage.ptr + t._offset * size)
    return places


def _lay_side_by_side(out: Tensor, places: list[int], batch: Any) -> None:
    step, storage = batch[0].nbytes, batch[0]._storage
    if not step:
        return
    if all(t._storage is storage for t in batch):  # samples of one big tensor: its rows, most often
        rows, rest = np.divmod(np.array(places) - storage.ptr, step)
        if not rest.any():
            whole = np.frombuffer(storage.buffer(), np.uint8, storage.size_bytes // step * step).reshape(-1, step)
            np.take(whole, rows, 0, out._storage.numpy()[: len(rows) * step].reshape(-1, step), "wrap")
            return
    stack_into(out, batch)


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    first = batch[0]
    if first.dtype.kind in _TEXT_KINDS:
        raise _unsupported_error(first.dtype)
    d = FROM_NUMPY.get(first.dtype)
    plain = (collate_fn_map or {}).get(Tensor, collate_tensor_fn) is collate_tensor_fn
    if plain and d is not None and all(b.dtype == first.dtype and b.shape == first.shape for b in batch):
        out = _new_batch((len(batch), *first.shape), d)
        if out._storage.size_bytes:
            if (
                first.nbytes >= _LARGE_SAMPLE
                and all(b.strides == first.strides for b in batch)
                and min(first.strides) > 0
            ):
                stack_into(out, [from_array(b, d) for b in batch])  # on all threads
            else:
                np.stack(batch, out=out._array())
        return out
    return collate([_as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    return _as_tensor(batch)


def collate_float_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    return _tensor(batch, dtype=float64)


def collate_int_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Tensor:
    return _tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    return batch


default_collate_fn_map: CollateMap = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def default_collate(batch: Any) -> Any:
    """Stacks the samples of a batch: tensors and arrays along a new first dimension, numbers into a tensor, strings and
    bytes as they are; dicts, lists, tuples and named tuples field by field.

    >>> default_collate([{"x": 1, "y": 2.0}, {"x": 3, "y": 4.0}])
    {'x': tensor([1, 3]), 'y': tensor([2., 4.], dtype=torch.float64)}
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def gather_rows(tensors: Sequence[Tensor], index: Any) -> list[Tensor] | None:
    """Return the rows `index` of each tensor, as `default_collate([tuple(t[i] for t in tensors) for i in index])` would, in one
    operation; None where the result would differ or an error would be raised."""
    if default_collate_fn_map.get(Tensor) is not collate_tensor_fn or not tensors:
        return None
    if type(index) is not list or not index or type(index[0]) is not int:
        return None
    rows = np.array(index)
    if rows.dtype != np.int64:
        return None
    low, high = rows.min(), rows.max()
    for t in tensors:
        if type(t) is not Tensor or not t._contig or t.requires_grad or t.device is not cpu or t.layout is not strided:
            return None
        if not -t.shape[0] <= low <= high < t.shape[0]:
            return None
    return [_rows_of(t, rows) for t in tensors]


def _rows_of(t: Tensor, rows: np.ndarray) -> Tensor:
    out = _new_batch((len(rows), *t.shape[1:]), t.dtype)
    if out._storage.size_bytes:
        np.take(t._array(), rows, 0, out._array(), "wrap")  # a mode other than "raise" writes to `out` directly
    return out
