"""Which reader or writer belongs to a place."""

from __future__ import annotations

import os
from typing import Any

from .filesystem import FileSystemReader, FileSystemWriter


def _storage_setup(storage: Any, checkpoint_id: str | os.PathLike | None, reader: bool = False) -> Any:
    """The reader or writer that is given, or one for `checkpoint_id`."""
    if storage:
        if checkpoint_id is not None:
            storage.reset(checkpoint_id)
        return storage
    if not checkpoint_id:
        raise RuntimeError("`checkpoint_id` must be specified if storage_reader/storage_writer is None.")
    kind: Any = FileSystemReader if reader else FileSystemWriter
    if "://" in str(checkpoint_id):
        from . import _fsspec_filesystem  # noqa: PLC0415 - needs a package

        kind = _fsspec_filesystem.FsspecReader if reader else _fsspec_filesystem.FsspecWriter
    if kind.validate_checkpoint_id(checkpoint_id):
        made = kind(checkpoint_id)
        made.reset(checkpoint_id)
        return made
    raise RuntimeError(
        "Cannot detect which StorageReader or StorageWriter to use. Please specify the storage_reader/storage_writer."
    )
