"""Compiled kernels on disk: one small file per kernel in a private directory.

A file is only believed if it belongs to this user, nobody else can write to it, and its checksum is right; anything
else is compiled again. Writing is atomic, so that processes can share the directory.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import stat
from pathlib import Path
from typing import Any

_MAGIC = b"FLAMBEAU-KERNEL1"
_HEADER = len(_MAGIC) + 32
KERNEL, ENTRY = ".kernel", ".entry"  # an entry is the code between Python and kernels of one signature
_checked: dict[str, bool] = {}


def directory() -> Path:
    """Where kernels are kept: FLAMBEAU_CACHE_DIR, else flambeau/ in the user's cache directory."""
    override = os.environ.get("FLAMBEAU_CACHE_DIR")
    if override:
        return Path(override)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "flambeau"


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def read(name: str, suffix: str = KERNEL) -> bytes | None:
    """The stored bytes, or None if there are none that can be trusted."""
    folder = directory()
    if not _is_private_directory(folder):
        return None
    try:
        with open(folder / (name + suffix), "rb") as file:
            if not _is_private(os.fstat(file.fileno())):
                return None
            data = file.read()
    except OSError:
        return None
    if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(data[_HEADER:]).digest() != data[len(_MAGIC) : _HEADER]:
        return None
    return data[_HEADER:]


def write(name: str, data: bytes, suffix: str = KERNEL) -> bool:
    """Store bytes; False if the directory cannot be used (a read-only home, for example)."""
    folder = directory()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private_directory(folder):
            return False
        # Imported here, because a program that finds all its kernels has no use for it.
        handle, temporary = importlib.import_module("tempfile").mkstemp(dir=folder, prefix="new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(data).digest() + data)
            os.replace(temporary, folder / (name + suffix))
        except OSError:
            os.unlink(temporary)
            raise
    except OSError:
        return False
    return True


def _is_private(status: os.stat_result) -> bool:
    if not hasattr(os, "getuid"):  # no POSIX owners on this platform
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_private_directory(folder: Path) -> bool:
    key = str(folder)
    known = _checked.get(key)
    if known is None:
        try:
            status = os.stat(folder)
        except OSError:
            return False  # may be created later: do not remember
        known = _checked[key] = stat.S_ISDIR(status.st_mode) and _is_private(status)
    return known


def _files() -> list[os.DirEntry]:
    try:
        with os.scandir(directory()) as entries:
            return [e for e in entries if e.name.endswith((KERNEL, ENTRY))]
    except OSError:
        return []


def info() -> dict[str, Any]:
    """Where the cache is and how large it is."""
    files = _files()
    return {"path": str(directory()), "files": len(files), "bytes": sum(f.stat().st_size for f in files)}


def clear() -> None:
    """Delete every stored kernel. Kernels already loaded keep working."""
    for f in _files():
        os.unlink(f.path)
