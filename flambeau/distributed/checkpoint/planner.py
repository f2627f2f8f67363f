"""Plans: which rank writes or reads which items. Planners make them; custom planners can transform what is saved or loaded."""

from __future__ import annotations

import abc
import io
import math
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar

from ...core.size import Size
from ...core.tensor import Tensor
from .metadata import ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta, TensorProperties

__all__ = [
    "BytesIOWriteData", "LoadItemType", "LoadPlan", "LoadPlanner", "ReadItem", "SavePlan", "SavePlanner", "TensorWriteData",
    "WriteItem", "WriteItemType",
]  # fmt: skip


class WriteItemType(Enum):
    """Kind of an item to write: a whole tensor, a shard of one, or another object."""

    TENSOR = auto()
    SHARD = auto()
    BYTE_IO = auto()


class LoadItemType(Enum):
    """Kind of an item to read: a tensor or bytes."""

    TENSOR = auto()
    BYTE_IO = auto()


@dataclass(frozen=True)
class BytesIOWriteData:
    """Size in bytes of an object that is not a tensor."""

    nbytes: int


@dataclass(frozen=True)
class TensorWriteData:
    """A part of a tensor that is to be written."""

    chunk: ChunkStorageMetadata
    properties: TensorProperties
    size: Size


@dataclass(frozen=True)
class WriteItem:
    """An item to be written."""

    index: MetadataIndex
    type: WriteItemType
    bytes_io_data: BytesIOWriteData | None = None
    tensor_data: TensorWriteData | None = None

    def tensor_storage_size(self) -> int | None:
        """Return the bytes of the whole tensor; None for other objects."""
        if self.tensor_data is None:
            return None
        return math.prod(self.tensor_data.size) * self.tensor_data.properties.dtype.itemsize


@dataclass(frozen=True)
class ReadItem:
    """Item to be read: a block of `lengths` at `storage_offsets` of the saved part, into `dest_offsets` of the loaded one."""

    type: LoadItemType
    dest_index: MetadataIndex
    dest_offsets: Size
    storage_index: MetadataIndex
    storage_offsets: Size
    lengths: Size


@dataclass(frozen=True)
class SavePlan:
    """Items that one rank writes. A plan that is not `usable` stands for the same plan as last time."""

    items: list[WriteItem]
    storage_data: Any = None
    planner_data: Any = None
    usable: bool = True


@dataclass
class LoadPlan:
    """The items that one rank reads."""

    items: list[ReadItem]
    storage_data: Any = None
    planner_data: Any = None


class SavePlanner(abc.ABC):
    """Interface of save planners. Calls, in order: `set_up_planner` and `create_local_plan` on all ranks, `create_global_plan` on one,
    `finish_plan` on all, and `resolve_data` for every item written."""

    # What the last save planned, for planners that ask whether anything has changed.
    _cached_save_plan: ClassVar[dict[str, SavePlan]] = {}
    _cached_final_save_plan: ClassVar[dict[str, SavePlan]] = {}
    _cached_all_plans: ClassVar[dict[str, list[SavePlan]]] = {}
    _cached_global_plan: ClassVar[dict[str, list[SavePlan]]] = {}
    _cached_metadata: ClassVar[dict[str, Metadata]] = {}

    @abc.abstractmethod
    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        """Prepare the planner for saving a state dict."""

    @abc.abstractmethod
    def create_local_plan(self) -> SavePlan:
        """Return a plan of the items that this rank could write."""

    @abc.abstractmethod
    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Return the plan of each rank, and the metadata of the checkpoint."""

    @abc.abstractmethod
    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """Return this rank's final plan, from its share of the global plan."""

    @abc.abstractmethod
    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """Return the tensor or the bytes to be written."""


class LoadPlanner:
    """Interface of load planners. Calls, in order: `set_up_planner` and `create_local_plan` on all ranks, `create_global_plan` on one,
    `finish_plan` on all, and for every item read `load_bytes`, or `resolve_tensor` and `commit_tensor`."""

    @abc.abstractmethod
    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Prepare the planner for loading into a state dict from a checkpoint with this metadata."""

    @abc.abstractmethod
    def create_local_plan(self) -> LoadPlan:
        """Return a plan of the items that this rank needs."""

    @abc.abstractmethod
    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plan of each rank."""

    @abc.abstractmethod
    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """Return this rank's final plan, from its share of the global plan."""

    @abc.abstractmethod
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Store an object from the bytes that were read."""

    def resolve_bytes(self, read_item: ReadItem) -> io.BytesIO:
        """Return the buffer to read bytes into."""
        raise NotImplementedError("LoadPlanner.resolve_bytes is not implemented")

    @abc.abstractmethod
    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """Return the tensor to read an item into."""

    @abc.abstractmethod
    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """Complete an item after its tensor has been read."""
