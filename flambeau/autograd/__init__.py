"""Automatic differentiation."""

from typing import Any

from ..core.naming import submodule
from . import functional, graph
from .api import backward, bind, grad
from .function import Function, FunctionCtx, NestedIOFunction, once_differentiable
from .grad_mode import (
    detect_anomaly,
    enable_grad,
    inference_mode,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    is_grad_enabled,
    is_inference_mode_enabled,
    is_multithreading_enabled,
    no_grad,
    set_detect_anomaly,
    set_grad_enabled,
    set_multithreading_enabled,
)
from .gradcheck import GradcheckError, gradcheck, gradgradcheck
from .variable import Variable

bind()


def __getattr__(name: str) -> Any:
    """Import forward_ad, profiler and the like on first use."""
    if name in _HOMES:
        return getattr(submodule(__name__, _HOMES[name]), name)
    return submodule(__name__, name)


_HOMES = dict.fromkeys(
    ("DeviceType", "ProfilerActivity", "ProfilerConfig", "ProfilerState", "kineto_available", "_profiler_enabled", "_disable_profiler"),
    "profiler",
)  # fmt: skip


__all__ = [
    "Function", "FunctionCtx", "NestedIOFunction", "GradcheckError", "Variable", "anomaly_mode", "backward", "detect_anomaly",
    "enable_grad", "functional", "grad", "gradcheck", "gradgradcheck", "graph", "inference_mode",
    "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "is_grad_enabled", "is_inference_mode_enabled",
    "is_multithreading_enabled", "no_grad", "once_differentiable", "set_detect_anomaly", "set_grad_enabled",
    "set_multithreading_enabled",
]  # fmt: skip
