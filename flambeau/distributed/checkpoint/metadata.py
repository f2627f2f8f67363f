"""What a checkpoint says about itself: which tensors and objects it holds, in which parts, and where these lie.

Objects of these classes are what the file `.metadata` is a pickle of, under PyTorch's names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ...core.dtype import dtype as Dtype
from ...core.layout import channels_last, contiguous_format, layout, memory_format, preserve_format, strided
from ...core.promotion import get_default_dtype
from ...core.size import Size
from ...core.tensor import Tensor
from .stateful import StatefulT

__all__ = [
    "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
    "TensorStorageMetadata",
]  # fmt: skip


@dataclass
class ChunkStorageMetadata:
    """A part of a tensor: where it begins and how large it is."""

    offsets: Size
    sizes: Size


class _MEM_FORMAT_ENCODING(Enum):
    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


_FORMATS = {
    contiguous_format: _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT,
    channels_last: _MEM_FORMAT_ENCODING.TORCH_CHANNELS_LAST,
    preserve_format: _MEM_FORMAT_ENCODING.TORCH_PRESERVE_FORMAT,
}


@dataclass
class TensorProperties:
    """What is needed besides its size to make a tensor."""

    dtype: Dtype = field(default_factory=get_default_dtype)
    layout: layout = strided
    requires_grad: bool = False
    memory_format: memory_format = contiguous_format
    pin_memory: bool = False

    def __getstate__(self) -> tuple:
        if self.memory_format not in _FORMATS:
            raise RuntimeError(f"Invalid torch.memory_format: {self.memory_format}")
        return self.dtype, self.layout, self.requires_grad, _FORMATS[self.memory_format], self.pin_memory

    def __setstate__(self, state: tuple) -> None:
        self.dtype, self.layout, self.requires_grad, encoded, self.pin_memory = state
        for known, code in _FORMATS.items():
            if code == encoded:
                self.memory_format = known
                return
        raise RuntimeError(f"Invalid torch.memory_format encoding: {encoded}")

    @staticmethod
    def create_from_tensor(tensor: Tensor) -> TensorProperties:
        return TensorProperties(
            dtype=tensor.dtype,
            layout=tensor.layout,
            requires_grad=tensor.requires_grad,
            pin_memory=tensor.is_pinned(),
        )


@dataclass
class TensorStorageMetadata:
    """A tensor in a checkpoint, and the parts that it was saved in."""

    properties: TensorProperties
    size: Size
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    """Something in a checkpoint that is no tensor."""


STORAGE_TYPES = TensorStorageMetadata | BytesStorageMetadata
STATE_DICT_TYPE = dict[str, StatefulT | Any]


@dataclass
class StorageMeta:
    """Which checkpoint this is, and which call saved or loads it."""

    checkpoint_id: str | os.PathLike | None = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class Metadata:
    """All that a checkpoint says about itself."""

    state_dict_metadata: dict[str, STORAGE_TYPES]
    planner_data: Any = None  # of the default planner: where each key stood in the nested state dict
    storage_data: Any = None  # of files: in which file each part lies, and where
    storage_meta: StorageMeta | None = None
    version: str | None = None


@dataclass(frozen=True)
class MetadataIndex:
    """One object of a checkpoint, or one part of a tensor. `index` is a hint where in the list of parts to look for it."""

    fqn: str
    offset: Size | None = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __init__(self, fqn: str, offset: Sequence[int] | None = None, index: int | None = None) -> None:
        object.__setattr__(self, "fqn", fqn)
        object.__setattr__(self, "index", index)
        if offset is not None:
            object.__setattr__(self, "offset", Size(offset))
