"""Checks of who may have written a file, made before it is trusted, loaded, or written to.

A name in a folder that everybody may write to (/tmp) can be taken by a stranger first: as a file, as a folder, or as a link to
a file of the victim's. `distrust` is the rule for what must be this user's alone (keys, compiled kernels, process ids), `planted` the
rule for places that the user has chosen (logs, build folders, caches), which may belong to others but not be put there by a stranger.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_ROOT = 0


def distrust(status: os.stat_result) -> str | None:
    """Return the reason why another user may have written this file or folder, or None."""
    if not hasattr(os, "geteuid"):  # no POSIX owners on this platform
        return None
    if status.st_uid != os.geteuid():
        return f"it belongs to another user (number {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others can write to it (mode {stat.S_IMODE(status.st_mode):o}; chmod 700 mends that)"
    return None


def planted(path: str | os.PathLike[str]) -> str | None:
    """Return the reason why a stranger may have put `path`, a folder above it or a link on the way there, or None.

    An entry of a folder that everybody may write to must be this user's or root's. A path that does not exist is no problem."""
    if not hasattr(os, "geteuid"):
        return None
    for text in dict.fromkeys((os.path.abspath(path), os.path.realpath(path))):
        for part in (Path(text), *Path(text).parents):
            if (found := _ownership_problem(part)) is not None:
                return found
    return None


def _ownership_problem(part: Path) -> str | None:
    try:
        owner, above = os.lstat(part).st_uid, os.stat(part.parent).st_mode
    except OSError:
        return None
    if above & stat.S_IWOTH and owner not in (_ROOT, os.geteuid()):
        return f"{part} belongs to another user (number {owner}), in a folder that everybody may write to"
    return None


def refuse_planted(path: str | os.PathLike[str], what: str) -> None:
    """Raise PermissionError if a stranger may have put `path` there; `what` names its intended use."""
    if (found := planted(path)) is not None:
        raise PermissionError(f"{path} is not used as {what}: {found}")


def open_own(path: str | os.PathLike[str], flags: int, mode: int = 0o600) -> int:
    """Open a regular file and return its descriptor; links, other names of the same file, pipes and files that a stranger has put there raise
    PermissionError."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    status = os.fstat(descriptor)
    found = None
    if not stat.S_ISREG(status.st_mode):
        found = "it is not a regular file"
    elif status.st_nlink > 1:
        found = "it has other names (hard links)"
    else:
        found = planted(path)
    if found is not None:
        os.close(descriptor)
        raise PermissionError(f"{path} is not used: {found}")
    return descriptor


def write_own(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file that only this user can read; it appears complete or not at all."""
    draft = f"{os.fspath(path)}.{os.urandom(8).hex()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
