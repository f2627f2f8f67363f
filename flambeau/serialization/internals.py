"""Private names of `torch.serialization` that programs use: opening the archives themselves."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from .archive import ArchiveReader, ArchiveWriter


@contextlib.contextmanager
def _open_file_like(name_or_buffer: Any, mode: str) -> Iterator[Any]:
    """Context manager: open a file by its name, or yield an open one."""
    if isinstance(name_or_buffer, (str, os.PathLike)):
        with open(name_or_buffer, mode) as file:
            yield file
    else:
        yield name_or_buffer


@contextlib.contextmanager
def _open_zipfile_reader(name_or_buffer: Any) -> Iterator[ArchiveReader]:
    """Context manager: open a checkpoint for reading: has_record, get_record, get_record_offset."""
    with _open_file_like(name_or_buffer, "rb") as file:
        yield ArchiveReader(file)


@contextlib.contextmanager
def _open_zipfile_writer(name_or_buffer: Any) -> Iterator[ArchiveWriter]:
    """Context manager: open a checkpoint for writing record by record: write_record, write_record_metadata."""
    with _open_file_like(name_or_buffer, "wb") as file, ArchiveWriter(file) as archive:
        yield archive


def _is_zipfile(f: Any) -> bool:
    """Return whether a zip archive begins at the current position. (Its end is no sign: the bytes of a tensor may look like one.)"""
    place = f.tell()
    first = f.read(4)
    f.seek(place)
    return first == b"PK\3\4"
