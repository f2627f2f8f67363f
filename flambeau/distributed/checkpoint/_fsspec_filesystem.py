"""Checkpoints on any storage of fsspec: `FsspecWriter("s3://bucket/folder")`. Needs the package fsspec (extra "fsspec")."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ._extension import StreamTransformExtension
from .filesystem import FileSystemBase, FileSystemReader, FileSystemWriter, SerializationFormat

__all__ = ["FsspecReader", "FsspecWriter"]


def _open_file_system(path: Any, **options: Any) -> Any:
    """Return the file system of a path or URL."""
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - only for those who use it
    except ImportError as problem:
        raise ImportError(
            "checkpoints in other places than folders need fsspec: pip install flambeau[fsspec]"
        ) from problem
    return url_to_fs(os.fspath(path), **options)[0]


class FileSystem(FileSystemBase):
    """A file system of fsspec as a checkpoint's storage."""

    def __init__(self) -> None:
        self.fs: Any = None

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike, mode: str) -> Iterator[Any]:
        """Context manager: open a file; one that was not written completely is removed."""
        if self.fs is None:
            raise AssertionError("fs should not be None")
        with self.fs.open(os.fspath(path), mode) as stream:
            try:
                yield stream
            except BaseException:
                if any(letter in mode for letter in "w+a"):
                    with contextlib.suppress(Exception):  # the first error is the one to report
                        self.rm_file(path)
                raise

    def concat_path(self, path: str | os.PathLike, suffix: str) -> str:
        return os.path.join(path, suffix)

    def init_path(self, path: str | os.PathLike, **options: Any) -> str | os.PathLike:
        self.fs = _open_file_system(path, **options)
        return path

    def rename(self, path: str | os.PathLike, new_path: str | os.PathLike) -> None:
        self.fs.rename(path, new_path)

    def mkdir(self, path: str | os.PathLike) -> None:
        self.fs.makedirs(path, exist_ok=True)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        if isinstance(checkpoint_id, Path):
            return False
        try:
            _open_file_system(checkpoint_id)
        except ValueError:
            return False
        return True

    def exists(self, path: str | os.PathLike) -> bool:
        return self.fs.exists(path)

    def rm_file(self, path: str | os.PathLike) -> None:
        self.fs.rm(path)

    def ls(self, path: str | os.PathLike) -> list[str]:
        return self.fs.ls(path, detail=False)


class _ByFsspec:
    """Mixin of writers and readers whose files fsspec opens."""

    def _open(self, path: str | os.PathLike, options: dict[str, Any]) -> None:
        self.fs = FileSystem()
        self.path = self.fs.init_path(path, **options)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return FileSystem.validate_checkpoint_id(checkpoint_id)


class FsspecWriter(_ByFsspec, FileSystemWriter):
    """Writes checkpoints to a URL; further arguments go to fsspec."""

    def __init__(
        self,
        path: str | os.PathLike,
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        overwrite: bool = True,
        _extensions: Sequence[StreamTransformExtension] | None = None,
        serialization_format: SerializationFormat = SerializationFormat.TORCH_SAVE,
        **options: Any,
    ) -> None:
        super().__init__(
            path, single_file_per_rank, sync_files, thread_count, per_thread_copy_ahead, overwrite=overwrite,
            _extensions=_extensions, serialization_format=serialization_format,
        )  # fmt: skip
        self._open(path, options)


class FsspecReader(_ByFsspec, FileSystemReader):
    """Reads checkpoints from a URL; further arguments go to fsspec."""

    def __init__(self, path: str | os.PathLike, **options: Any) -> None:
        super().__init__(path)
        self._open(path, options)
