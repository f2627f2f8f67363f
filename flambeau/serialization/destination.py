"""Destinations of `save`: a regular file is replaced atomically; a device or a pipe is written to directly."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from typing import Any

_MAX_LINKS = 40  # as many symbolic links in a row as Linux follows


@contextlib.contextmanager
def written_file(path: Any) -> Iterator[Any]:
    """Context manager: yield a file to be written. It replaces `path`, with its owner and mode, when the block ends without error, so that
    a crash leaves the old file intact; `path` is written directly if that is impossible: a device, a pipe, a file in a folder where no
    other can be created, a file of another user."""
    with _replacement(path) as temporary, open(path if temporary is None else temporary, "wb") as file:
        yield file


@contextlib.contextmanager
def written_path(path: Any) -> Iterator[str]:
    """Context manager: yield a path at which a new file may be created, never a device."""
    with _replacement(path) as temporary:
        if temporary is not None:
            yield temporary
            return
        with tempfile.TemporaryDirectory() as folder:
            name = os.path.join(folder, "file")
            yield name
            with open(name, "rb") as source, open(path, "wb") as file:
                shutil.copyfileobj(source, file)


@contextlib.contextmanager
def _replacement(path: Any) -> Iterator[Any]:
    """Context manager: yield the name of an empty file that replaces `path` on exit; None if nothing may replace it."""
    path = os.fspath(path)
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {os.fsdecode(folder)} does not exist.")
    target = _target(path)
    made = None if target is None else _temporary(target)
    if target is None or made is None:
        yield None
        return
    temporary, wanted = made
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
            _set_owner_and_mode(file.fileno(), wanted)  # check again: the block may have created a file there
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _target(path: Any) -> Any:
    """Return the regular file (or the path for one) that a path leads to through symbolic links; None if it is something else."""
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        return None
    for _ in range(_MAX_LINKS):
        if os.path.realpath(os.fsdecode(os.path.dirname(os.path.abspath(path)))).startswith("/proc/"):
            return None  # /dev/stdout and similar: a file that another process has open for writing
        if not os.path.islink(path):
            return path
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return None


def _temporary(target: Any) -> tuple[Any, os.stat_result] | None:
    """Return a new empty file next to `target`, and the owner and mode it is to have; None if it cannot be created."""
    try:
        with open(target, "r+b") as file:  # a file that may not be written to may not be replaced either
            before = os.fstat(file.fileno())
    except FileNotFoundError:
        before = None
    try:
        name, handle = _create_new(target, 0o666 if before is None else stat.S_IMODE(before.st_mode) & 0o777)
    except (PermissionError, FileNotFoundError):
        return None
    try:
        wanted = os.fstat(handle) if before is None else before
        _set_owner_and_mode(handle, wanted)
    except PermissionError:
        os.unlink(name)
        return None
    except BaseException:
        os.unlink(name)
        raise
    finally:
        os.close(handle)
    return name, wanted


def _set_owner_and_mode(handle: int, wanted: os.stat_result) -> None:
    """Set a file's owner and mode."""
    now = os.fstat(handle)
    if (now.st_uid, now.st_gid) != (wanted.st_uid, wanted.st_gid):
        os.fchown(handle, wanted.st_uid, wanted.st_gid)
    if now.st_mode != wanted.st_mode or (now.st_uid, now.st_gid) != (wanted.st_uid, wanted.st_gid):
        os.fchmod(handle, stat.S_IMODE(wanted.st_mode))


def _create_new(target: Any, mode: int) -> tuple[Any, int]:
    folder, base = os.path.split(target)
    while True:
        ending = f".{secrets.token_hex(6)}.tmp"
        own: Any = base[:200] + (os.fsencode(ending) if isinstance(base, bytes) else ending)
        name = os.path.join(folder, own)
        with contextlib.suppress(FileExistsError):
            return name, os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), mode)
