"""Selection of the mesh, modules and parameters that `fully_shard` applies to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ....core.backend import backend_of, has_backend
from ....core.device import device as Device
from ....nn import Module, ModuleDict, ModuleList, Parameter
from ... import groups
from ..._composable.contract import _get_registry
from ...device_mesh import DeviceMesh, init_device_mesh
from ...tensor import DTensor
from ._fsdp_common import DataParallelMeshInfo, FSDPMeshInfo, HSDPMeshInfo, resolve_shard_placement
from ._fsdp_param_group import FSDPParamGroup
from ._fsdp_state import FSDPState, _get_module_fsdp_state

logger = logging.getLogger("torch.distributed.fsdp.fully_shard")


def validate_module(module: Any, what: str) -> None:
    if isinstance(module, (ModuleList, ModuleDict)) and type(module).forward is Module.forward:
        raise ValueError(f"{what} does not support containers that do not implement forward: {module}")


def validate_mesh(mesh: DeviceMesh) -> None:
    if mesh.ndim not in (1, 2):
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    if mesh.ndim == 2 and mesh.mesh_dim_names is None:
        raise AssertionError("Please init the 2D mesh for HSDP with mesh_dim_names specified")


def mesh_info_of(mesh: DeviceMesh) -> FSDPMeshInfo:
    """Return the meaning of a mesh's dimensions: one shards parameters; of two the first replicates them."""
    if mesh.ndim == 1:
        return FSDPMeshInfo(mesh, shard_mesh_dim=0)
    return HSDPMeshInfo(mesh, shard_mesh_dim=1, replicate_mesh_dim=0)


def _get_post_forward_mesh_info(reshard_after_forward: bool | int, mesh_info: FSDPMeshInfo) -> FSDPMeshInfo | None:
    """Return the ranks over which parameters are sharded between the passes; None if they stay whole."""
    size = mesh_info.shard_mesh_size
    if not isinstance(reshard_after_forward, (bool, int)):
        raise ValueError(
            "reshard_after_forward should be a bool or an int representing the group size to reshard to, not"
            f" {reshard_after_forward}"
        )
    if isinstance(reshard_after_forward, bool) or reshard_after_forward == size:
        return mesh_info if reshard_after_forward else None
    if reshard_after_forward < 1 or reshard_after_forward > size or size % reshard_after_forward:
        raise ValueError(
            f"If passing reshard_after_forward as an int, it should be a factor of {size}, not {reshard_after_forward}"
        )
    if reshard_after_forward == 1:
        logger.warning(
            "reshard_after_forward=1 (int) means resharding parameters to world size 1, instead of reshard_after_forward=True (bool)"
        )
        return None
    mesh = DeviceMesh(mesh_info.mesh.device_type, mesh_info.mesh.mesh.view(-1, reshard_after_forward))
    return HSDPMeshInfo(mesh, shard_mesh_dim=1, replicate_mesh_dim=0)


def _init_default_mesh(mesh_dim_names: tuple[str, ...] | None = None) -> DeviceMesh:
    """Make a mesh of all ranks, on GPUs if there are any."""
    if not groups.is_initialized():
        groups.init_process_group()
    where = "cuda" if has_backend(Device("cuda")) else "cpu"
    return init_device_mesh(where, (groups.get_world_size(),), mesh_dim_names=mesh_dim_names)


_init_default_fully_shard_mesh = _init_default_mesh


def _get_device_from_mesh(mesh: DeviceMesh) -> Any:
    if mesh.device_type == "cuda":
        return backend_of(Device("cuda")).indexed(Device("cuda"))
    return Device(mesh.device_type)


def is_composable(module: Module) -> bool:
    registry = _get_registry(module)
    return registry is None or "replicate" not in registry


def _get_managed_modules(
    roots: tuple[Module, ...],
    ignored_params: set[Parameter] | None = None,
    is_composable_fn: Callable[[Module], bool] = is_composable,
    get_state_fn: Callable[[Module], Any] = _get_module_fsdp_state,
) -> list[Module]:
    """Return the submodules that no earlier call has taken, inner ones first."""
    found: list[Module] = []
    seen: set[Module] = set()

    def visit(module: Module) -> None:
        if not is_composable_fn(module) or (module not in roots and get_state_fn(module) is not None):
            return
        seen.add(module)
        for child in module.children():
            if child not in seen:
                visit(child)
        found.append(module)

    for root in roots:
        visit(root)
    if ignored_params is None:
        return found
    left_out: dict[Module, bool] = {}
    return [m for m in found if not _has_only(m, {id(p) for p in ignored_params}, left_out)]


def _has_only(module: Module, ignored: set[int], known: dict[Module, bool]) -> bool:
    """Return whether a module has only ignored parameters."""
    if module not in known:
        known[module] = (
            not any(True for _ in module.buffers(recurse=False))
            and all(id(p) in ignored for p in module.parameters(recurse=False))
            and all(_has_only(child, ignored, known) for child in module.children())
        )
    return known[module]


def _get_managed_states(
    modules: list[Module], ignored_params: set[Parameter] | None = None
) -> tuple[list[Parameter], list[Any]]:
    """Return the parameters and buffers of the modules, each once."""
    ignored = {id(p) for p in ignored_params or ()}
    params: dict[int, Any] = {}
    buffers: dict[int, Any] = {}
    for module in modules:
        for name, param in module.named_parameters(recurse=False):
            if id(param) in ignored:
                continue
            if not param.shape:
                raise ValueError(
                    f"fully_shard doesn't support scalar parameters. Change {name} to a 1D tensor with numel equal to 1."
                )
            params[id(param)] = param
        for buffer in module.buffers(recurse=False):
            buffers[id(buffer)] = buffer
    return list(params.values()), list(buffers.values())


def move_to_device(tensors: list[Any], device: Any) -> None:
    for tensor in tensors:
        if tensor.device == device or tensor.device.type == "meta":
            continue
        if isinstance(tensor, DTensor):
            raise ValueError(
                "Requires DTensor to have mesh of the same type as the FSDP mesh but got"
                f" {tensor.device_mesh.device_type} for DTensor and {device.type} for FSDP"
            )
        tensor.data = tensor.to(device)


def make_groups(
    state: FSDPState,
    params: list[Parameter],
    modules: tuple[Module, ...],
    mesh_info: DataParallelMeshInfo,
    reshard_after_forward: bool | int,
    device: Any,
    placement_fn: Callable | None,
    *policies: Any,
) -> None:
    """Make a group for the parameters of each mesh: one, unless `shard_placement_fn` chooses others."""
    infos: dict[int, tuple[Any, list[Parameter]]] = {}
    for param in params:
        info: Any = mesh_info
        if placement_fn is not None:
            info = resolve_shard_placement(placement_fn(param), mesh_info).mesh_info  # type: ignore[arg-type]
        infos.setdefault(id(info), (info, []))[1].append(param)
    for info, members in infos.values():
        after = _get_post_forward_mesh_info(reshard_after_forward, info) if isinstance(info, FSDPMeshInfo) else None
        state._fsdp_param_groups.append(FSDPParamGroup(members, modules, info, after, device, placement_fn, *policies))
