"""Sharding of one rank's tensor over all ranks, and the process group of tensors that are unpickled."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ...nn import Module, Parameter
from .. import groups

_loading: list[Any] = [None]


@contextlib.contextmanager
def load_with_process_group(process_group: Any) -> Iterator[Any]:
    """Context manager: ShardedTensors unpickled inside belong to this process group."""
    if _loading[0] is not None:
        raise RuntimeError('ProcessGroup already set by previous "load_with_process_group" context manager')
    _loading[0] = process_group
    try:
        yield process_group
    finally:
        _loading[0] = None


def _get_current_process_group() -> Any:
    return groups._get_default_group() if _loading[0] is None else _loading[0]


def _shard_tensor(tensor: Any, sharding_spec: Any, src_rank: int = 0, process_group: Any = None) -> Any:
    """Shard the tensor of rank `src_rank` according to the spec."""
    if not tensor.is_contiguous():
        raise ValueError("input tensor is not a contiguous Tensor")
    return sharding_spec.shard(tensor, src_rank=src_rank, process_group=process_group or groups._get_default_group())


def shard_parameter(
    module: Module, param_name: str, sharding_spec: Any, src_rank: int = 0, process_group: Any = None
) -> None:
    """Replace a module's parameter by a ShardedTensor."""
    if not hasattr(module, param_name):
        raise AttributeError(f"{module._get_name()} has no attribute `{param_name}`")
    tensor = getattr(module, param_name)
    if not isinstance(tensor, Parameter):
        raise ValueError(
            f"Expected {type(module).__name__}.{param_name} to be a Tensor, but found {type(tensor).__name__}"
        )
    spread = _shard_tensor(tensor, sharding_spec, src_rank, process_group)
    delattr(module, param_name)
    setattr(module, param_name, spread)
