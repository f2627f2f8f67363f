"""Optimizers for several processes."""

# ruff: noqa: F401

from __future__ import annotations

from typing import Any

from ...core import naming as _naming
from .apply_optimizer_in_backward import _apply_optimizer_in_backward, _get_in_backward_optimizers
from .post_localSGD_optimizer import PostLocalSGDOptimizer
from .zero_redundancy_optimizer import ZeroRedundancyOptimizer

__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]


def __getattr__(name: str) -> Any:
    if name == "DistributedOptimizer":  # needs the RPC framework, which is imported when it is used
        return _naming.submodule(__name__, "optimizer").DistributedOptimizer
    return _naming.submodule(__name__, name)
