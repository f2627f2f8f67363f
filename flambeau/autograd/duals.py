"""Tensors that carry a tangent, for forward-mode derivatives: the open level, and the tangents of tensors.

A tangent has the layout of its tensor, and the tangent of a view is the same view of the tangent: a change through one is visible through the
other, as with the tensors themselves."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core import modes
from ..core.tensor import Tensor
from ..ops.machinery.inplace import view_through


class DualLevel(modes.Mode):
    """Open level of forward-mode differentiation, with the tensors whose tangents are removed when it ends."""

    def __init__(self) -> None:
        self.carriers: list[weakref.ref[Tensor]] = []

    def close(self) -> None:
        for reference in self.carriers:
            carrier = reference()
            if carrier is not None:
                carrier.__dict__.pop("_tangent", None)


open_levels: list[DualLevel] = []


def _tangent_of(x: Tensor) -> Tensor | None:
    held = x.__dict__.get("_tangent")
    return None if held is None else held[1]


def tangent_of(x: Tensor) -> Tensor | None:
    """Return the tangent that x carries at the open level, or None. A view takes that of its base, if the base got one later."""
    if not open_levels:
        return None
    if "_tangent" not in x.__dict__ and x._base is not None and _can_carry(x):
        whole = _tangent_of(x._base)
        if whole is not None:
            carry(x, _part(whole, x._base, x))
    return _tangent_of(x)


def _can_carry(x: Tensor) -> bool:
    return x.dtype.is_floating_point or x.dtype.is_complex


def carry(x: Tensor, tangent: Tensor | None) -> Any:
    """Set the tangent that x carries, or None, independently of its base."""
    level = open_levels[-1]
    x.__dict__["_tangent"] = (level, tangent)
    level.carriers.append(weakref.ref(x))
    return tangent


def _part(whole: Tensor, base: Tensor, view: Tensor) -> Tensor:
    """Return the part of base's tangent that belongs to a view of base."""
    scale = base.dtype.itemsize / view.dtype.itemsize  # a real view of a complex base counts in halves
    offset = view._offset - int(base._offset * scale) + int(whole._offset * scale)
    return view_through(whole, view.shape, view._strides, offset, view.dtype)


def laid_out_like(tangent: Tensor, x: Tensor) -> Tensor:
    """Return the tangent with x's strides: itself, if it has them."""
    if tangent._strides == x._strides or tangent.is_sparse or x.numel() < 2:
        return tangent
    return x.detach().new_empty_strided(x.shape, x._strides).copy_(tangent)


def give(x: Tensor, tangent: Tensor) -> None:
    """Set the tangent of x, which was changed in place, so that all views of x see it."""
    held = tangent_of(x)
    if held is not None:
        held.copy_(tangent)
        return
    base = x._base
    if base is None or not _can_carry(base):
        carry(x, laid_out_like(tangent, x))
        return
    whole = base.detach().new_empty_strided(base.shape, base._strides).zero_()
    carry(x, _part(carry(base, whole), base, x)).copy_(tangent)


@contextmanager
def levels_closed() -> Iterator[None]:
    """Context manager: compute no tangents inside."""
    closed = [level for level in open_levels if level in modes.own.stack]
    for level in closed:
        level.__exit__()
    try:
        yield
    finally:
        for level in closed:
            level.__enter__()


def has_tangent(args: Any) -> bool:
    return bool(open_levels) and any(isinstance(a, Tensor) and tangent_of(a) is not None for a in args)
