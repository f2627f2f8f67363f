"""`replicate` on the engine of `fully_shard`: parameters are replicated DTensors, gradients are averaged."""

from __future__ import annotations

from typing import Any

from ...nn import Module, Parameter
from ..device_mesh import DeviceMesh
from ..fsdp._fully_shard._fsdp_api import MixedPrecisionPolicy, OffloadPolicy
from ..fsdp._fully_shard._fsdp_common import DDPMeshInfo
from ..fsdp._fully_shard._fsdp_init import _init_default_mesh, validate_module
from ..fsdp._fully_shard._fsdp_state import FSDPState
from ..fsdp._fully_shard._fully_shard import FSDPModule, apply
from .contract import _get_registry, contract


class _ReplicateState(FSDPState):
    _state_name = "Replicate"


class ReplicateModule(FSDPModule):
    """Methods that a module gets by `replicate`."""


def _is_composable_with_replicate(module: Module) -> bool:
    registry = _get_registry(module)
    return registry is None or "fully_shard" not in registry


@contract(state_cls=_ReplicateState)
def replicate(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(),  # noqa: B008
    offload_policy: OffloadPolicy = OffloadPolicy(),  # noqa: B008
    ignored_params: set[Parameter] | None = None,
) -> Any:
    """Average the gradients of a module over a mesh of one dimension, with the dtypes and hooks of `fully_shard`."""
    validate_module(module, "replicate")
    mesh = mesh or _init_default_mesh(mesh_dim_names=("replicate",))
    if mesh.ndim != 1:
        raise ValueError(f"replicate expects a 1D DeviceMesh but got {mesh}")
    apply(
        module, mesh, DDPMeshInfo(mesh, replicate_mesh_dim=0), False, None, mp_policy, offload_policy, ignored_params,
        replicate.state, ReplicateModule, "Replicate", _is_composable_with_replicate,
    )  # fmt: skip
    return module
