"""Sharding of replicated activations between the forward and the backward pass."""

from __future__ import annotations

import functools
from typing import Any

from ....autograd.graph import saved_tensors_hooks
from ....core.tensor import Tensor
from ...device_mesh import DeviceMesh
from .._dtensor import DTensor
from ..placement_types import Replicate, Shard, _is_shard_like

__all__ = ["input_reshard"]


def input_reshard(module: Any, tp_device_mesh: DeviceMesh, input_reshard_dim: int | None = None) -> Any:
    """Shard the tensors that a module saves for its backward pass along a dimension, one shard on each rank: in tensor parallelism
    all ranks have the same inputs. `input_reshard_dim=None` leaves the module unchanged."""
    if input_reshard_dim is None:
        return module
    open_hooks: list[Any] = []

    def begin(_: Any, inputs: Any) -> None:
        hooks = saved_tensors_hooks(
            functools.partial(_pack_hook_tp, tp_device_mesh, input_reshard_dim),
            functools.partial(_unpack_hook_tp, tp_device_mesh, input_reshard_dim),
        )
        hooks.__enter__()
        open_hooks.append(hooks)

    def end(_: Any, inputs: Any, outputs: Any) -> None:
        open_hooks.pop().__exit__()

    module.register_forward_pre_hook(begin)
    module.register_forward_hook(end)
    return module


def _pack_hook_tp(mesh: DeviceMesh, input_reshard_dim: int, x: Any) -> Any:
    """Return this rank's part of a tensor that all ranks have."""
    if isinstance(x, DTensor):
        return x.redistribute(mesh, [Shard(input_reshard_dim)]) if x._spec.is_replicated() else x
    if isinstance(x, Tensor) and x.numel() >= mesh.size():
        return DTensor.from_local(x, mesh).redistribute(mesh, [Shard(input_reshard_dim)]).to_local()
    return x


def _unpack_hook_tp(mesh: DeviceMesh, input_reshard_dim: int, x: Any) -> Any:
    """Return the whole tensor, gathered from the saved parts of all ranks."""
    if isinstance(x, DTensor):
        cut = len(x.placements) == 1 and _is_shard_like(x.placements[0])
        return x.redistribute(mesh, [Replicate()]) if cut else x
    if isinstance(x, Tensor) and x.numel() >= mesh.size():
        return DTensor.from_local(x, mesh, [Shard(input_reshard_dim)]).redistribute(mesh, [Replicate()]).to_local()
    return x
