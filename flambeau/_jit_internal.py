"""Names of TorchScript's internals that modules of other libraries use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import jit as _jit
from .jit.annotations import BroadcastingList2, BroadcastingList3
from .jit.marks import Mark

__all__ = ["BroadcastingList2", "BroadcastingList3"]


def _copy_to_script_wrapper(fn: Callable) -> Callable:
    """Mark a method that a compiled module shall have as it is, in Python."""
    fn._torchscript_modifier = Mark.COPY  # type: ignore[attr-defined]
    return fn


def __getattr__(name: str) -> Any:
    return getattr(_jit, name)
