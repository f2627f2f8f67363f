"""Rules of names: which are valid, how those of several tensors unify, and the position of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...core.named import Names


def quoted(name: str | None) -> str:
    return "None" if name is None else f"'{name}'"


def shown(names: Iterable[str | None]) -> str:
    return f"[{', '.join(map(quoted, names))}]"


def checked(names: Any, ndim: int) -> Names:
    """Return names that a tensor of `ndim` dimensions may have; raise for others."""
    names = tuple(names)
    for name in names:
        if name is not None and not (isinstance(name, str) and name.isascii() and name.isidentifier()):
            if not isinstance(name, str):
                raise TypeError(f"names: expected None or string, but got {type(name).__name__}")
            raise RuntimeError(
                f"Invalid name: a valid identifier contains only digits, alphabets, and/or underscore and starts with a"
                f" non-digit. got: '{name}'."
            )
    if ndim > 64:
        raise RuntimeError(f"Named tensors only support up to 64 dims: Attempted to create a tensor with dim {ndim}")
    if len(names) != ndim:
        raise RuntimeError(
            f"Number of names ({len(names)}) and number of dimensions in tensor ({ndim}) do not match. Attempted to create a"
            f" tensor with names {shown(names)}"
        )
    return without_twins(names)


def without_twins(names: Iterable[str | None]) -> Names:
    names = tuple(names)
    given = [name for name in names if name is not None]
    if len(set(given)) < len(given):
        raise RuntimeError(f"Cannot construct a tensor with duplicate names. Got names: {shown(names)}.")
    return names


def position(name: Any, names: Names) -> int:
    """Return the position of a dimension's name."""
    if name is None:
        raise RuntimeError("Please look up dimensions by name, got: name = None.")
    if name not in names:
        raise RuntimeError(f"Name {quoted(name)} not found in Tensor{shown(names)}.")
    return names.index(name)


def unify(a: Names, b: Names, action: str = "broadcast") -> Names:
    """Return the names of what two tensors broadcast to: from the right, None matches anything."""
    result: list[str | None] = []
    for i in range(1, max(len(a), len(b)) + 1):
        x, y = (names[-i] if i <= len(names) else None for names in (a, b))
        if x is not None and y is not None and x != y:
            raise RuntimeError(
                f"Error when attempting to {action} dims {shown(a)} and dims {shown(b)}: dim {quoted(x)} and dim {quoted(y)} are"
                " at the same position from the right but do not match."
            )
        for name, other, others in ((x, y, b), (y, x, a)):
            if name is not None and other is None and name in others:
                raise RuntimeError(
                    f"Misaligned dims when attempting to {action} dims {shown(a)} and dims {shown(b)}: dim {quoted(name)}"
                    " appears in a different position from the right across both lists."
                )
        result.insert(0, x if x is not None else y)
    return tuple(result)


def unify_all(several: Iterable[Names], action: str = "broadcast") -> Names:
    result: Names = ()
    for names in several:
        result = unify(result, names, action)
    return result


def product(a: Names, b: Names, what: str) -> Names:
    """Return the names of a matrix product: batch dimensions unify, then the rows of the first and the columns of the second."""
    batch_a, batch_b = a[:-2], b[:-2]
    for i in range(1, max(len(batch_a), len(batch_b)) + 1):
        x, y = (names[-i] if i <= len(names) else None for names in (batch_a, batch_b))
        for name, other, others in ((x, y, b), (y, x, a)):
            if name is not None and other is None and name in others:
                raise RuntimeError(
                    f"{what}: Cannot match dim {quoted(name)} of {shown(a if others is b else b)} with None of {shown(others)}"
                    f" because the latter names already have {quoted(name)}. Are these tensors misaligned?"
                )
    rows = a[-2:-1] if len(a) > 1 else ()
    columns = b[-1:] if len(b) > 1 else ()
    names = (*unify(batch_a, batch_b, what), *rows, *columns)
    given = [name for name in names if name is not None]
    if len(set(given)) < len(given):
        raise RuntimeError(
            f"Matrix-multiplying Tensor{shown(a)} with Tensor{shown(b)} would produce output tensor with duplicate names"
            f" {shown(names)}. Please rename the input tensors with `Tensor.rename` to prevent this."
        )
    return names


def expanded(given: Sequence[Any], names: Names, what: str) -> Names:
    """Return names in which `...` is replaced by the tensor's own at these places."""
    given = ["..." if name is ... else name for name in given]
    if given.count("...") > 1:
        raise RuntimeError(
            f"{what}: More than one Ellipsis ('...') found in names {tuple(given)}. This function supports up to one."
        )
    if "..." not in given:
        return tuple(given)
    start = given.index("...")
    rest = len(given) - start - 1
    return (*given[:start], *names[start : len(names) - rest], *given[start + 1 :])
