"""Access to the units of FullyShardedDataParallel in a model."""

from __future__ import annotations

from typing import Any

from ...nn import Module
from ._common_utils import fsdp_units

_get_fsdp_states = fsdp_units  # a unit is its own state


def _get_fsdp_handles(module: Module) -> list[Any]:
    """Return the flat parameters of all units."""
    return [unit._handle for unit in fsdp_units(module) if unit._handle is not None]
