"""Names shared by FullyShardedDataParallel and code that inspects it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from ...nn import Module
from ._fully_shard._fsdp_param_group import collect_grad_tensors

__all__ = ["clean_tensor_name", "collect_grad_tensors"]

FSDP_WRAPPED_MODULE = "_fsdp_wrapped_module"
FSDP_PREFIX = FSDP_WRAPPED_MODULE + "."
FLAT_PARAM = "_flat_param"
_CHECKPOINT_PREFIX = "_checkpoint_wrapped_module."


class TrainingState(Enum):
    """Phase that a FullyShardedDataParallel is in."""

    IDLE = auto()
    FORWARD_BACKWARD = auto()
    SUMMON_FULL_PARAMS = auto()


def clean_tensor_name(tensor_name: str) -> str:
    """Return a parameter's name without the prefixes of wrappers."""
    return tensor_name.replace(FSDP_PREFIX, "").replace(_CHECKPOINT_PREFIX, "")


def is_unit(module: Module) -> bool:
    """Return whether a module is a FullyShardedDataParallel."""
    return FSDP_WRAPPED_MODULE in module._modules


def fsdp_units(module: Module) -> list[Any]:
    """Return every FullyShardedDataParallel in a module, including itself."""
    return [m for m in module.modules() if is_unit(m)]


def _get_module_fsdp_state(module: Module) -> Any:
    return module if is_unit(module) else None
