"""`torch.distributed.checkpoint`: checkpoints of models that are distributed over ranks, in PyTorch's file format.

>>> import flambeau.distributed.checkpoint as dcp
>>> dcp.save({"model": model.state_dict()}, checkpoint_id="checkpoint")
>>> dcp.load({"model": state}, checkpoint_id="checkpoint")    # on any number of ranks

See docs/sharding.md.
"""

from __future__ import annotations

from ...core import naming as _naming
from .api import CheckpointException
from .default_planner import DefaultLoadPlanner, DefaultSavePlanner
from .filesystem import FileSystemReader, FileSystemWriter
from .hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from .metadata import BytesStorageMetadata, ChunkStorageMetadata, Metadata, TensorStorageMetadata
from .planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem
from .state_dict_loader import load, load_state_dict
from .state_dict_saver import async_save, save, save_state_dict
from .storage import StorageReader, StorageWriter

__all__ = [
    "BytesStorageMetadata", "CheckpointException", "ChunkStorageMetadata", "DefaultLoadPlanner", "DefaultSavePlanner",
    "FileSystemReader", "FileSystemWriter", "HuggingFaceStorageReader", "HuggingFaceStorageWriter", "LoadPlan", "LoadPlanner",
    "Metadata", "ReadItem", "SavePlan", "SavePlanner", "StorageReader", "StorageWriter", "TensorStorageMetadata", "WriteItem",
    "async_save", "load", "load_state_dict", "save", "save_state_dict",
]  # fmt: skip


def __getattr__(name: str):
    return _naming.submodule(__name__, name)
