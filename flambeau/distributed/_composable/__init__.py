"""Functions that change a model for distributed training without wrapping it: names of modules and parameters do not change."""

from .checkpoint_activation import checkpoint
from .contract import _get_registry, contract
from .replicate import replicate

__all__ = ["_get_registry", "checkpoint", "contract", "replicate"]
