"""Decorators and constants about CUDA, which these tests do without."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import torch

from .permissive import guess, harmless

TEST_CUDA = TEST_MULTIGPU = TEST_CUDNN = TEST_MAGMA = IS_JETSON = IS_WINDOWS = IS_SM90 = TEST_NUMBA_CUDA = False

globals().update(harmless("tf32_on_and_off with_tf32_off xfailCUDAIfSM89OrLaterOnWindows xfailIfSM89PreCUDA13"))

tf32_off = tf32_on = tf32_enabled = contextlib.nullcontext


def _get_torch_cuda_version() -> tuple[int, int]:
    return 0, 0


_get_torch_rocm_version = _get_magma_version = _get_torch_cuda_version


def _create_scaling_models_optimizers(
    device: str = "cuda", optimizer_ctor: Any = None, optimizer_kwargs: Any = None
) -> Any:
    """A model and its copy, and an optimizer of each: one is trained with a gradient scaler, the other without."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).to(device)
    scaled = copy.deepcopy(model)
    make = optimizer_ctor or torch.optim.SGD
    options = {"lr": 1.0, **(optimizer_kwargs or {})}
    return model, scaled, make(model.parameters(), **options), make(scaled.parameters(), **options)


def _create_scaling_case(
    device: str = "cuda", dtype: Any = None, optimizer_ctor: Any = None, optimizer_kwargs: Any = None
) -> Any:
    """The models and optimizers, four batches, a loss, and the batch at which gradients are made infinite."""
    kind = {"dtype": dtype or torch.float32, "device": device}
    data = [(torch.randn(8, 8, **kind), torch.randn(8, 8, **kind)) for _ in range(4)]
    models = _create_scaling_models_optimizers(device, optimizer_ctor, optimizer_kwargs)
    return *models, data, torch.nn.MSELoss().to(device), 2


def __getattr__(name: str) -> Any:
    if name.startswith(("SM", "PLATFORM_SUPPORTS", "CDNA", "IS_SM")):
        return False
    return guess(__name__, name)
