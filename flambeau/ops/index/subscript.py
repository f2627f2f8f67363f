"""x[key] and x[key] = value."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core import modes
from ...core.batched import BatchedTensor
from ...core.graph import grad_mode
from ...core.layout import has_internal_overlap
from ...core.overrides import FACE_CODES, discovers, with_attributes
from ...core.tensor import OpenTensor, Tensor, empty
from ...core.typenames import type_name
from ..creation.filled import fill_raw
from ..creation.memory import alias
from ..machinery.declare import internal
from ..machinery.dtype_rules import check_fits
from ..machinery.inplace import assign, check_writable
from ..machinery.out import check_disjoint
from ..machinery.record import NewTensor, Op
from ..shape.dimensions import select, slice_dim
from .indexing import (
    INDEX_DTYPES,
    PLAIN_KEYS,
    apply_basic,
    as_index_tensor,
    index,
    index_put_prepared,
    is_mask,
    is_sequence_index,
    is_tuple_in_disguise,
    plain_view,
    put_at_,
    select_index,
    slice_bounds,
)
from .positions import beside, start, take_dense, true_positions

_active = modes.active
_intercept, asking = modes.intercept, modes.asking


@with_attributes
def getitem(self: Tensor, key: Any) -> Tensor:
    """x[key]"""
    if _active and asking():
        return _intercept(getitem.op, getitem, (self, key), {})
    try:
        kind = type(key)
        if kind is int and self.shape:  # rows of a dataset, elements of a vector: worth a short cut
            return select_index(self, 0, key)
        if kind in PLAIN_KEYS:
            part = plain_view(self, key)
            if part is not None:
                return part
        elif kind is Tensor and key.dtype is dt.bool_ and _takes_elements(self, key):
            return elements_at(self, true_positions(key))
        if kind is Tensor or kind is tuple:
            tensors = _index_tensors(self, key)
            if tensors is not None:
                return index(self, tensors)
        if type(key) is slice and self.shape:  # never left out, not even [:]
            return slice_dim(self, 0, *slice_bounds(key, self.shape[0]))
        part, advanced = apply_basic(self, key)
        if any(i is not None for i in advanced):
            return index(part, advanced)
        return alias(self) if part is self else part
    except Exception:
        if discovers((self, key), {}):
            return getitem(self, key)
        raise


def _index_tensors(t: Tensor, key: Any) -> list[Tensor | None] | None:
    """Return the index tensors that `apply_basic` would leave of a key of index tensors and full slices; None for any other key."""
    found: list[Tensor | None] = []
    for item in key if type(key) is tuple else (key,):
        if type(item) is Tensor and item.dtype in INDEX_DTYPES and item.shape:
            found.append(item if item.device is t.device else beside(item, t))
        elif type(item) is slice and item.start is None and item.stop is None and item.step is None:
            found.append(None)
        else:
            return None
    missing = len(t.shape) - len(found)
    return None if missing < 0 or not any(i is not None for i in found) else found + [None] * missing


def _takes_elements(t: Tensor, mask: Tensor) -> bool:
    """Return whether t[mask] lists elements in memory order, with nothing to record."""
    return (
        mask.shape == t.shape
        and type(t) is Tensor
        and bool(t.shape)
        and t._contig
        and mask.device is t.device
        and not _active
        and not (grad_mode.enabled and t.requires_grad)
    )


@internal(batching="each")
def elements_at(input: Tensor, positions: Tensor) -> NewTensor:
    """The elements of contiguous memory at positions that are known to be valid."""
    return positions.shape, input.dtype, input.device


@elements_at.on("any")
def _(out: Tensor, input: Tensor, positions: Tensor) -> None:
    zero = start(out.device)
    take_dense(out, input, zero, positions, zero, 1, positions.shape[0], 1)


@with_attributes
def setitem(self: Tensor, key: Any, value: Any) -> None:
    """x[key] = value"""
    if _active and asking():
        _intercept(setitem.op, setitem, (self, key, value), {})
        return
    try:
        _setitem(self, key, value)
    except Exception:
        if not discovers((self, key, value), {}):
            raise
        setitem(self, key, value)


def _setitem(self: Tensor, key: Any, value: Any) -> None:
    if key is False:  # selects nothing; PyTorch does not even check the value
        return
    if key is True:
        key = None
    part = None
    if (type(key) is int or type(key) in PLAIN_KEYS) and not (
        grad_mode.enabled and isinstance(value, Tensor) and value.requires_grad
    ):
        part = plain_view(self, key)
    advanced: list[Tensor | None] = []
    if part is None:
        if _fills_mask(self, key, value):
            self.masked_fill_(key, value)
            return
        tensors = _index_tensors(self, key)
        part, advanced = apply_basic(self, key) if tensors is None else (self, tensors)
    elif type(value) is float and part.dtype.is_floating_point and not has_internal_overlap(part.shape, part._strides):
        part.fill_(value)
        return
    if not isinstance(value, Tensor):
        value = _value_tensor(value, self)
    if _active and any(isinstance(t, BatchedTensor) for t in (part, value, *advanced)):
        _set_batched(part, advanced, value)
    elif any(i is not None for i in advanced):
        value = _strip_leading_ones(value, 0)
        if value.device is not part.device and not value.shape:
            value = value.to(part.device)
        fills = value.numel() == 1 and _only_masks(key)
        if not fills and self._storage.ptr and not has_internal_overlap(part.shape, part._strides):
            check_disjoint(part, (value, *(key if isinstance(key, tuple) else (key,))))
        if value.dtype is not part.dtype and fills:
            if value.dtype.is_complex and part.dtype is not dt.bool_:
                check_fits(value.item(), part.dtype)
            value = value.to(part.dtype)  # filling a mask with one number converts it
        _set_advanced(part, advanced, value)
    else:
        if value.shape != part.shape:
            value = _strip_leading_ones(value, len(part.shape))
            if value.shape and value.shape != part.shape:
                value = value.expand(part.shape)  # may now be the very same elements
        if value.shape or value.device is not part.device:
            part.copy_(value)
        elif value is not part:
            part.fill_(value)


def _set_batched(part: Tensor, advanced: list[Any], value: Tensor) -> None:
    """Assign inside vmap, where tensors have no memory of their own, by operators that it intercepts."""
    if any(i is not None for i in advanced):
        part.index_put_(tuple(advanced), value)
    else:
        part.copy_(_strip_leading_ones(value, len(part.shape)))


def _fills_mask(t: Tensor, key: Any, value: Any) -> bool:
    """Return whether t[key] = value writes one number to the places of a mask, with nothing to record."""
    return (
        (type(value) is float or type(value) is int)
        and t.dtype.is_floating_point
        and type(key) is Tensor
        and key.dtype is dt.bool_
        and key.shape == t.shape
        and not (grad_mode.enabled and t.requires_grad)
    )


def _only_masks(key: Any) -> bool:
    """Return whether the arrays in x[key] are all boolean."""
    if isinstance(key, Tensor):
        return key.dtype is dt.bool_ or key.dtype is dt.uint8
    items = key if isinstance(key, tuple) or is_tuple_in_disguise(key) else (key,)
    arrays = [i for i in items if isinstance(i, Tensor) or is_sequence_index(i)]
    return not any(isinstance(i, bool) for i in items) and all(
        (i if isinstance(i, Tensor) else as_index_tensor(i)).dtype in (dt.bool_, dt.uint8) for i in arrays
    )


def _set_advanced(part: Tensor, advanced: list[Any], value: Tensor) -> None:
    if has_internal_overlap(part.shape, part._strides):
        part.index_put_(tuple(advanced), value)
        return
    check_writable(part)
    if grad_mode.enabled and (part.requires_grad or value.requires_grad):
        assign(part, index_put_prepared(part, advanced, value, False), "index_put_")
    else:
        put_at_(part, advanced, value, False)
        part._bump("index_put_")


def _value_tensor(value: Any, like: Tensor) -> Tensor:
    if isinstance(value, (bool, int, float, complex, np.integer)):
        if isinstance(value, complex) and not like.dtype.is_complex and like.dtype is not dt.bool_:
            raise RuntimeError(f"value cannot be converted to type {like.dtype} without losing its imaginary part")
        return fill_raw(empty((), like.dtype, like.device), value.item() if isinstance(value, np.generic) else value)
    raise TypeError(f"can't assign a {type_name(value)} to a {like.type()}")


def _strip_leading_ones(value: Tensor, ndim: int) -> Tensor:
    while len(value.shape) > ndim and value.shape[0] == 1:
        value = select(value, 0, 0)
    return value


# -- as PyTorch's operators ---------------------------------------------------------------------------------------------------

_NO_END = 2**63 - 1  # how PyTorch writes a slice without an end


def _getitem_in_aten(recorder: Any, self: Tensor, key: Any) -> Tensor:
    """Make the calls that traces show: every slice, with the numbers as written. `aten::index` takes masks unchanged."""
    items = key if isinstance(key, tuple) else (key,)
    if any(map(is_mask, items)):
        part, advanced = recorder.again(apply_basic, (self, key), {})
        return index.op.aten_calls(recorder, part, advanced)
    if not all(i is None or i is ... or _is_plain(i) for i in items):
        return recorder.again(getitem, (self, key), {})
    aten, part, dim = recorder.aten, self, 0
    for item in items:
        if item is ...:
            dim += len(self.shape) - sum(i is not None and i is not ... for i in items)
        elif item is None:
            part, dim = aten.unsqueeze.default(part, dim), dim + 1
        elif isinstance(item, slice):
            bounds = (item.start or 0, _NO_END if item.stop is None else item.stop, item.step or 1)
            numbers = [recorder.unseen(b.item) if isinstance(b, Tensor) else b for b in bounds]
            part, dim = aten.slice.Tensor(part, dim, *numbers), dim + 1
        else:
            part = aten.select.int(part, dim, item)
    return recorder.again(alias, (self,), {}) if part is self else part


def _is_plain(item: Any) -> bool:
    return isinstance(item, (int, slice)) and not isinstance(item, bool)


def _setitem_in_aten(recorder: Any, self: Tensor, key: Any, value: Any) -> None:
    """Make the calls that traces show for x[key] = value: `aten::index_put_` takes masks unchanged."""
    if _fills_mask(self, key, value) or not any(map(is_mask, key if isinstance(key, tuple) else (key,))):
        return recorder.again(setitem, (self, key, value), {})
    part, advanced = recorder.again(apply_basic, (self, key), {})
    given = value if isinstance(value, Tensor) else recorder.unseen(_value_tensor, value, self)
    recorder.aten.index_put_.default(part, advanced, given)
    return None


for _face, _calls in ((getitem, _getitem_in_aten), (setitem, _setitem_in_aten)):
    _face.__name__ = _face.__qualname__ = f"__{_face.__name__}__"
    _face.op = Op(_face.__name__, "composite", _face, (), aten_calls=_calls)
    FACE_CODES.add(_face.__code__)
OpenTensor.__getitem__ = getitem
OpenTensor.__setitem__ = setitem
