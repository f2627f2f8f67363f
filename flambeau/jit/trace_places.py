"""Locations in the user's code during a trace: for source ranges, names of variables and warnings."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from ..core.tensor import Tensor
from .source import Range, Source

_LAYERS = ("flambeau.nn.functional", "flambeau.nn.modules.")


class TracerWarning(Warning):
    """Warning about what a trace cannot represent: Python values that depend on tensors, results that differ."""


def _user_frame(layers: bool = False) -> tuple[Any, int]:
    """Return the innermost frame of the user's code, or with `layers` that of a layer which it called, and its level."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None:
        room = str(frame.f_globals.get("__name__", ""))
        is_layer = room.startswith(_LAYERS) and not room.endswith((".module", ".hooks"))
        if room.partition(".")[0] != "flambeau" or (layers and is_layer):
            break
        frame, level = frame.f_back, level + 1
    return frame, level


def user_range() -> Range:
    frame, _ = _user_frame()
    source = Source("", frame.f_code.co_filename, frame.f_lineno)
    return Range(source, 0, 0, 0, 1)


def variable_name(tensor: Tensor) -> str:
    """Return the variable that holds a tensor in the user's code, or in a layer it calls: PyTorch's traced graphs show these names."""
    frame, _ = _user_frame(layers=True)
    return next((name for name, held in frame.f_locals.items() if held is tensor and not name.startswith("_")), "")


def warn(text: str) -> None:
    _, level = _user_frame()
    warnings.warn(text, TracerWarning, stacklevel=level)


def warn_of_constant(kind: str) -> None:
    """Warn that a tensor or a size became a number or a truth value of Python, which a trace keeps as it is."""
    warn(f"Converting a tensor to a Python {kind} might cause the trace to be incorrect. We can't record the data flow of Python values, so this value will be treated as a constant in the future. This means that the trace might not generalize to other inputs!")  # fmt: skip


def is_user_call() -> bool:
    """Return whether the function that asks was called by code outside this library."""
    return str(sys._getframe(2).f_globals.get("__name__", "")).partition(".")[0] != "flambeau"
