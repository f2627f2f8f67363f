"""Names of PyTorch's compiled part that Python programs and pickles use."""

from __future__ import annotations

import flambeau as _VariableFunctionsClass  # the functions of `torch` are its attributes

from ..core.generator import Generator
from ..core.size import Size

__all__ = ["Generator", "Size", "_VariableFunctions", "_VariableFunctionsClass", "_log_api_usage_once"]

_VariableFunctions = _VariableFunctionsClass


def _log_api_usage_once(event: str) -> None:
    """Libraries report what is used; nobody listens."""
