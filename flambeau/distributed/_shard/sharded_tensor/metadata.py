"""Metadata of a ShardedTensor, with the class names of PyTorch's files."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from typing_extensions import Self

from ....core.dtype import dtype as Dtype
from ....core.layout import channels_last, contiguous_format, layout, memory_format, preserve_format, strided
from ....core.promotion import get_default_dtype
from ....core.size import Size
from ..metadata import ShardMetadata


class MEM_FORMAT_ENCODING(Enum):
    """Numbers of memory formats in files."""

    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


_FORMATS = (contiguous_format, channels_last, preserve_format)


@dataclass
class TensorProperties:
    """Properties of a tensor besides its size: dtype, layout, requires_grad, memory format, pinned memory."""

    dtype: Dtype = field(default_factory=get_default_dtype)
    layout: layout = strided
    requires_grad: bool = False
    memory_format: memory_format = contiguous_format
    pin_memory: bool = False

    _codes: ClassVar[type[Enum]] = MEM_FORMAT_ENCODING

    def __getstate__(self) -> tuple:
        if self.memory_format not in _FORMATS:
            raise RuntimeError(f"Invalid torch.memory_format: {self.memory_format}")
        code = self._codes(_FORMATS.index(self.memory_format))
        return self.dtype, self.layout, self.requires_grad, code, self.pin_memory

    def __setstate__(self, state: tuple) -> None:
        self.dtype, self.layout, self.requires_grad, code, self.pin_memory = state
        if not isinstance(code, self._codes):
            raise RuntimeError(f"Invalid torch.memory_format encoding: {code}")
        self.memory_format = _FORMATS[code.value]

    @classmethod
    def create_from_tensor(cls, tensor: Any) -> Self:
        return cls(tensor.dtype, tensor.layout, tensor.requires_grad, pin_memory=tensor.is_pinned())


@dataclass
class ShardedTensorMetadata:
    """The shards of a tensor, its size and its properties."""

    shards_metadata: list[ShardMetadata] = field(default_factory=list)
    size: Size = field(default_factory=lambda: Size(()))
    tensor_properties: TensorProperties = field(default_factory=TensorProperties)
