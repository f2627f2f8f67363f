"""Plans of state dicts: the items to write for tensors, and the saved parts that tensors are read from."""

from __future__ import annotations

import io
from typing import Any

from ...core.device import device as Device
from ...core.size import Size
from ...core.tensor import Tensor
from .._shard.metadata import ShardMetadata
from .._shard.sharded_tensor import ShardedTensor
from ..groups import _get_pg_default_device, is_initialized
from ..tensor import DTensor
from ..tensor._utils import compute_local_shape_and_global_offset
from .metadata import BytesStorageMetadata, ChunkStorageMetadata, MetadataIndex, TensorProperties, TensorStorageMetadata
from .planner import LoadItemType, ReadItem, SavePlan, TensorWriteData, WriteItem, WriteItemType
from .resharding import _check_shard_metadata_pair_overlap, _shards_get_overlap_region_wrt_saved_tensor

__all__ = ["create_read_items_for_chunk_list"]


def _compare_save_plans(plan: SavePlan, other_plan: SavePlan) -> bool:
    """Return whether two plans write the same things."""

    def shown(item: WriteItem) -> tuple:
        data = item.tensor_data
        return item.type, item.index, item.index.index, data and (data.size, data.chunk)

    return plan.usable == other_plan.usable and [*map(shown, plan.items)] == [*map(shown, other_plan.items)]


def _contains_usable_plan(delta_plans: list[SavePlan]) -> bool:
    return any(plan and plan.usable for plan in delta_plans)


def _merge_delta_local_plans(cached_plans: list[SavePlan], delta_plans: list[SavePlan]) -> list[SavePlan]:
    """Return the new plans, with the cached ones of ranks that report no change."""
    return [
        cached if delta and not delta.usable else delta for cached, delta in zip(cached_plans, delta_plans, strict=True)
    ]


# -- parts ----------------------------------------------------------------------------------------------------------------------


def _create_chunk_from_tensor(tensor: Tensor) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=Size([0] * tensor.dim()), sizes=tensor.size())


def _create_chunk_from_dtensor(tensor: Any) -> ChunkStorageMetadata:
    sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return ChunkStorageMetadata(offsets=Size(offsets), sizes=Size(sizes))


def _chunk_for_shard(shard_md: ShardMetadata) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=Size(shard_md.shard_offsets), sizes=Size(shard_md.shard_sizes))


def _create_chunk_list(tensor: Any) -> list[ChunkStorageMetadata]:
    """Return the parts of a tensor that this rank holds."""
    if hasattr(tensor, "__create_chunk_list__"):
        return tensor.__create_chunk_list__()
    if isinstance(tensor, DTensor):
        return [_create_chunk_from_dtensor(tensor)]
    if isinstance(tensor, ShardedTensor):
        return [_chunk_for_shard(shard.metadata) for shard in tensor.local_shards()]
    if isinstance(tensor, Tensor):
        return [_create_chunk_from_tensor(tensor)]
    raise ValueError(f"Unsupported Type, expecting one of [Tensor, DTensor, ShardedTensor] ,but got {type(tensor)}")


def _is_elsewhere(obj: Any) -> bool:
    """Return whether a DTensor's mesh does not include this rank."""
    return isinstance(obj, DTensor) and obj.device_mesh.get_coordinate() is None


# -- writing --------------------------------------------------------------------------------------------------------------------


def _create_write_items_for_dtensor(fqn: str, tensor: Any) -> WriteItem:
    chunk = _create_chunk_from_dtensor(tensor)
    properties = TensorProperties.create_from_tensor(tensor.to_local())
    return WriteItem(
        MetadataIndex(fqn, chunk.offsets),
        WriteItemType.SHARD,
        tensor_data=TensorWriteData(chunk, properties, tensor.size()),
    )


def _create_write_item_for_shard(fqn: str, sharded_tensor: ShardedTensor, shard_md: ShardMetadata) -> WriteItem:
    return WriteItem(
        MetadataIndex(fqn, Size(shard_md.shard_offsets)),
        WriteItemType.SHARD,
        tensor_data=_sharded_tensor_metadata(sharded_tensor, shard_md),
    )


def _sharded_tensor_metadata(sharded_tensor: ShardedTensor, shard_md: ShardMetadata) -> TensorWriteData:
    found = sharded_tensor.metadata().tensor_properties
    properties = TensorProperties(found.dtype, found.layout, found.requires_grad, found.memory_format, found.pin_memory)
    return TensorWriteData(_chunk_for_shard(shard_md), properties, sharded_tensor.metadata().size)


def _create_write_item_for_tensor(fqn: str, tensor: Tensor) -> WriteItem:
    chunk = _create_chunk_from_tensor(tensor)
    return WriteItem(
        MetadataIndex(fqn, chunk.offsets),
        WriteItemType.TENSOR,
        tensor_data=TensorWriteData(chunk, TensorProperties.create_from_tensor(tensor), tensor.size()),
    )


def _create_write_items(fqn: str, object: Any) -> list[WriteItem]:
    if hasattr(object, "__create_write_items__"):
        return object.__create_write_items__(fqn, object)
    if isinstance(object, DTensor):
        return [_create_write_items_for_dtensor(fqn, object)]
    if isinstance(object, ShardedTensor):
        return [_create_write_item_for_shard(fqn, object, shard.metadata) for shard in object.local_shards()]
    if isinstance(object, Tensor):
        return [_create_write_item_for_tensor(fqn, object)]
    return [WriteItem(MetadataIndex(fqn), WriteItemType.BYTE_IO)]


class SpreadPart:
    """Shard of a DTensor on this rank, without the mesh, so that another process can write it."""

    def __init__(self, tensor: Any) -> None:
        item = _create_write_items_for_dtensor("", tensor)
        assert item.tensor_data is not None
        self.local, self.data = tensor.to_local().detach(), item.tensor_data

    def __create_write_items__(self, fqn: str, object: Any) -> list[WriteItem]:
        return [WriteItem(MetadataIndex(fqn, self.data.chunk.offsets), WriteItemType.SHARD, tensor_data=self.data)]

    def __get_tensor_shard__(self, index: MetadataIndex) -> Tensor:
        return self.local


# -- reading --------------------------------------------------------------------------------------------------------------------


def create_read_items_for_chunk_list(
    fqn: str, checkpoint_md: TensorStorageMetadata, local_chunks: list[ChunkStorageMetadata]
) -> list[ReadItem]:
    """Return the items to read from the saved parts of a tensor to fill the parts `local_chunks`."""
    items = []
    along = _longest_dim(checkpoint_md.size)
    saved_parts = sorted(
        enumerate(checkpoint_md.chunks), key=lambda entry: entry[1].offsets[along] if along is not None else 0
    )
    for position, local in enumerate(local_chunks):
        for number, saved in saved_parts:
            if along is not None and saved.offsets[along] >= local.offsets[along] + local.sizes[along]:
                break  # the others begin further behind
            if not _check_shard_metadata_pair_overlap(local, saved):
                continue
            pieces = _shards_get_overlap_region_wrt_saved_tensor(saved_shard=saved, current_shard=local)
            items.append(
                ReadItem(
                    type=LoadItemType.TENSOR,
                    dest_index=MetadataIndex(fqn, local.offsets, position),
                    dest_offsets=Size(piece[2] for piece in pieces),
                    storage_index=MetadataIndex(fqn, saved.offsets, number),
                    storage_offsets=Size(piece[1] for piece in pieces),
                    lengths=Size(piece[3] for piece in pieces),
                )
            )
    return items


def _longest_dim(size: Size) -> int | None:
    return max(range(len(size)), key=lambda dim: size[dim]) if len(size) else None


def _create_read_items(fqn: str, md: Any, obj: Any) -> list[ReadItem]:
    if isinstance(md, BytesStorageMetadata):
        index, nothing = MetadataIndex(fqn), Size((0,))
        return [ReadItem(LoadItemType.BYTE_IO, index, nothing, index, nothing, nothing)]
    try:
        chunks = _create_chunk_list(obj)
    except ValueError as problem:
        raise ValueError(
            f"Invalid checkpoint metadata for {fqn}, expected BytesStorageMetadata but found {type(md)}"
        ) from problem
    return create_read_items_for_chunk_list(fqn, md, chunks)


def _init_state_dict(state_dict: dict[str, Any]) -> None:
    """Allocate memory for meta tensors, in place."""
    for key, value in state_dict.items():
        state_dict[key] = _materialise(value)


def _materialise(value: Any) -> Any:
    if isinstance(value, DTensor):
        if value.device.type != "meta":
            return value
        local = value.to_local().new_empty(value.to_local().shape, device=_default_device())
        return DTensor.from_local(
            local, value.device_mesh, value.placements, run_check=False, shape=value.size(), stride=value.stride()
        )
    if isinstance(value, ShardedTensor):
        return value._map_shards(_materialise, _default_device()) if value.device.type == "meta" else value
    if isinstance(value, Tensor):
        return value.new_empty(value.shape, device=_default_device()) if value.device.type == "meta" else value
    if value is None or isinstance(value, (int, float, str, bytes, io.BytesIO)):
        return value
    if isinstance(value, dict):
        _init_state_dict(value)
        return value
    if isinstance(value, (list, tuple)):
        made = [_materialise(v) for v in value]
        return tuple(made) if isinstance(value, tuple) else made
    return value


def _default_device() -> Device:

    return _get_pg_default_device() if is_initialized() else Device("cpu")
