"""Switches of PyTorch's TorchScript executor and of its kernels' choice. They are stored but have no effect: graphs are interpreted operator by
operator."""

from __future__ import annotations

from collections.abc import Callable

from ....autograd.engine import running
from ....core import modes
from ....core.absent import raising
from ....core.settings import cudnn_switches

_has_xpu = False


def _switch(setter: str, getter: str = "", start: bool = False) -> dict[str, Callable]:
    """Make a setter that returns the old value, and a getter."""

    setting = [start]

    def set_value(enabled: bool) -> bool:
        before, setting[0] = setting[0], bool(enabled)
        return before

    set_value.__name__ = set_value.__qualname__ = setter
    set_value.__doc__ = "Keep the setting, which nothing reads, and return the one before."
    return {setter: set_value, **({getter: lambda: setting[0]} if getter else {})}


globals().update(
    {
        **_switch("_jit_set_profiling_executor", start=True),
        **_switch("_jit_set_profiling_mode", start=True),
        **_switch("_jit_set_texpr_fuser_enabled", "_jit_texpr_fuser_enabled"),
        **_switch("_jit_override_can_fuse_on_cpu", "_jit_can_fuse_on_cpu"),
        **_switch("_jit_override_can_fuse_on_gpu", "_jit_can_fuse_on_gpu"),
        **_switch("_jit_set_nvfuser_enabled", "_jit_nvfuser_enabled"),
        **_switch("_jit_set_nvfuser_guard_mode"),
        **_switch("_jit_set_nvfuser_horizontal_mode"),
        **_switch("_set_math_sdp_allow_fp16_bf16_reduction", "_get_math_sdp_allow_fp16_bf16_reduction"),
        **raising(
            "_current_autograd_node _storage_Use_Count",
            NotImplementedError,
            "torch._C.{}() looks into PyTorch's own memory",
        ),
    }
)


def _get_cudnn_enabled() -> bool:
    """Return whether cuDNN may be used."""
    return cudnn_switches.enabled


def _are_functorch_transforms_active() -> bool:
    """Return whether `vmap`, `grad` or `jvp` is running in this thread."""
    return any(hasattr(mode, "depth") for mode in modes.own.stack)  # levels of vmap, and no other modes


def _current_graph_task_id() -> int:
    """Return a number that identifies the backward pass in this thread; -1 if there is none."""
    return -1 if running.current is None else id(running.current)
