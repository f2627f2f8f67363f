"""Safetensors of quantized models, dequantized when read: 8-bit weights with a factor per block, or 4-bit weights with an exponent per
group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...core import dtype as dt
from ...core.size import Size
from ...core.tensor import Tensor
from ...ops.creation.construct import tensor as new_tensor
from ...ops.shape.joining import stack
from ...serialization.safetensors import safe_open
from ._hf_utils import _metadata_fn
from .filesystem import fill
from .hf_storage import HuggingFaceStorageReader
from .metadata import ChunkStorageMetadata, Metadata, MetadataIndex, TensorStorageMetadata
from .planner import LoadPlanner, ReadItem

__all__ = ["QuantizedHuggingFaceStorageReader"]

_FP4_VALUES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
_FACTORS, _EXPONENTS = (".weight_scale_inv", ".weight"), ("_scales", "_blocks")


class QuantizedHuggingFaceStorageReader(HuggingFaceStorageReader):
    """Reads `name.weight` times the factors of `name.weight_scale_inv`, one for each block of `block_size` x `block_size`; and
    `name_blocks`, two 4-bit numbers per byte, with the exponents of `name_scales`. The folder needs an index file."""

    def __init__(self, path: str, thread_count: int = 1, target_dtype: Any = dt.float32, block_size: int = 128) -> None:
        super().__init__(path=path, thread_count=thread_count)
        self.target_dtype, self.block_size = target_dtype, block_size
        self._weight_scale_mapping: dict[str, str] = {}
        self._weight_map: dict[str, str] = {}
        self._tensor_full_shapes: dict[str, Size] = {}

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        metadata = super().read_metadata(*args, **kwargs)
        self._load_quantization_metadata()
        for fqn, entry in metadata.state_dict_metadata.items():
            if isinstance(entry, TensorStorageMetadata):
                if fqn.endswith("_blocks"):
                    self._tensor_full_shapes[fqn + "_quantized"] = entry.size
                    _unpack_entry(fqn, entry, metadata.storage_data)
                self._tensor_full_shapes[fqn] = entry.size
        return metadata

    def _load_quantization_metadata(self) -> None:
        """Read from the index file which weights have factors."""
        self._build_weight_scale_mapping(json.loads((Path(self.path) / _metadata_fn).read_text()).get("weight_map", {}))

    def _build_weight_scale_mapping(self, weight_map: dict[str, str]) -> None:
        self._weight_map = weight_map
        for name in weight_map:
            for ending, of in (_FACTORS, _EXPONENTS):
                if name.endswith(ending) and (weight := name.replace(ending, of)) in weight_map:
                    self._weight_scale_mapping[weight] = name

    def _is_tensor_quantized(self, tensor_fqn: str) -> bool:
        return not tensor_fqn.endswith((_FACTORS[0], _EXPONENTS[0])) and tensor_fqn in self._weight_scale_mapping

    def _process_read_request(self, f: Any, req: ReadItem, planner: LoadPlanner) -> None:
        name = req.storage_index.fqn
        if not self._is_tensor_quantized(name):
            super()._process_read_request(f, req, planner)
            return
        dequantize = self._dequantize_groups if name.endswith("_blocks") else self._dequantize_blocks
        fill(planner, req, dequantize(f, req, self._read_scales(f, name)))

    def _read_scales(self, file: Any, name: str) -> Tensor:
        scale = self._weight_scale_mapping[name]
        where = self._weight_map.get(scale)
        if where is None:
            raise ValueError(f"Scale tensor {scale} not found in weight_map")
        if where == self._weight_map.get(name):
            return file.get_tensor(scale)
        with safe_open(str(Path(self.path) / self._check_path(where)), framework="pt") as other:
            return other.get_tensor(scale)

    def _dequantize_blocks(self, file: Any, req: ReadItem, scales: Tensor) -> Tensor:
        """Return a part of a matrix, each element multiplied by the factor of its block."""
        parts = [slice(start, start + size) for start, size in zip(req.storage_offsets, req.lengths)]
        weight = file.get_slice(req.storage_index.fqn)[tuple(parts)]
        rows, columns = (new_tensor([i // self.block_size for i in range(p.start, p.stop)]) for p in parts)
        factors = scales.to(dt.float32)[rows][:, columns]
        return (weight.to(dt.float32) * factors).to(self.target_dtype)

    def _dequantize_groups(self, file: Any, req: ReadItem, scales: Tensor) -> Tensor:
        """Return a part of a tensor of 4-bit numbers: whole groups are read, then narrowed to the requested part."""
        name = req.storage_index.fqn
        values = self._tensor_full_shapes[name + "_quantized"][-1] * 2
        starts, sizes = list(req.storage_offsets), list(req.lengths)
        first, last = starts[-1] // values, -(-(starts[-1] + sizes[-1]) // values)
        where = [slice(a, a + n) for a, n in zip(starts[:-1], sizes[:-1])] + [slice(first, last)]
        block = (*where, slice(None))
        packed = file.get_slice(name)[block]
        exponents = scales[tuple(where)].to(dt.int32) - 127
        table = new_tensor(_FP4_VALUES, dtype=self.target_dtype)
        halves = [table[(packed & 15).to(dt.int64)], table[(packed >> 4).to(dt.int64)]]
        numbers = stack(halves, -1).reshape(*packed.shape[:-1], values).ldexp(exponents.unsqueeze(-1))
        skipped = starts[-1] - first * values
        flat = numbers.reshape(*numbers.shape[:-2], (last - first) * values)
        return flat[..., skipped : skipped + sizes[-1]]


def _unpack_entry(fqn: str, entry: TensorStorageMetadata, places: dict) -> None:
    """Change the metadata of packed numbers to that of unpacked ones: one dimension less, twice as long."""
    *others, group, width = entry.size
    start = Size([0] * (len(others) + 1))
    where = places.pop(MetadataIndex(fqn, entry.chunks[0].offsets))
    entry.size = Size([*others, group * width * 2])
    entry.chunks = [ChunkStorageMetadata(start, entry.size)]
    places[MetadataIndex(fqn, start)] = where
