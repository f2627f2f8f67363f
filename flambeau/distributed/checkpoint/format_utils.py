"""From files of `torch.save` to checkpoints and back.

python -m flambeau.distributed.checkpoint.format_utils torch_to_dcp model.pt folder
python -m flambeau.distributed.checkpoint.format_utils dcp_to_torch folder model.pt
"""

from __future__ import annotations

import argparse
import os
from enum import Enum
from typing import Any

from ...core.tensor import Tensor
from ...futures import settled
from ...serialization import load as load_file
from ...serialization import save as save_file
from .. import collectives, groups
from ..tensor import DTensor
from ._nested_dict import flatten_state_dict
from .default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner
from .filesystem import FileSystemReader, FileSystemWriter
from .metadata import BytesStorageMetadata, ChunkStorageMetadata, Metadata, TensorProperties, TensorStorageMetadata
from .planner import LoadItemType, LoadPlan, LoadPlanner
from .state_dict_loader import _load_state_dict
from .state_dict_saver import _save_state_dict
from .storage import StorageReader
from .utils import narrow_tensor_by_index

__all__ = ["BroadcastingTorchSaveReader", "DynamicMetaLoadPlanner", "dcp_to_torch_save", "torch_save_to_dcp"]


class BroadcastingTorchSaveReader(StorageReader):
    """Reads a file of `torch.save` like a checkpoint: one rank reads it and broadcasts every tensor."""

    def __init__(self, checkpoint_id: str | os.PathLike | None = None, coordinator_rank: int = 0) -> None:
        self.checkpoint_id, self.coordinator_rank = checkpoint_id, coordinator_rank

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        self.checkpoint_id = checkpoint_id

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return empty metadata: the planner derives it from the state dict to load."""
        return Metadata(state_dict_metadata={})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.is_coordinator = is_coordinator
        if self.is_coordinator and groups.get_rank() != self.coordinator_rank:
            raise AssertionError(f"Coordinator rank mismatch: {groups.get_rank()=} {self.coordinator_rank=}")
        if self.checkpoint_id is None:
            raise AssertionError("checkpoint_id must be set before reading")

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Any:
        held: dict[str, Any] = {}
        if self.is_coordinator:
            held = flatten_state_dict(load_file(self.checkpoint_id, map_location="cpu"))[0]
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                raise RuntimeError(
                    f"Non-tensor value identified at {item.storage_index.fqn}. At this time"
                    f" {type(self).__name__} only supports loading Tensors."
                )
            whole = self._broadcast_whole(held.get(item.storage_index.fqn), planner, item)
            block = narrow_tensor_by_index(whole, item.storage_offsets, item.lengths)
            target = planner.resolve_tensor(item).detach()
            if target.size() != block.size():
                raise AssertionError(f"req {item.storage_index} mismatch sizes, {target.size()} vs {block.size()}")
            target.copy_(block)
            planner.commit_tensor(item, target)
        return settled(None)

    def _broadcast_whole(self, own: Tensor | None, planner: Any, item: Any) -> Tensor:
        """Return the whole tensor, broadcast by the coordinator."""
        where = groups._get_pg_default_device()
        if own is None:
            like = planner.state_dict[item.storage_index.fqn]
            own = planner.resolve_tensor(item).new_empty(like.size(), device=where)
        whole = own.contiguous().to(where)
        collectives.broadcast(whole, src=self.coordinator_rank)
        return whole

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return os.path.isfile(checkpoint_id)


class DynamicMetaLoadPlanner(DefaultLoadPlanner):
    """Planner for checkpoints without metadata: derives it from the state dict to load, with every tensor as one part."""

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        super().set_up_planner(state_dict, metadata, is_coordinator)
        entries: dict[str, Any] = {}
        for key, value in self.state_dict.items():
            if isinstance(value, Tensor):
                local = value.to_local() if isinstance(value, DTensor) else value
                whole = ChunkStorageMetadata(type(value.size())([0] * value.dim()), value.size())
                entries[key] = TensorStorageMetadata(TensorProperties.create_from_tensor(local), value.size(), [whole])
            else:
                entries[key] = BytesStorageMetadata()
        self.metadata = Metadata(state_dict_metadata=entries)


def dcp_to_torch_save(dcp_checkpoint_dir: str | os.PathLike, torch_save_path: str | os.PathLike) -> None:
    """Convert a checkpoint to a file of `torch.save`. For one process, which holds everything in memory."""
    whole: dict[str, Any] = {}
    _load_state_dict(
        whole, storage_reader=FileSystemReader(dcp_checkpoint_dir), planner=_EmptyStateDictLoadPlanner(), no_dist=True
    )
    save_file(whole, torch_save_path)


def torch_save_to_dcp(torch_save_path: str | os.PathLike, dcp_checkpoint_dir: str | os.PathLike) -> None:
    """Convert a file of `torch.save` to a checkpoint. For one process, which holds everything in memory."""
    _save_state_dict(load_file(torch_save_path), storage_writer=FileSystemWriter(dcp_checkpoint_dir), no_dist=True)


class FormatMode(Enum):
    """Direction of the conversion."""

    TORCH_TO_DCP = "torch_to_dcp"
    DCP_TO_TORCH = "dcp_to_torch"


def main() -> None:
    parser = argparse.ArgumentParser(description="Files of torch.save to checkpoints of several ranks, and back.")
    parser.add_argument("mode", choices=[m.value for m in FormatMode], help="Conversion mode")
    parser.add_argument("src", help="Path to the source model")
    parser.add_argument("dst", help="Path to the destination model")
    given = parser.parse_args()
    to_checkpoint = given.mode == FormatMode.TORCH_TO_DCP.value
    there = os.path.isfile(given.src) if to_checkpoint else os.path.isdir(given.src)
    if not there:
        parser.error(f"{given.src} is no {'file' if to_checkpoint else 'folder'}")
    print(f"Converting checkpoint from {given.src} to {given.dst} using method: '{given.mode}'")
    (torch_save_to_dcp if to_checkpoint else dcp_to_torch_save)(given.src, given.dst)


if __name__ == "__main__":
    main()
