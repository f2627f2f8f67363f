"""Defaults for reading and writing files: PyTorch's settings, as functions and as `torch.utils.serialization.config`."""

from __future__ import annotations

import threading
from enum import Enum
from mmap import MAP_PRIVATE, MAP_SHARED
from typing import Any

from ..core.uninterrupted import uninterrupted


class LoadEndianness(Enum):
    """The byte order of files that do not declare one."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _LoadOptions:
    """Defaults of `load`."""

    def __init__(self) -> None:
        self.mmap: bool = False
        self.endianness: LoadEndianness | None = None
        self.mmap_flags: int | None = MAP_PRIVATE
        self.calculate_storage_offsets: bool = False  # here offsets are always read from the archive's directory


class _SaveOptions:
    """Defaults of `save`."""

    def __init__(self) -> None:
        self.compute_crc32: bool = True
        self.use_pinned_memory_for_d2h: bool = False
        self.storage_alignment: int = 64


load_options = _LoadOptions()
save_options = _SaveOptions()


def get_default_load_endianness() -> LoadEndianness | None:
    """Return the byte order assumed for files that do not declare one; None means little-endian."""
    return load_options.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Set the byte order assumed for files that do not declare one."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    load_options.endianness = endianness


def get_crc32_options() -> bool:
    """Return whether `save` writes the checksum of each record."""
    return save_options.compute_crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Set whether `save` computes checksums. Without them it is a little faster, and other zip programs may refuse the file."""
    save_options.compute_crc32 = compute_crc32


def get_default_mmap_options() -> int | None:
    """Return the flag with which `load(mmap=True)` maps files."""
    return load_options.mmap_flags


class set_default_mmap_options:
    """Map files with MAP_PRIVATE (changes stay in memory) or MAP_SHARED (they go to the file), from now on or for a `with` block."""

    def __init__(self, flags: int):
        if flags not in (MAP_PRIVATE, MAP_SHARED):
            raise ValueError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED,"
                f" but got {flags}"
            )
        self.before = load_options.mmap_flags
        load_options.mmap_flags = flags

    def __enter__(self) -> None:
        pass

    @uninterrupted
    def __exit__(self, *exc: Any) -> None:
        load_options.mmap_flags = self.before


class _State(threading.local):
    skip_data = False


state = _State()


class skip_data:
    """Context manager: `save` reserves space for storages without writing them, and `load` creates storages without reading."""

    def __init__(self, materialize_fake_tensors: bool = False):
        if materialize_fake_tensors:
            raise NotImplementedError("skip_data: there are no fake tensors in Flambeau to materialize")

    def __enter__(self) -> None:
        self.before = state.skip_data
        state.skip_data = True

    @uninterrupted
    def __exit__(self, *exc: Any) -> None:
        state.skip_data = self.before
