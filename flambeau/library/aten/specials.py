"""Operators of PyTorch whose meaning is not simply the function of their name: the table that the other files here fill."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ...ops import namespace

F: Any = SimpleNamespace(**namespace("nn.functional"))
REDUCTIONS = ("none", "mean", "sum")
SPECIAL: dict[str, Callable] = {}


def special(*names: str) -> Callable[[Callable], Callable]:
    """The decorated function is what runs for these operators (`softmax`) or overloads (`slice.Tensor`)."""

    def note(function: Callable) -> Callable:
        SPECIAL.update(dict.fromkeys(names, function))
        return function

    return note
