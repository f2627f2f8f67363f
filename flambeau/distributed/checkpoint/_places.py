"""File systems that store checkpoints: the local one, or others implemented by subclasses."""

from __future__ import annotations

import contextlib
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class FileSystemBase(ABC):
    """Interface of operations on files, which a subclass may implement for other storage."""

    @abstractmethod
    def create_stream(self, path: str | os.PathLike, mode: str) -> Any: ...

    @abstractmethod
    def concat_path(self, path: str | os.PathLike, suffix: str) -> str | os.PathLike: ...

    @abstractmethod
    def rename(self, path: str | os.PathLike, new_path: str | os.PathLike) -> None: ...

    @abstractmethod
    def init_path(self, path: str | os.PathLike) -> str | os.PathLike: ...

    @abstractmethod
    def mkdir(self, path: str | os.PathLike) -> None: ...

    @classmethod
    @abstractmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool: ...

    @abstractmethod
    def exists(self, path: str | os.PathLike) -> bool: ...

    @abstractmethod
    def rm_file(self, path: str | os.PathLike) -> None: ...


class FileSystem(FileSystemBase):
    """The local file system as a checkpoint's storage."""

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike, mode: str) -> Iterator[Any]:
        with Path(path).open(mode) as stream:
            yield stream

    def concat_path(self, path: str | os.PathLike, suffix: str) -> Path:
        return Path(path) / suffix

    def init_path(self, path: str | os.PathLike) -> Path:
        return Path(path)

    def rename(self, path: str | os.PathLike, new_path: str | os.PathLike) -> None:
        """Rename a file atomically; an existing file is replaced."""
        os.replace(path, new_path)

    def mkdir(self, path: str | os.PathLike) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        if isinstance(checkpoint_id, Path):
            return True
        if "://" in str(checkpoint_id):
            return False
        return any(p.exists() and os.access(str(p), os.W_OK) for p in Path(checkpoint_id).parents)

    def exists(self, path: str | os.PathLike) -> bool:
        return Path(path).exists()

    def rm_file(self, path: str | os.PathLike) -> None:
        Path(path).unlink()

    def ls(self, path: str | os.PathLike) -> list[str]:
        return [str(p) for p in Path(path).iterdir()]


def _sync_stream(stream: Any) -> None:
    """Flush a stream and wait until its data is on the disk."""
    stream.flush()
    try:
        os.fsync(stream.fileno())
    except (AttributeError, io.UnsupportedOperation):
        os.sync()


def _sync_folder(path: Any) -> None:
    """Wait until the entries of a folder are on the disk."""
    if not isinstance(path, Path):
        return  # of another file system
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
