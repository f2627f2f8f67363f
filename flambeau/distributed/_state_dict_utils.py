"""State dicts with distributed tensors: gather them, offload them to the host, broadcast and distribute whole ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..core import naming
from ..core.device import device as Device
from ..core.dtype import dtype as Dtype
from ..core.graph import unrecorded
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.filled import empty
from . import collectives, groups, object_collectives
from ._shard.sharded_tensor import ShardedTensor
from .tensor import DTensor, distribute_tensor
from .tensor._utils import compute_local_shape_and_global_offset


class _TensorInfo(NamedTuple):
    """Shape and dtype of a tensor that rank 0 is going to broadcast."""

    size: Size
    dtype: Dtype


def _map_tensors(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """Return nested dictionaries and lists with function(tensor) in place of each tensor."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: _map_tensors(entry, function) for key, entry in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_map_tensors(entry, function) for entry in value)
    return value


def _all_gather_sharded_tensor(sharded_tensor: ShardedTensor, pg: Any = None, device: Any = None) -> Tensor:
    """Return the whole of a ShardedTensor, on every rank."""
    whole = sharded_tensor._gather_whole()
    return whole if device is None else whole.to(device)


def _gather_state_dict(
    state_dict: dict[str, Any],
    *,
    pg: Any = None,
    device: Any = None,
    cpu_offload: bool = False,
    ranks_only: tuple[int, ...] = (),
    type_check: bool = True,
) -> dict[str, Any]:
    """Return the state dict with distributed tensors gathered. All ranks take part; ranks not in `ranks_only` get an empty dictionary."""
    kept = not ranks_only or groups.get_rank(pg) in ranks_only

    def gather(tensor: Tensor) -> Any:
        if isinstance(tensor, ShardedTensor):
            whole = _all_gather_sharded_tensor(tensor, pg, device)
            return None if not kept else whole.cpu() if cpu_offload else whole
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if not kept:
            return None
        return whole.detach().cpu() if cpu_offload else whole if isinstance(tensor, DTensor) else whole.detach()

    gathered = _map_tensors(dict(state_dict), gather)
    return gathered if kept else {}


def _offload_state_dict_to_cpu(
    state_dict: dict[str, Any], *, ranks_only: tuple[int, ...] = (), type_check: bool = True
) -> dict[str, Any]:
    """Copy a state dict to host memory; distributed tensors stay distributed."""
    if ranks_only and groups.get_rank() not in ranks_only:
        return {}
    return _map_tensors(dict(state_dict), lambda tensor: tensor.detach().cpu())


def _copy_state_dict(
    state_dict: dict[str, Any], copy_state_dict: dict[str, Any], non_blocking: bool = False, type_check: bool = True
) -> dict[str, Any]:
    """Copy the tensors into those of another state dict of the same form, which is returned."""

    def copy(source: Any, target: Any) -> Any:
        if isinstance(source, DTensor):
            target.to_local().copy_(source.to_local().detach(), non_blocking=non_blocking)
            return target
        if isinstance(source, ShardedTensor):
            for mine, other in zip(source.local_shards(), target.local_shards(), strict=True):
                other.tensor.copy_(mine.tensor.detach(), non_blocking=non_blocking)
            return target
        if isinstance(source, Tensor):
            target.copy_(source.detach(), non_blocking=non_blocking)
            return target
        if isinstance(source, Mapping):
            for key, value in source.items():
                target[key] = copy(value, target[key])
            return target
        if isinstance(source, (list, tuple)):
            return type(source)(copy(a, b) for a, b in zip(source, target, strict=True))
        return source

    return unrecorded(copy, state_dict, copy_state_dict)


def _create_cpu_state_dict(
    state_dict: dict[str, Any], pin_memory: bool = False, share_memory: bool = False
) -> dict[str, Any]:
    """Return a state dict of the same structure in host memory, uninitialised."""

    def make(tensor: Tensor) -> Tensor:
        if isinstance(tensor, DTensor):
            return DTensor.from_local(
                make(tensor.to_local()),
                tensor.device_mesh,
                tensor.placements,
                run_check=False,
                shape=tensor.shape,
                stride=tensor.stride(),
            )
        if isinstance(tensor, ShardedTensor):
            return tensor._map_shards(make, Device("cpu"))
        made = empty(tensor.shape, dtype=tensor.dtype)
        made = made.share_memory_() if share_memory else made
        return made.pin_memory() if pin_memory and not share_memory else made

    return _map_tensors(state_dict, make)


def _local_part(local: Any, whole: Tensor, device: Device) -> Any:
    """Return this rank's part of a whole tensor, placed like `local`, in its memory if it has any."""
    if not isinstance(local, DTensor):
        return whole.detach().to(device)
    sizes, starts = compute_local_shape_and_global_offset(whole.shape, local.device_mesh, local.placements)
    part = whole[tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))].detach()
    if local.device.type == "meta":
        return DTensor.from_local(
            part.to(device).clone(),
            local.device_mesh,
            local.placements,
            run_check=False,
            shape=local.shape,
            stride=local.stride(),
        )
    unrecorded(local.to_local().copy_, part)
    return local


def _broadcast_state_dict(
    full_state_dict: dict[str, Any],
    local_state_dict: dict[str, Any],
    device: Device,
    pg: Any = None,
    strict: bool = False,
    cpu_offload: bool = False,
) -> None:
    """Copy rank 0's whole tensors into all ranks' shards, one after the other. If `strict`, keys that rank 0 lacks are removed."""
    sender = groups.get_rank() == 0
    group = pg or groups._get_default_group()
    box: list[Any] = [None]
    if sender:
        box = [{key: _describe_tensor(value) for key, value in full_state_dict.items()}]
    object_collectives.broadcast_object_list(box, src=0, group=group)
    known = {d.type for d in group._device_types}
    way = device if device.type in known else group._device_types[0]
    for key, value in box[0].items():
        if not isinstance(value, _TensorInfo):
            if key in local_state_dict:
                local_state_dict[key] = value
            continue
        whole = (
            full_state_dict[key].detach().to(way).contiguous()
            if sender
            else empty(value.size, dtype=value.dtype, device=way)
        )
        collectives.broadcast(whole, src=0, group=group)
        if key in local_state_dict:
            taken = _local_part(local_state_dict[key], whole, device)
            local_state_dict[key] = taken.cpu() if cpu_offload else taken
    if strict:
        for key in set(local_state_dict) - set(box[0]):
            del local_state_dict[key]


def _describe_tensor(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.detach().cpu() if value.dim() == 0 else _TensorInfo(value.size(), value.dtype)


def _distribute_state_dict(
    full_state_dict: dict[str, Any], local_state_dict: dict[str, Any], device: Device, pg: Any = None
) -> None:
    """Copy this rank's part of whole tensors, which every rank has, into its shards."""
    for key, value in full_state_dict.items():
        if not isinstance(value, Tensor):
            local_state_dict[key] = value
        elif value.dim() == 0:
            local_state_dict[key] = value.cpu()
        elif isinstance(local := local_state_dict.get(key), DTensor):
            local_state_dict[key] = distribute_tensor(value.detach().to(device), local.device_mesh, local.placements)
        elif local is not None:
            local_state_dict[key] = value.detach().to(device)


def _flatten_state_dict(state_dict: Mapping) -> tuple[dict[str, Any], dict[str, tuple]]:
    """Return the values of nested dictionaries and lists under their paths, joined by dots."""
    flat: dict[str, Any] = {}
    paths: dict[str, tuple] = {}

    def walk(path: tuple, value: Any) -> None:
        if isinstance(value, Mapping):
            items: Any = [(str(k), v) for k, v in value.items()]
        elif isinstance(value, (list, tuple)):
            items = list(enumerate(value))
        else:
            key = ".".join(map(str, path))
            if key in flat:
                raise ValueError(f"duplicated flatten key {key}")
            flat[key], paths[key] = value, path
            return
        for key, entry in items:
            walk((*path, key), entry)

    walk((), state_dict)
    return flat, paths


def _unflatten_state_dict(state_dict: Mapping, mapping: dict[str, tuple]) -> dict[str, Any]:
    """Rebuild the nested state dict from a flat one."""
    set_element = naming.above("distributed.checkpoint._traverse").set_element  # checkpoints are made of these
    nested: dict[str, Any] = {}
    for key, value in state_dict.items():
        set_element(nested, mapping[key], value)
    return nested
