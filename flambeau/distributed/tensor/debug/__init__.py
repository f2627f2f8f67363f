"""Debugging of DTensors: which collectives run, and which rank has which part."""

from __future__ import annotations

from .._dispatch import forget_decisions as _forget
from .._dispatch import uses_of_decisions as _get_fast_path_sharding_prop_cache_stats  # noqa: F401 - PyTorch's name
from ._comm_mode import CommDebugMode
from ._visualize_sharding import visualize_sharding

_clear_sharding_prop_cache = _clear_python_sharding_prop_cache = _clear_fast_path_sharding_prop_cache = _forget

__all__ = ["CommDebugMode", "visualize_sharding"]
