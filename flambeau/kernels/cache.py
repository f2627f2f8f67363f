"""Compiled kernels on disk: one small file per kernel in a private directory.

A file is only trusted if it belongs to this user, nobody else can write to it, and its checksum is right; otherwise the kernel is compiled
again. Writing is atomic, so that processes can share the directory.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import stat
import warnings
from pathlib import Path
from typing import Any

from ..core.ownership import distrust

_MAGIC = b"FLAMBEAU-KERNEL2"
_HEADER = len(_MAGIC) + 32
# An entry is the code between Python and kernels of one signature; a cubin is a kernel for NVIDIA's GPUs; a choice what was measured to be
# the quickest of several ways.
KERNEL, ENTRY, CUBIN, CHOICE = ".kernel", ".entry", ".cubin", ".choice"
_checked: dict[str, str | None] = {}  # folder -> what is wrong with it


def directory() -> Path:
    """Return the folder in which kernels are kept: FLAMBEAU_CACHE_DIR, else flambeau/ in the user's cache directory."""
    override = os.environ.get("FLAMBEAU_CACHE_DIR")
    if override:
        return _path(override)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return _path(os.path.join(base, "flambeau"))


_path = functools.cache(Path)  # making one takes as long as reading a kernel


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _checksum(name: str, data: bytes) -> bytes:
    """Return a checksum of the bytes and the name they are stored under: a renamed kernel is another kernel."""
    return hashlib.sha256(name.encode() + b"\0" + data).digest()


def read(name: str, suffix: str = KERNEL) -> bytes | None:
    """Return the stored bytes, or None if there are none that can be trusted."""
    folder = directory()
    if not _is_usable(folder):
        return None
    try:
        # Opening a pipe without O_NONBLOCK would wait for somebody to write to it.
        handle = os.open(os.path.join(folder, name + suffix), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(handle, "rb", buffering=0) as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or distrust(status):
                return None
            data = file.read()
    except OSError:
        return None
    stored = data[_HEADER:]
    if data[: len(_MAGIC)] != _MAGIC or _checksum(name + suffix, stored) != data[len(_MAGIC) : _HEADER]:
        return None
    return stored


def write(name: str, data: bytes, suffix: str = KERNEL) -> bool:
    """Store bytes; return False if the directory cannot be used (a read-only home, for example)."""
    folder = directory()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_usable(folder):
            return False
        # Imported here, because a program that finds all its kernels has no use for it.
        handle, temporary = importlib.import_module("tempfile").mkstemp(dir=folder, prefix="new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + _checksum(name + suffix, data) + data)
            os.replace(temporary, folder / (name + suffix))
        except OSError:
            os.unlink(temporary)
            raise
    except OSError:
        return False
    return True


def problem() -> str | None:
    """Return why the folder of the cache is not used, or None. A folder that does not exist yet is no problem."""
    folder = directory()
    try:
        status = os.stat(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        return str(error.strerror)
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory"
    return distrust(status)


def _is_usable(folder: Path) -> bool:
    key = str(folder)
    if key not in _checked:
        if not folder.exists():
            return False  # may be created later: do not remember
        _checked[key] = found = problem()
        if found is not None:  # once in a process
            warnings.warn(
                f"the kernel cache {folder} is not used, so that every start compiles its kernels again: {found}",
                stacklevel=2,
            )
    return _checked[key] is None


def _files() -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory()) as entries:
            return [
                e
                for e in entries
                if e.name.endswith((KERNEL, ENTRY, CUBIN, CHOICE)) and e.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []


def info() -> dict[str, Any]:
    """Report where the cache is, how large it is, and why it is not used (None if it is)."""
    sizes = []
    for f in _files():
        with contextlib.suppress(FileNotFoundError):  # another process may clear the cache meanwhile
            sizes.append(f.stat(follow_symlinks=False).st_size)
    return {"path": str(directory()), "files": len(sizes), "bytes": sum(sizes), "problem": problem()}


def summary() -> str:
    """Return `info` in one line of text."""
    facts = info()
    if facts["problem"] is not None:
        return f"not used: {facts['path']}: {facts['problem']}"
    return f"{facts['files']} kernels, {facts['bytes'] / 1e6:.1f} MB, in {facts['path']}"


def clear() -> None:
    """Delete every stored kernel. Kernels already loaded keep working."""
    for f in _files():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f.path)
