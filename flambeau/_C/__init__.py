"""Names of PyTorch's compiled part that Python programs and pickles use."""

from __future__ import annotations

import flambeau as _VariableFunctionsClass  # the functions of `torch` are its attributes

from ..core.generator import Generator
from ..core.overrides import DisableTorchFunction, DisableTorchFunctionSubclass
from ..core.overrides import disabled_torch_function as _disabled_torch_function_impl
from ..core.size import Size

__all__ = [
    "DisableTorchFunction", "DisableTorchFunctionSubclass", "Generator", "Size", "_VariableFunctions", "_VariableFunctionsClass",
    "_disabled_torch_function_impl", "_log_api_usage_once",
]  # fmt: skip

_VariableFunctions = _VariableFunctionsClass


def _log_api_usage_once(event: str) -> None:
    """Libraries report what is used; nobody listens."""
