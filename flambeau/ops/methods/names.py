"""Names of dimensions, as methods of tensors."""

from __future__ import annotations

from typing import Any

from ...core.named import is_named, names_of
from ...core.tensor import OpenTensor, Tensor
from ..names.algebra import position
from ..names.methods import aligned, refined, renamed
from ..names.propagation import give_names


def _get_names(self: Tensor) -> tuple[str | None, ...]:
    """The names of the dimensions, None for those without; assign to change them."""
    return names_of(self)


def dimension_called(name: str, t: Tensor) -> int:
    """Return the index of a named dimension."""
    return position(name, names_of(t))


def _set_names(self: Tensor, names: Any) -> None:
    give_names(self, names)


def has_names(self: Tensor) -> bool:
    """Return whether a dimension has a name."""
    return is_named(self)


def rename(self: Tensor, *names: Any, **rename_map: str) -> Tensor:
    """A view with other names: all of them, `...` for unchanged ones, None to drop them, or some by `old="new"`."""
    return renamed(self, names, rename_map, False)


def rename_(self: Tensor, *names: Any, **rename_map: str) -> Tensor:
    """Change names in place; see rename."""
    return renamed(self, names, rename_map, True)


def refine_names(self: Tensor, *names: Any) -> Tensor:
    """A view with names for dimensions that have none; `...` for unchanged ones."""
    return refined(self, names)


def align_to(self: Tensor, *names: Any) -> Tensor:
    """A view with its dimensions in this order, new ones of size 1 for new names, `...` for those that are not listed."""
    return aligned(self, names)


def align_as(self: Tensor, other: Tensor) -> Tensor:
    """A view with its dimensions in the order of other's, and new ones of size 1 for those it lacks."""
    return aligned(self, names_of(other))


def align_tensors(*tensors: Tensor) -> Any:
    """Raise PyTorch's error, which has no such function either."""
    raise RuntimeError("align_tensors not yet implemented.")


OpenTensor.names = property(_get_names, _set_names)
for _method in (has_names, rename, rename_, refine_names, align_to, align_as):
    setattr(Tensor, _method.__name__, _method)
