"""PyTorch's former sharded tensors, superseded by DTensor, for programs and checkpoints that still have them."""

from __future__ import annotations

from . import sharded_tensor  # noqa: F401  first: specs and tensors know each other
from .api import _shard_tensor, load_with_process_group, shard_parameter

__all__ = ["_shard_tensor", "load_with_process_group", "shard_parameter"]
