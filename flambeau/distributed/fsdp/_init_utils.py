"""Setup of FullyShardedDataParallel: process groups, parameters, device, inner modules."""

from __future__ import annotations

import functools
import os
import warnings
from typing import Any

from ...core.backend import has_backend
from ...core.device import device as Device
from ...core.dtype import float32
from ...core.tensor import Tensor
from ...nn import Module, Parameter
from .. import groups
from ..device_mesh import DeviceMesh, init_device_mesh
from ..utils import _apply_to_tensors
from ._common_utils import is_unit
from ._fully_shard._fsdp_common import DDPMeshInfo, FSDPMeshInfo, HSDPMeshInfo, _cast_fp_tensor
from ._fully_shard._fsdp_init import _get_device_from_mesh
from .api import ShardingStrategy
from .wrap import _construct_wrap_fn, _Policy, _post_order_apply, _recursive_wrap, _run_mixed_precision_override_policy

HYBRID_SHARDING_STRATEGIES = [ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2]
NO_RESHARD_AFTER_FORWARD_STRATEGIES = (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2)


def ignored_by(module: Module, modules: Any, states: Any) -> tuple[set[Module], list[Any]]:
    """Return the modules and parameters to be ignored."""
    given = list(states or ())
    if given and not (all(isinstance(s, Parameter) for s in given) or all(isinstance(s, Module) for s in given)):
        types = sorted({type(s) for s in given}, key=repr)
        raise ValueError(
            f"ignored_states expects all nn.Parameter or all nn.Module list elements but got types {types}"
        )
    roots = [s for s in given if isinstance(s, Module)] + list(modules or ())
    if not all(isinstance(one, Module) for one in roots):
        types = sorted({type(one) for one in roots}, key=repr)
        raise ValueError(f"ignored_modules expects nn.Module list elements but got types {types}")
    if any(is_unit(one) for one in roots):
        raise ValueError("`ignored_modules` should not include FSDP modules")
    left_out = {child for one in roots for child in one.modules() if not is_unit(child)}
    if module in left_out:
        warnings.warn(
            "Trying to ignore the top-level module passed into the FSDP constructor itself will result in all parameters being ignored"
            f" and is not well-supported: {module}",
            stacklevel=3,
        )
    params = {id(p): p for one in roots for p in one.parameters()}
    params.update({id(s): s for s in given if isinstance(s, Parameter)})
    return left_out, list(params.values())


def mesh_info_for(strategy: ShardingStrategy, group: Any, mesh: DeviceMesh | None) -> Any:
    """Return the meshes of ranks that shard parameters and of those that replicate them."""
    where = "cuda" if has_backend(Device("cuda")) else "cpu"
    if strategy in HYBRID_SHARDING_STRATEGIES:
        if mesh is None:
            if group is None:
                local = min(
                    groups.get_world_size(),
                    max(1, int(os.environ.get("LOCAL_WORLD_SIZE", 0)) or groups.get_world_size()),
                )
                mesh = init_device_mesh(
                    where, (groups.get_world_size() // local, local), mesh_dim_names=("node", "local")
                )
            elif isinstance(group, (tuple, list)) and len(group) == 2:
                ranks = [groups.get_process_group_ranks(g) for g in group]
                if len(ranks[1]) * len(ranks[0]) == groups.get_world_size():
                    array = [[r - ranks[0][0] + start for r in ranks[0]] for start in ranks[1]]
                else:
                    array = [ranks[0]]
                mesh = DeviceMesh.from_group([group[1], group[0]], where, array, mesh_dim_names=("node", "local"))
            else:
                raise ValueError(
                    "Expected process_group to be passed in as either None or Tuple[dist.ProcessGroup, dist.ProcessGroup] but got"
                    f" {type(group)}"
                )
        return HSDPMeshInfo(mesh, shard_mesh_dim=1, replicate_mesh_dim=0)
    if mesh is None:
        if group is None:
            mesh = init_device_mesh(where, (groups.get_world_size(),))
        else:
            mesh = DeviceMesh.from_group(group, where)
    if strategy is ShardingStrategy.NO_SHARD or mesh.size() == 1:
        return DDPMeshInfo(mesh, replicate_mesh_dim=0)
    return FSDPMeshInfo(mesh, shard_mesh_dim=0)


def device_for(device_id: Any, params: list[Any], info: Any) -> Any:
    if device_id is not None:
        return Device("cuda", device_id) if isinstance(device_id, int) else Device(device_id)
    devices = {p.device for p in params if p.device.type != "meta"}
    if len(devices) > 1:
        raise RuntimeError(f"FSDP only supports single device modules but got params on {devices}")
    return devices.pop() if devices else _get_device_from_mesh(info.mesh)


def auto_wrap(
    kind: Any, module: Module, policy: Any, left_out: set[Module], ignored: list[Any], options: dict[str, Any]
) -> None:
    for name, one in module.named_modules():
        if is_unit(one):
            raise ValueError(
                f"FSDP auto wrapping requires modules to not already have FSDP applied but found {name} in\n{module}"
            )
    precision = options["mixed_precision"]
    classes = tuple(precision._module_classes_to_ignore) if precision is not None else ()
    kept = [one for one in module.modules() if isinstance(one, classes)] if classes else []
    for one in kept:
        one._wrap_overrides = {"mixed_precision": None}
        _work_in_float32(one)
    if kept:
        warnings.warn(
            "Both mixed precision and an auto_wrap_policy were specified to FSDP, where the wrapped module has submodules of type:\n"
            f"{ {type(one) for one in kept} }\nThese modules will be wrapped as separate FSDP instacnes with mixed precision disabled.",
            stacklevel=3,
        )
    if isinstance(policy, _Policy):
        targets = policy._run_policy(module, left_out, options)
        if classes:
            targets = _run_mixed_precision_override_policy(module, classes, left_out, options, targets)
        _post_order_apply(module, _construct_wrap_fn(module, targets, kind))
        return
    if classes:
        inner = policy

        def policy(module: Module, recurse: bool, nonwrapped_numel: int) -> bool:
            if recurse or isinstance(module, classes):
                return True  # those classes are looked for everywhere
            return inner(module=module, recurse=recurse, nonwrapped_numel=nonwrapped_numel)

    _recursive_wrap(module, policy, kind, left_out, set(ignored), only_wrap_children=True, **options)


def _work_in_float32(module: Module) -> None:
    """Add hooks to a module excluded from mixed precision: its inputs are cast to float32, and its results cast back."""
    given: list[Any] = []

    def before(module: Module, args: tuple) -> tuple:
        given[:] = [t.dtype for t in args if isinstance(t, Tensor) and t.dtype.is_floating_point]
        return _apply_to_tensors(functools.partial(_cast_fp_tensor, float32), args)

    def after(module: Module, args: tuple, output: Any) -> Any:
        return _apply_to_tensors(functools.partial(_cast_fp_tensor, given[0]), output) if given else output

    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)
