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


def _user_frame() -> tuple[Any, int]:
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "flambeau":
        frame, level = frame.f_back, level + 1
    return frame, level


def user_range() -> Range:
    frame, _ = _user_frame()
    source = Source("", frame.f_code.co_filename, frame.f_lineno)
    return Range(source, 0, 0, 0, 1)


def variable_name(tensor: Tensor) -> str:
    """Return the name of the variable that holds a tensor in the user's code, or in the layer that it calls.

    PyTorch's traced graphs show the names in the function of Python that calls an operator.
    """
    frame = sys._getframe(1)
    while (
        frame.f_back is not None and (room := str(frame.f_globals.get("__name__", ""))).partition(".")[0] == "flambeau"
    ):
        if room.startswith(_LAYERS) and not room.endswith((".module", ".hooks")):
            break
        frame = frame.f_back
    return next((name for name, held in frame.f_locals.items() if held is tensor and not name.startswith("_")), "")


def warn(text: str) -> None:
    _, level = _user_frame()
    warnings.warn(text, TracerWarning, stacklevel=level)
