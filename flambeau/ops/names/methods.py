"""Methods for the names of dimensions: rename, refine, align."""

from __future__ import annotations

from typing import Any

from ...core.named import Names, names_of, plain
from ...core.tensor import Tensor
from .algebra import checked, expanded, quoted, shown
from .propagation import give_names


def _view_with(t: Tensor, names: Names) -> Tensor:
    """Return a view of a tensor with these names."""
    value: Any = plain(t)
    return give_names(
        value.view(value.shape) if value._contig else value.as_strided(value.shape, value._strides), names
    )


def renamed(t: Tensor, given: tuple[Any, ...], changes: dict[str, str], in_place: bool) -> Tensor:
    """Return the tensor with other names: all of them, with `...` for unchanged ones, or some by `old=new`."""
    what, names = "rename_" if in_place else "rename", names_of(t)
    if given and changes:
        raise RuntimeError(f"{what}: Only accepts either positional args or keyword args, but not both")
    if changes:
        for old in changes:
            if old not in names:
                raise RuntimeError(
                    f"{what}: Tried to rename dim '{old}' to '{changes[old]}' in Tensor{shown(names)} but dim '{old}' does not exist"
                )
        new: Any = tuple(changes.get(name, name) if name is not None else None for name in names)
    elif given == (None,):
        new = (None,) * len(names)
    else:
        listed = given[0] if len(given) == 1 and isinstance(given[0], (list, tuple)) else given
        new = expanded(listed, names, what)
    if in_place:
        return give_names(t, new)
    return _view_with(t, checked(new, len(names)))


def refined(t: Tensor, given: tuple[Any, ...]) -> Tensor:
    """Return the tensor with names for dimensions that have none; existing ones must be the same."""
    names = names_of(t)
    listed = given[0] if len(given) == 1 and isinstance(given[0], (list, tuple)) else given
    new = expanded(listed, names, "refine_names")
    if len(new) != len(names):
        raise RuntimeError(
            f"refine_names: cannot coerce Tensor{shown(names)} to Tensor{shown(new)} because they have a different number of dims"
            f" ({len(names)} and {len(new)} respectively)."
        )
    for old, name in zip(names, new, strict=True):
        if old is not None and old != name:
            why = (
                f"{quoted(old)} is more specific than None"
                if name is None
                else f"{quoted(old)} is different from {quoted(name)}"
            )
            raise RuntimeError(f"refine_names: cannot coerce Tensor{shown(names)} to Tensor{shown(new)} because {why}")
    return _view_with(t, checked(new, len(names)))


def aligned(t: Tensor, given: tuple[Any, ...]) -> Tensor:
    """Return the tensor with dimensions in the order of these names; new ones of size 1, `...` for those that are not listed."""
    names = names_of(t)
    order = [
        "..." if n is ... else n
        for n in (given[0] if len(given) == 1 and isinstance(given[0], (list, tuple)) else given)
    ]
    if None in order:
        raise RuntimeError("align_to: the desired order of dimensions cannot contain a None name, got: " + shown(order))
    listed = [n for n in order if n != "..."]
    if len(set(listed)) < len(listed):
        raise RuntimeError(f"align_to: duplicate names in the desired order of dimensions {shown(order)}")
    if "..." in order:
        at = order.index("...")
        places: list[Any] = [*order[:at], *(i for i, n in enumerate(names) if n not in listed), *order[at + 1 :]]
    else:
        for i, name in enumerate(names):
            if name is None:
                raise RuntimeError(
                    f"align_to: All input dims must be named. Found unnamed dim at index {i} of Tensor{shown(names)}"
                )
            if name not in listed:
                raise RuntimeError(
                    f"align_to: Cannot find dim {quoted(name)} of Tensor{shown(names)} in {shown(order)}"
                )
        places = list(order)
    value: Any = plain(t)
    taken = [p if isinstance(p, int) else names.index(p) if p in names else None for p in places]
    result = value.permute([p for p in taken if p is not None])
    for i, p in enumerate(taken):
        if p is None:
            result = result.unsqueeze(i)
    return give_names(result, tuple(names[p] if isinstance(p, int) else p for p in places))
