"""State dicts of models under FullyShardedDataParallel: whole, sharded, or local.

For a whole state dict a unit's parameters are gathered during its construction, and its values are copied. Loading works the other way
round: the whole parameters are written to, and each rank keeps its part."""

from __future__ import annotations

from typing import Any

from ...autograd.grad_mode import no_grad
from ...core.tensor import Tensor
from .. import groups
from ..device_mesh import DeviceMesh
from ..tensor import DTensor, Shard
from ._common_utils import FLAT_PARAM, FSDP_PREFIX, clean_tensor_name
from .api import StateDictType


def _is_local(unit: Any) -> bool:
    return unit._state_dict_type is StateDictType.LOCAL_STATE_DICT


# -- models -----------------------------------------------------------------------------------------------------------------


def before_saving(unit: Any, prefix: str, keep_vars: bool) -> None:
    if unit._group is None:
        return
    if _is_local(unit):
        unit._group._to_sharded()
    else:
        unit._gather_for_user()


@no_grad()
def after_saving(unit: Any, state: dict[str, Any], prefix: str, *rest: Any) -> dict[str, Any]:
    """Hook after `state_dict`: remove the prefixes of wrappers, and copy tensors whose memory is about to be freed."""
    inner = prefix + FSDP_PREFIX
    own = {inner + piece.fqn for piece in unit._group._flat.pieces} if unit._group is not None else set()
    shared = _shared_names(unit, inner)
    settings, first = unit._state_dict_config, groups.get_rank() == 0
    leaves_out = getattr(settings, "rank0_only", False) and not first
    if unit._group is not None and _is_local(unit):
        state[inner + FLAT_PARAM] = _local_shard(unit)
    for key in [k for k in state if k.startswith(inner)]:
        value = state.pop(key)
        if key in own or key in shared if _is_local(unit) else key == inner + FLAT_PARAM:
            continue
        if (key in own or key in shared) and not _is_local(unit):
            if leaves_out:
                continue
            value = _detach_for_state_dict(unit, value)
        elif leaves_out:
            continue
        dtype = unit._buffer_dtypes.get(clean_tensor_name(key[len(inner) :]))
        if dtype is not None:
            value = value.to(dtype)
        if settings.offload_to_cpu and isinstance(value, Tensor):
            value = value.cpu()
        state[prefix + key[len(inner) :]] = value
    if unit._group is not None and not _is_local(unit):
        unit._end_user_access(False)
    return state


def _local_shard(unit: Any) -> Any:
    """Return the flat parameter as a sharded DTensor, so that a checkpoint does not take one rank's shard for every rank's."""
    flat = unit._group._flat
    if not flat.uses_sharded_strategy:
        raise RuntimeError("``local_state_dict`` can only be used when parameters are flatten and sharded.")
    return DTensor.from_local(flat._sharded_param_data.detach(), shard_mesh(unit), [Shard(0)], run_check=False)


def shard_mesh(unit: Any) -> Any:
    mesh = unit._info.mesh
    if mesh.ndim == 1:
        return mesh
    if mesh.mesh_dim_names:
        return mesh[mesh.mesh_dim_names[-1]]
    return DeviceMesh.from_group(mesh.get_group(mesh.ndim - 1), mesh.device_type)


def _shared_names(unit: Any, inner: str) -> dict[str, Any]:
    """Return the further names of parameters of the unit that modules share, with the parameters they refer to."""
    if unit._group is None:
        return {}
    modules = {id(m): name for name, m in unit._fsdp_wrapped_module.named_modules(remove_duplicate=False)}
    found = {}
    for piece in unit._group._flat.pieces:
        for module, name in zip(piece.info.shared_modules, piece.info.shared_param_names):
            place = modules.get(id(module), "")
            found[f"{inner}{place}.{name}" if place else inner + name] = piece
    return found


def _detach_for_state_dict(unit: Any, value: Tensor) -> Any:
    if unit._state_dict_type is StateDictType.FULL_STATE_DICT or not value.shape:
        return value.detach().clone()
    return _shard_rows(value.detach(), shard_mesh(unit))


def _shard_rows(value: Tensor, mesh: Any) -> Any:
    """Return this rank's rows of a tensor that all ranks have."""
    size, start = Shard.local_shard_size_and_offset(value.shape[0], mesh.size(), mesh.get_local_rank())
    local = value.narrow(0, start, size).clone()
    return DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=value.size(), stride=value.stride())


def before_loading(unit: Any, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    inner = prefix + FSDP_PREFIX
    for key in [k for k in state if k.startswith(prefix)]:
        value = state.pop(key)
        if isinstance(value, DTensor):
            value = value.to_local() if key.endswith(FLAT_PARAM) else value.full_tensor()
        state[inner + key[len(prefix) :]] = value
    if unit._group is None:
        return
    if _is_local(unit):
        unit._group._to_sharded()
        flat = unit._group._flat
        if flat.use_orig_params and inner + FLAT_PARAM in state:
            shard = state.pop(inner + FLAT_PARAM)
            parts = {piece.fqn: shard[low:high] for piece, low, high in flat.own_parts()}
            state.update({inner + name: part for name, part in parts.items()})
            state.update({name: parts[piece.fqn] for name, piece in _shared_names(unit, inner).items()})
        return
    unit._gather_for_user()


def after_loading(unit: Any, keys: Any) -> None:
    keys.missing_keys[:] = [clean_tensor_name(key) for key in keys.missing_keys]
    keys.unexpected_keys[:] = [clean_tensor_name(key) for key in keys.unexpected_keys]
    if unit._group is not None and not _is_local(unit):
        unit._end_user_access(True)
