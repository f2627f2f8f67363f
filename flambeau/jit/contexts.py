"""Context managers of compiled code, under the names that archives have for them."""

from __future__ import annotations

from typing import Any, Optional

from .named_values import OperatorNamespace

# ruff: noqa: UP045  the spelling of TorchScript
# mypy: ignore-errors

aten: Any = OperatorNamespace("aten")


class no_grad:
    """`with torch.no_grad():` in compiled code."""

    _jit_override_qualname = "__torch__.torch.autograd.grad_mode.no_grad"

    def __init__(self) -> None:
        self.prev = True

    def __enter__(self) -> None:
        self.prev = aten.is_grad_enabled()
        aten.set_grad_enabled(False)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        aten.set_grad_enabled(self.prev)


class autocast:
    """`with torch.autocast("cpu", torch.bfloat16):` in compiled code. PyTorch's compiler and this interpreter know it by its name and
    its attributes; the methods do nothing."""

    _jit_override_qualname = "__torch__.torch.amp.autocast_mode.autocast"

    def __init__(
        self, device_type: str, dtype: Optional[int] = None, enabled: bool = True, cache_enabled: Optional[bool] = None
    ):
        self._enabled = enabled
        self.device = device_type
        self.fast_dtype = aten.get_autocast_dtype(device_type) if dtype is None else dtype

    def __enter__(self):
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        return None


class record_function:
    """`with torch.profiler.record_function("name"):` in compiled code, known by its name as `autocast` is."""

    _jit_override_qualname = "__torch__.torch.autograd.profiler.record_function"

    def __init__(self, name: str, args: Optional[str] = None):
        self.name = name
        self.args = args

    def __enter__(self):
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        return None
