"""Private folders, which no other user can read or has made: for the state of this user's programs, and for temporary files."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .ownership import distrust

_LOCK = "lock"


def make_private(folder: Path) -> Path:
    """Make a folder that only this user can enter, or accept an existing one that is private; raise PermissionError for any other."""
    with contextlib.suppress(FileExistsError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    status = os.lstat(folder)  # a link is none of ours, wherever it leads
    found = "it is not a directory" if not stat.S_ISDIR(status.st_mode) else distrust(status)
    if found is None and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        found = f"others can look into it (mode {stat.S_IMODE(status.st_mode):o}; chmod 700 mends that)"
    if found is not None:
        raise PermissionError(f"{folder} is not used: {found}")
    return folder


def _homes() -> Iterator[Path]:
    """Yield the user's home directory by the environment and by the system: under `sudo` they may differ."""
    yield Path(os.path.expanduser("~"))
    with contextlib.suppress(KeyError):  # a container's user without a name
        yield Path(pwd.getpwuid(os.geteuid()).pw_dir)


def _candidates(runtime: bool) -> Iterator[Path]:
    if runtime and (given := os.environ.get("XDG_RUNTIME_DIR")):
        yield Path(given) / "flambeau"
    if given := os.environ.get("XDG_STATE_HOME"):
        yield Path(given) / "flambeau"
    for home in _homes():
        yield home / ".local" / "state" / "flambeau"
    yield Path(tempfile.gettempdir()) / f"flambeau-{os.geteuid()}"


def state_folder(name: str, *, runtime: bool = False) -> Path:
    """Return the private folder in which this user's programs keep the state called `name`, made if it is missing.

    It is below XDG_STATE_HOME or ~/.local/state; with `runtime`, below XDG_RUNTIME_DIR where that is set. A user without a
    home has one in the temporary directory, which is refused if anybody else has made it."""
    problems = []
    for place in _candidates(runtime):
        if not place.is_absolute():
            continue
        try:
            return make_private(make_private(place) / name)
        except OSError as e:
            problems.append(str(e))
    raise PermissionError(f"no private folder for {name}: " + "; ".join(problems))


class Scratch:
    """A new private folder for temporary files, removed by `close`.

    A process that is killed cannot remove its folder, but its lock inside is released: the next process that makes such a folder removes
    those of this user whose lock is free."""

    def __init__(self, kind: str):
        prefix = f"flambeau-{kind}-"
        _remove_abandoned(Path(tempfile.gettempdir()), prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        # Locked before it gets the name that others search for: no process sees a free lock while its folder is in use.
        draft = self.path / f"{_LOCK}.new"
        self._lock = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(self.path / _LOCK)

    def close(self) -> None:
        """Remove the folder and all that is in it."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.close()


def _remove_abandoned(place: Path, prefix: str) -> None:
    with os.scandir(place) as entries:
        found = [e.path for e in entries if e.name.startswith(prefix) and _is_private(e)]
    for folder in found:
        try:
            lock = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # not one of these folders, or just being made or removed
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:  # its process lives
            continue
        finally:
            os.close(lock)


def _is_private(entry: os.DirEntry[str]) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and distrust(status) is None
