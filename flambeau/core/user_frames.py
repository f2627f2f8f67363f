"""Frames of the program that uses the library, distinguished from its own."""

from __future__ import annotations

import os
import sys
from types import FrameType

_INSIDE = __name__.split(".")[0] + "."  # how names of modules of this package begin


def user_frame() -> str:
    """Return file:line of the innermost caller outside this package: the line the user wrote."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_INSIDE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def is_own(frame: FrameType) -> bool:
    """Return whether a frame runs code of this package: a file of it, or text that it generated."""
    file = frame.f_code.co_filename
    made = file.startswith("<") and frame.f_globals.get("__name__", "").startswith(_INSIDE)
    return made or file.startswith(_FOLDER) or file == "<frozen runpy>"


_FOLDER = os.path.join(os.path.dirname(os.path.dirname(is_own.__code__.co_filename)), "")  # the package's own
