"""Choice of the reader or writer for a checkpoint's location."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from ...core import naming
from .filesystem import FileSystemReader, FileSystemWriter


def _storage_setup(storage: Any, checkpoint_id: str | os.PathLike | None, reader: bool = False) -> Any:
    """Return the given reader or writer, or one for `checkpoint_id`."""
    if storage:
        if checkpoint_id is not None:
            storage.reset(checkpoint_id)
        return storage
    if not checkpoint_id:
        raise RuntimeError("`checkpoint_id` must be specified if storage_reader/storage_writer is None.")
    for kind in _storage_classes(reader):
        if kind.validate_checkpoint_id(checkpoint_id):
            made = kind(checkpoint_id)
            made.reset(checkpoint_id)
            return made
    raise RuntimeError(
        "Cannot detect which StorageReader or StorageWriter to use. Please specify the storage_reader/storage_writer."
    )


def _storage_classes(reader: bool) -> list[Any]:
    """Return the classes of readers or writers, the local one first."""
    kinds: list[Any] = [FileSystemReader if reader else FileSystemWriter]
    if importlib.util.find_spec("fsspec") is not None:
        others = naming.above("distributed.checkpoint._fsspec_filesystem")
        kinds.append(others.FsspecReader if reader else others.FsspecWriter)
    return kinds
