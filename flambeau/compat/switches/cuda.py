"""`torch.backends.cuda`: switches for matrix products and attention on CUDA. The CPU respects those of attention."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...core import absent as _absent
from ...core import settings as _settings

matmul = _settings.matmul_switches
cuBLASModule = type(_settings.matmul_switches)


def is_built() -> bool:
    """Return False: nothing here was compiled against CUDA, which is loaded if it is installed."""
    return False


def _pair(kind: str) -> tuple[Callable[[], bool], Callable[[bool], None]]:
    def enabled() -> bool:
        return _settings.attention_kernels[kind]

    def enable(enabled: bool) -> None:
        _settings.attention_kernels[kind] = bool(enabled)

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
    """Context manager: set which kernels attention may use; the older form of `nn.attention.sdpa_kernel`."""
    warnings.warn(
        "`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager will be removed. Please see"
        " `torch.nn.attention.sdpa_kernel()` for the new context manager, with updated signature.",
        FutureWarning,
        stacklevel=3,
    )
    before = dict(_settings.attention_kernels)
    chosen = {"flash": enable_flash, "mem_efficient": enable_mem_efficient, "math": enable_math, "cudnn": enable_cudnn}
    _settings.attention_kernels.update({kind: bool(allowed) for kind, allowed in chosen.items()})
    try:
        yield {}
    finally:
        _settings.attention_kernels.update(before)


@dataclass
class SDPAParams:
    """The arguments of an attention call, to query which kernels could compute it."""

    query: Any
    key: Any
    value: Any
    attn_mask: Any
    dropout: float
    is_causal: bool
    enable_gqa: bool


def _is_requested(kind: str, params: SDPAParams, halves: bool) -> bool:
    """Return whether attention of GPU tensors may use a kernel; those of cuDNN take half precision alone."""
    return (
        _settings.attention_kernels[kind] and params.query.is_cuda and (not halves or params.query.dtype.itemsize == 2)
    )


def can_use_flash_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Return whether attention with these arguments keeps no matrix of weights: on a GPU, in half precision, without a mask."""
    return _is_requested("flash", params, True) and params.attn_mask is None


def can_use_efficient_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Return whether the memory-efficient kernel may compute the attention: on a GPU."""
    return _is_requested("mem_efficient", params, False)


def can_use_cudnn_attention(params: SDPAParams, debug: bool = False) -> bool:
    """Return whether cuDNN may compute the attention: on a GPU, in half precision."""
    return _is_requested("cudnn", params, True)


is_flash_attention_available, is_ck_sdpa_available = _absent.returning(
    "is_flash_attention_available is_ck_sdpa_available", bool, "nothing here was compiled with it."
).values()


_new_enum: Any = Enum  # by names that are only known when it runs


class _Choice:
    """Preferred library of the program: stored and returned, while the fastest available one is used."""

    def __init__(self, name: str, kinds: str):
        self.kinds = _new_enum(name, kinds, start=0)
        self.chosen = self.kinds["Default"]

    def __call__(self, backend: Any = None) -> Any:
        """Return the preferred library, after setting it if one is given."""
        if isinstance(backend, str):
            names = {kind.name.lower(): kind for kind in self.kinds}
            if backend not in names:
                raise RuntimeError(f"Unknown input value. Choose from: {', '.join(names)}.")
            self.chosen = names[backend]
        elif isinstance(backend, self.kinds):
            self.chosen = backend
        elif backend is not None:
            raise RuntimeError("Unknown input value type.")
        return self.chosen


preferred_linalg_library = _Choice("_LinalgBackend", "Default Cusolver Magma")
preferred_blas_library = _Choice("_BlasBackend", "Default Cublas Cublaslt Ck")
preferred_rocm_fa_library = _Choice("_ROCmFABackend", "Default AOTriton Ck")
_reduced_math = [False]


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Allow half-precision sums in attention without a fused kernel. It has no effect: sums are float32."""
    _reduced_math[0] = bool(enabled)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """Return the value set by `allow_fp16_bf16_reduction_math_sdp`."""
    return _reduced_math[0]


blas_workspace_size, cublas_workspace_size, cublaslt_workspace_size = _absent.raising(
    "blas_workspace_size cublas_workspace_size cublaslt_workspace_size",
    NotImplementedError,
    "backends.cuda.{}(): each product takes the workspace that cuBLASLt's heuristics ask for",
).values()
_NO_PLANS = "backends.cuda.{}: plans of cuFFT are kept by shape, and their number is not limited"
cuFFTPlanCache, cuFFTPlanCacheAttrContextProp, cuFFTPlanCacheManager = _absent.absent_classes(
    "cuFFTPlanCache cuFFTPlanCacheAttrContextProp cuFFTPlanCacheManager", _NO_PLANS, NotImplementedError
).values()
