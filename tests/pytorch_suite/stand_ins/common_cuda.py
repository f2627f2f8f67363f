"""Decorators and constants about CUDA, which these tests do without."""

from __future__ import annotations

import contextlib
from typing import Any

from .permissive import guess, harmless

TEST_CUDA = TEST_MULTIGPU = TEST_CUDNN = TEST_MAGMA = IS_JETSON = IS_WINDOWS = IS_SM90 = TEST_NUMBA_CUDA = False

globals().update(harmless("tf32_on_and_off with_tf32_off xfailCUDAIfSM89OrLaterOnWindows xfailIfSM89PreCUDA13"))

tf32_off = tf32_on = tf32_enabled = contextlib.nullcontext


def _get_torch_cuda_version() -> tuple[int, int]:
    return 0, 0


_get_torch_rocm_version = _get_magma_version = _get_torch_cuda_version


def __getattr__(name: str) -> Any:
    if name.startswith(("SM", "PLATFORM_SUPPORTS", "CDNA", "IS_SM")):
        return False
    return guess(__name__, name)
