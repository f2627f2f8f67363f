"""Names of the safetensors files of checkpoints, and their metadata."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from ...core.dtype import dtype as Dtype
from ...core.promotion import get_default_dtype
from ...core.size import Size
from ...serialization.safetensors import SafetensorError, _dtype_of

_metadata_fn = "model.safetensors.index.json"
FILE_NAME = "model-{cpt_idx}-of-{num_files}"
SHARDED_FILE_NAME = "shard-{shard_idx}-model-{cpt_idx}-of-{num_files}"
SUFFIX = ".safetensors"
CUSTOM_METADATA_KEY = "DCP_SHARDING_INFO"
DEFAULT_EXTRA_METADATA_KEY = "__metadata__"
SAVED_OFFSETS_KEY = "saved_offsets"
SHAPE_KEY = "shape"
DATA_KEY = "data"
DTYPE_KEY = "dtype"
DATA_OFFSETS_KEY = "data_offsets"
DCP_VERSION_KEY = "DCP_VERSION"
FORMAT_KEY = "format"
FORMAT_VALUE = "pt"
HF_DCP_VERSION = 1.0
NUM_BYTES_FOR_HEADER_LEN = 8
SHARDED_DIR_NAME = "sharded"


@dataclass
class _HFStorageInfo:
    """File in which a part is stored, with its offset, shape and dtype."""

    relative_path: str
    shape: Size
    dtype: Dtype


def _gen_file_name(index: int, largest_index: int, shard_index: int | None = None) -> str:
    if shard_index is None:
        return FILE_NAME.format(cpt_idx=f"{index:05}", num_files=f"{largest_index:05}") + SUFFIX
    names = {"shard_idx": f"{shard_index:05}", "cpt_idx": f"{index:05}", "num_files": f"{largest_index:05}"}
    return SHARDED_FILE_NAME.format(**names) + SUFFIX


def _get_safetensors_file_metadata(file_bytes: Any) -> tuple[dict[str, Any], int]:
    """Return the header of a safetensors file, and the offset of its data."""
    (length,) = struct.unpack("<Q", file_bytes.read(NUM_BYTES_FOR_HEADER_LEN))
    return json.loads(file_bytes.read(length)), length + NUM_BYTES_FOR_HEADER_LEN


def _get_dtype(dtype_str: str) -> Dtype:
    try:
        return _dtype_of(dtype_str, "")
    except SafetensorError:  # an unknown one: PyTorch takes the default
        return get_default_dtype()


def _get_dcp_custom_metadata(metadata: Any) -> Any | None:
    about = metadata.get(DEFAULT_EXTRA_METADATA_KEY, {})
    return json.loads(about[CUSTOM_METADATA_KEY]) if CUSTOM_METADATA_KEY in about else None
