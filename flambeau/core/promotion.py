"""Type promotion: the dtype in which an operation on mixed operands computes."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

from . import dtype as dt
from .dtype import dtype

_default_dtype: list[dtype] = [dt.float32]


class Planner(Protocol):
    """The interface of caches that hold results of type promotion."""

    def forget_plans(self) -> None: ...


_planners: weakref.WeakSet[Planner] = weakref.WeakSet()


def depends_on_default_dtype(planner: Planner) -> None:
    """Register a planner whose plans are dropped whenever the default dtype changes."""
    _planners.add(planner)


def get_default_dtype() -> dtype:
    """Return the dtype of tensors made of Python floats."""
    return _default_dtype[0]


def set_default_dtype(d: dtype) -> None:
    """Choose the dtype of tensors made of Python floats."""
    if not isinstance(d, dtype):
        raise TypeError(f"invalid dtype object: only floating-point types are supported as the default type, got {d!r}")
    if not d.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {d}")
    if d is not _default_dtype[0]:
        _default_dtype[0] = d
        for planner in list(_planners):
            planner.forget_plans()


def default_complex() -> dtype:
    return _default_dtype[0].to_complex()


# NumPy's wider unsigned types: storage only, they mix with floating types and nothing else.
_BAREBONES = frozenset({dt.uint16, dt.uint32, dt.uint64})


def _promote_integers(a: dtype, b: dtype) -> dtype:
    if a.is_signed == b.is_signed:
        return a if a.itemsize >= b.itemsize else b
    signed = a if a.is_signed else b
    return signed if signed.itemsize > 1 else dt.int16


def _promote(a: dtype, b: dtype) -> dtype:
    if a is b:
        return a
    if a in dt.FLOAT8 or b in dt.FLOAT8:
        names = [d.name.replace("float", "Float") for d in (a, b)]
        raise RuntimeError(
            f"Promotion for Float8 Types is not supported, attempted to promote {names[0]} and {names[1]}"
        )
    if (a in _BAREBONES or b in _BAREBONES) and not (a.is_floating_point or b.is_floating_point):
        raise RuntimeError(
            f"Promotion for uint16, uint32, uint64 types is not supported, attempted to promote {a.name} and {b.name}"
        )
    if a.category != b.category:
        low, high = (a, b) if a.category < b.category else (b, a)
        if high.is_complex and low.is_floating_point:  # the real numbers' precision counts as much as that of the parts
            return high if low.to_complex().itemsize <= high.itemsize else low.to_complex()
        return high
    if a.category == 1:
        return _promote_integers(a, b)
    if a.itemsize == b.itemsize:  # float16 with bfloat16
        return dt.float32
    return a if a.itemsize > b.itemsize else b


_CACHE: dict[tuple[dtype, dtype], dtype] = {}


def promote_types(a: dtype, b: dtype) -> dtype:
    """Return the smallest dtype that holds both."""
    try:
        return _CACHE[a, b]
    except KeyError:
        result = _CACHE[a, b] = _promote(a, b)
        return result


def scalar_dtype(value: Any) -> dtype:
    """Return the dtype of a Python number if nothing else decides."""
    if isinstance(value, bool):
        return dt.bool_
    if isinstance(value, int):
        return dt.int64
    if isinstance(value, complex):
        return default_complex()
    return _default_dtype[0]


def result_dtype(operands: tuple[Any, ...]) -> dtype:
    """Return the dtype of a result by PyTorch's rule: tensors with dimensions decide; a 0-dim tensor or a number only raises the category.

    Operands are tensors or Python numbers."""
    best: list[dtype | None] = [None, None, None]  # dimensioned tensors, 0-dim tensors, numbers
    for x in operands:
        d = getattr(x, "dtype", None)
        rank = 2 if d is None else (0 if x.shape else 1)
        if d is None:
            d = scalar_dtype(x)
        held = best[rank]
        best[rank] = d if held is None else promote_types(held, d)
    result = best[0]
    for weaker in best[1:]:
        if weaker is None:
            continue
        if result is None:
            result = weaker
        elif weaker.category > result.category:
            result = result.to_complex() if weaker.is_complex and result.category == 2 else weaker
            if weaker.is_complex and best[0] is not None and best[0].category == 2:
                result = best[0].to_complex()
    assert result is not None
    return result


def can_cast(source: dtype, target: dtype) -> bool:
    """Return whether an in-place result of dtype `source` may be stored into `target`."""
    if source.is_complex and not target.is_complex:
        return False
    if source.is_floating_point and target.category < 2:
        return False
    return not (target is dt.bool_ and source is not dt.bool_)
