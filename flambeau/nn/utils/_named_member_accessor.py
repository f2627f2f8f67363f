"""Exchange of a module's tensors by name, without the checks of `setattr`."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from ..modules.module import Module

_MISSING: Any = object()


def swap_tensor(module: Module, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """Replace a parameter, buffer or plain attribute of a module by `tensor`; return the old value."""
    if not all(isinstance(value, kind) for value, kind in ((module, Module), (tensor, Tensor | None))):
        raise TypeError(f"expected a module and a tensor, got {type(module).__name__} and {type(tensor).__name__}")
    if not isinstance(name, str) or "." in name or not name:
        raise KeyError(f"tensor name can't contain '.' or be empty, got {name!r}")
    for table in (module._parameters, module._buffers):
        if name in table:
            before, table[name] = table[name], tensor
            return before
    before = getattr(module, name, _MISSING)
    if before is _MISSING and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    setattr(module, name, tensor)
    return before
