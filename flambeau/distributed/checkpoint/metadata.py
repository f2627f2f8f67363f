"""Metadata of a checkpoint: its tensors and objects, their parts, and where these are stored.

The file `.metadata` is a pickle of objects of these classes, under PyTorch's names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from ...core.size import Size
from .._shard.sharded_tensor.metadata import TensorProperties as _OfShards
from .stateful import StatefulT

__all__ = [
    "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
    "TensorStorageMetadata",
]  # fmt: skip


@dataclass
class ChunkStorageMetadata:
    """A part of a tensor: its offsets and sizes."""

    offsets: Size
    sizes: Size


class _MEM_FORMAT_ENCODING(Enum):
    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


@dataclass
class TensorProperties(_OfShards):
    """Properties of a tensor besides its size: dtype, layout, requires_grad, memory format, pinned memory."""

    _codes: ClassVar[type[Enum]] = _MEM_FORMAT_ENCODING


@dataclass
class TensorStorageMetadata:
    """A tensor in a checkpoint, and the parts that it was saved in."""

    properties: TensorProperties
    size: Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """Metadata of an entry that is not a tensor."""


STORAGE_TYPES = TensorStorageMetadata | BytesStorageMetadata
STATE_DICT_TYPE = dict[str, StatefulT | Any]


@dataclass
class StorageMeta:
    """Identity of a checkpoint, and of the call that saved or loads it."""

    checkpoint_id: str | os.PathLike | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """Metadata of a checkpoint: its items, where they are stored, and the planner's data."""

    state_dict_metadata: dict[str, STORAGE_TYPES]
    planner_data: Any = None  # of the default planner: where each key stood in the nested state dict
    storage_data: Any = None  # of files: in which file each part is, and where
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True)
class MetadataIndex:
    """Key of an object of a checkpoint, or of a part of a tensor. `index` is a hint of its position in the list of parts."""

    fqn: str
    offset: Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __init__(self, fqn: str, offset: Sequence[int] | None = None, index: int | None = None) -> None:
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "index", index)
        if offset is not None:
            object.__setattr__(self, "offset", Size(offset))
