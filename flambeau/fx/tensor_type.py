"""Shape annotations of tensors: `TensorType((2, Dyn))`."""

from __future__ import annotations

from typing import Any

__all__ = ["Dyn", "TensorType", "is_consistent", "is_more_precise"]


class TensorType:
    """A tensor of a given shape, some sizes of which may be unknown (`Dyn`)."""

    def __init__(self, dim: Any) -> None:
        self.__origin__ = TensorType
        self.__args__ = dim

    @property
    def dims(self) -> Any:
        return self.__args__

    def __repr__(self) -> str:
        return f"TensorType[{self.__args__}]"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, type(self)) and list(self.__args__) == list(other.__args__)

    def __hash__(self) -> int:
        return hash(tuple(self.__args__))

    @staticmethod
    def __class_getitem__(*args: Any) -> TensorType:
        return TensorType(args[0] if len(args) == 1 and isinstance(args[0], tuple) else args)


class _DynType:
    """An unknown type or size, consistent with every other."""

    def __init__(self) -> None:
        self.__name__ = "_DynType"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, type(self))

    def __hash__(self) -> int:
        return hash("_DynType")

    def __str__(self) -> str:
        return "Dyn"

    def __repr__(self) -> str:
        return "Dyn"


Dyn = _DynType()


def _are_consistent(first: Any, second: Any, unknown: Any) -> bool:
    if isinstance(first, TensorType) and isinstance(second, TensorType):
        same_rank = len(first.dims) == len(second.dims)
        return same_rank and all(_are_consistent(a, b, unknown) for a, b in zip(first.dims, second.dims))
    return first == second or unknown(first, second)


def is_consistent(t1: Any, t2: Any) -> bool:
    """Return whether two types can be equal: unknown parts are consistent with everything."""
    return _are_consistent(t1, t2, lambda a, b: a == Dyn or b == Dyn or _is_variable(a) or _is_variable(b))


def is_more_precise(t1: Any, t2: Any) -> bool:
    """Return whether the first type is at least as precise as the second."""
    return _are_consistent(t1, t2, lambda a, b: b == Dyn or _is_variable(b))


def _is_variable(kind: Any) -> bool:
    return type(kind).__name__ == "Var"
