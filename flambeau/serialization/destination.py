"""Where `save` writes to: a regular file changes at once or not at all; a device or a pipe is written to as it is."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Any

_LINKS = 40  # as many symbolic links in a row as Linux follows


@contextlib.contextmanager
def written_path(path: Any) -> Iterator[str]:
    """The name of a file to be filled in the block: an empty temporary one that takes `path`'s place, owner and mode when the block
    ends well, so that a crash leaves the old file whole. `path` itself where that cannot be: a device, a pipe, a file in a folder
    where no other can be made, a file of somebody else's."""
    path = os.fspath(path)
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {os.fsdecode(os.path.dirname(path))} does not exist.")
    target = _target(path)
    temporary = None if target is None else _temporary(target)
    if target is None or temporary is None:
        yield path
        return
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def written_file(path: Any) -> Iterator[Any]:
    """`written_path`, opened."""
    with written_path(path) as name, open(name, "wb") as file:
        yield file


def _target(path: Any) -> Any:
    """The regular file (or the place for one) that a path leads to through symbolic links; None where it leads to something else."""
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        return None
    for _ in range(_LINKS):
        if os.path.realpath(os.fsdecode(os.path.dirname(os.path.abspath(path)))).startswith("/proc/"):
            return None  # /dev/stdout and its kin: a file that somebody else has opened, and goes on writing to
        if not os.path.islink(path):
            return path
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return None


def _temporary(target: Any) -> Any:
    """A new empty file beside `target`, with its owner and mode; None where there can be none."""
    try:
        with open(target, "r+b") as file:  # a file that may not be written to may not be replaced either
            before = os.fstat(file.fileno())
    except FileNotFoundError:
        before = None
    mode = 0o666 if before is None else stat.S_IMODE(before.st_mode) & 0o777
    try:
        name, handle = _fresh(target, mode)
    except (PermissionError, FileNotFoundError):
        return None
    try:
        if before is not None:
            made = os.fstat(handle)
            if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
                os.fchown(handle, before.st_uid, before.st_gid)
            os.fchmod(handle, stat.S_IMODE(before.st_mode))
    except PermissionError:
        os.unlink(name)
        return None
    except BaseException:
        os.unlink(name)
        raise
    finally:
        os.close(handle)
    return name


def _fresh(target: Any, mode: int) -> tuple[Any, int]:
    folder, base = os.path.split(target)
    while True:
        ending = f".{secrets.token_hex(6)}.tmp"
        own: Any = base[:200] + (os.fsencode(ending) if isinstance(base, bytes) else ending)
        name = os.path.join(folder, own)
        with contextlib.suppress(FileExistsError):
            return name, os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), mode)
