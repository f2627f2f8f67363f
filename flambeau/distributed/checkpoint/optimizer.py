"""Loading of optimizers' state from a checkpoint, sharded like the parameters that it belongs to."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from ...ops.creation.filled import zeros
from .._shard.sharded_tensor import ShardedTensor
from .._state_dict_utils import _unflatten_state_dict
from ..tensor import DTensor
from ..tensor import zeros as spread_zeros
from .metadata import BytesStorageMetadata, TensorStorageMetadata
from .planner import LoadPlanner
from .state_dict_loader import load
from .storage import StorageReader

__all__ = ["load_sharded_optimizer_state_dict"]


def load_sharded_optimizer_state_dict(
    model_state_dict: dict[str, Any],
    optimizer_key: str,
    storage_reader: StorageReader,
    planner: LoadPlanner | None = None,
) -> dict[str, Any]:
    """Return the part of a checkpoint under `optimizer_key`, as {optimizer_key: state}; the state of a parameter is sharded like the
    parameter, so that each rank reads only its part."""
    metadata = storage_reader.read_metadata()
    paths = metadata.planner_data
    wanted: dict[str, Any] = {}
    for key, entry in metadata.state_dict_metadata.items():
        path = paths[key]
        if path[0] != optimizer_key:
            continue
        if isinstance(entry, BytesStorageMetadata):
            wanted[key] = "<bytes_io>"
        else:
            wanted[key] = _zeros_for(entry, model_state_dict.get(path[2]) if len(path) > 2 else None)
    load(wanted, storage_reader=storage_reader, planner=planner)
    return _unflatten_state_dict(wanted, paths)


def _zeros_for(entry: TensorStorageMetadata, parameter: Any) -> Tensor:
    """Return a zero tensor for a value, sharded like the parameter if it has the same size."""
    dtype = entry.properties.dtype
    if isinstance(parameter, DTensor) and parameter.shape == entry.size:
        return spread_zeros(entry.size, dtype=dtype, device_mesh=parameter.device_mesh, placements=parameter.placements)
    if isinstance(parameter, ShardedTensor) and parameter.shape == entry.size:
        return parameter._map_shards(lambda part: zeros(part.shape, dtype=dtype, device=part.device))
    return zeros(entry.size, dtype=dtype, device=None if parameter is None else parameter.device)
