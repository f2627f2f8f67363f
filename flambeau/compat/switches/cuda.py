"""`torch.backends.cuda`: switches for matrix products and attention on CUDA. The CPU heeds those of attention."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...core.settings import attention_kernels, matmul_switches

matmul = matmul_switches


def is_built() -> bool:
    """Return False: nothing here was compiled against CUDA, which is loaded where it is installed."""
    return False


def _pair(kind: str) -> tuple[Any, Any]:
    def enabled() -> bool:
        return attention_kernels[kind]

    def enable(enabled: bool) -> None:
        attention_kernels[kind] = bool(enabled)

    enabled.__name__ = enabled.__qualname__ = f"{kind}_sdp_enabled"
    enabled.__doc__ = f"Whether attention may use the {kind} kernel."
    enable.__doc__ = f"Let attention use the {kind} kernel, or not."
    enable.__name__ = enable.__qualname__ = f"enable_{kind}_sdp"
    return enabled, enable


flash_sdp_enabled, enable_flash_sdp = _pair("flash")
mem_efficient_sdp_enabled, enable_mem_efficient_sdp = _pair("mem_efficient")
math_sdp_enabled, enable_math_sdp = _pair("math")
cudnn_sdp_enabled, enable_cudnn_sdp = _pair("cudnn")


@contextmanager
def sdp_kernel(
    enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True
) -> Iterator[dict[str, bool]]:
    """The older form of `nn.attention.sdpa_kernel`: which kernels attention may use inside the block."""
    warnings.warn(
        "`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager will be removed. Please see"
        " `torch.nn.attention.sdpa_kernel()` for the new context manager, with updated signature.",
        FutureWarning,
        stacklevel=3,
    )
    before = dict(attention_kernels)
    chosen = {"flash": enable_flash, "mem_efficient": enable_mem_efficient, "math": enable_math, "cudnn": enable_cudnn}
    attention_kernels.update({kind: bool(allowed) for kind, allowed in chosen.items()})
    try:
        yield {}
    finally:
        attention_kernels.update(before)
