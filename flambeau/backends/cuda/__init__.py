"""`torch.backends.cuda`: switches for matrix products and attention on CUDA. The CPU heeds those of attention."""

from __future__ import annotations

from typing import Any

attention_kernels = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


class _MatmulSettings:
    """Which shortcuts matrix products may take."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False


matmul = _MatmulSettings()


def is_built() -> bool:
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
