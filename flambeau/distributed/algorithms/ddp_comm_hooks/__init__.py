"""Communication hooks for DistributedDataParallel: how the gradients of a bucket are averaged."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

from . import debugging_hooks as debugging
from . import default_hooks as default
from . import post_localSGD_hook as post_localSGD
from . import powerSGD_hook as powerSGD
from . import quantization_hooks as quantization

__all__ = [
    "DDPCommHookType", "debugging", "default", "post_localSGD", "powerSGD", "quantization", "register_ddp_comm_hook",
]  # fmt: skip


def _register_with_state(hook: Any, model: Any, state: Any) -> None:
    model.register_comm_hook(state, hook)


def _register_powersgd(hook: Any, model: Any, state: Any, matrix_approximation_rank: int) -> None:
    model.register_comm_hook(powerSGD.PowerSGDState(state, matrix_approximation_rank), hook)


class DDPCommHookType(Enum):
    """Communication hooks of DistributedDataParallel by name."""

    ALLREDUCE = partial(_register_with_state, default.allreduce_hook)
    FP16_COMPRESS = partial(_register_with_state, default.fp16_compress_hook)
    BF16_COMPRESS = partial(_register_with_state, default.bf16_compress_hook)
    QUANTIZE_PER_TENSOR = partial(_register_with_state, quantization.quantization_pertensor_hook)
    QUANTIZE_PER_CHANNEL = partial(_register_with_state, quantization.quantization_perchannel_hook)
    POWER_SGD = partial(_register_powersgd, powerSGD.powerSGD_hook, matrix_approximation_rank=1)
    POWER_SGD_RANK2 = partial(_register_powersgd, powerSGD.powerSGD_hook, matrix_approximation_rank=2)
    BATCHED_POWER_SGD = partial(_register_powersgd, powerSGD.batched_powerSGD_hook, matrix_approximation_rank=1)
    BATCHED_POWER_SGD_RANK2 = partial(_register_powersgd, powerSGD.batched_powerSGD_hook, matrix_approximation_rank=2)
    NOOP = partial(_register_with_state, debugging.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Register one of the hooks for averaging a model's gradients."""
    comm_hook_type.value(model=model, state=state)
