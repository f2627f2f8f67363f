"""Checking what transforms are given."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any


def pair(size: Any, message: str) -> tuple[int, int]:
    """(height, width) from a number or a sequence."""
    if isinstance(size, numbers.Number):
        return int(size), int(size)  # type: ignore[call-overload]
    if isinstance(size, Sequence) and len(size) == 1:
        return size[0], size[0]
    if len(size) != 2:
        raise ValueError(message)
    return size


def check_sequence(value: Any, name: str, lengths: tuple[int, ...]) -> None:
    words = f"{lengths[0]}" if len(lengths) == 1 else " or ".join(str(n) for n in lengths)
    if not isinstance(value, Sequence):
        raise TypeError(f"{name} should be a sequence of length {words}.")
    if len(value) not in lengths:
        raise ValueError(f"{name} should be a sequence of length {words}.")


def symmetric_range(value: Any, name: str, lengths: tuple[int, ...] = (2,)) -> list[float]:
    """[-value, value], or the given bounds as floats."""
    if isinstance(value, numbers.Number):
        if value < 0:  # type: ignore[operator]
            raise ValueError(f"If {name} is a single number, it must be positive.")
        value = [-value, value]  # type: ignore[operator]
    else:
        check_sequence(value, name, lengths)
    return [float(x) for x in value]


def check_fill_type(fill: Any) -> None:
    if not isinstance(fill, (numbers.Number, str, tuple, list)):
        raise TypeError("Got inappropriate fill arg")
