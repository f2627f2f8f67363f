"""Results with named fields: tuples that print and unpack as PyTorch's `torch.return_types`."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any, ClassVar

ALL: dict[str, type[NamedResult]] = {}


class NamedResult(tuple[Any, ...]):
    """A tuple whose elements also have names. Built from one iterable, as in PyTorch."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    n_fields: ClassVar[int] = 0
    n_sequence_fields: ClassVar[int] = 0
    n_unnamed_fields: ClassVar[int] = 0

    def __new__(cls, values: Iterable[Any]) -> NamedResult:
        self = tuple.__new__(cls, values)
        if len(self) != cls.n_fields:
            raise TypeError(
                f"torch.return_types.{cls.__name__}() takes an {cls.n_fields}-sequence ({len(self)}-sequence given)"
            )
        return self

    def delivered(self, out: Iterable[Any]) -> NamedResult:
        """Return the tensors given as out=, in PyTorch's type for that form."""
        return named_result(type(self).__name__ + "_out", *self._fields)(out)

    def __repr__(self) -> str:
        fields = ",\n".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"torch.return_types.{type(self).__name__}(\n{fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (type(self).__name__, tuple(self)))


def named_result(name: str, *fields: str) -> type[NamedResult]:
    """Return the result type of operator `name`.

    >>> pair = named_result("pair", "first", "second")
    >>> pair((1, 2)).second
    2
    """
    found = ALL.get(name)
    if found is not None:
        if found._fields != fields:
            raise ValueError(f"result type '{name}' already has the fields {found._fields}, not {fields}")
        return found
    space: dict[str, Any] = {f: property(itemgetter(i)) for i, f in enumerate(fields)}
    space.update(
        __slots__=(), _fields=fields, n_fields=len(fields), n_sequence_fields=len(fields), __match_args__=fields,
        __module__="torch.return_types",
    )  # fmt: skip
    ALL[name] = type(name, (NamedResult,), space)
    return ALL[name]


def _restore(name: str, values: tuple[Any, ...]) -> NamedResult:
    return ALL[name](values)
