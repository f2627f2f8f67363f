"""Identity of this user's server process: its id together with its start time and the machine's boot id.

The identity is stored in a file in a private folder. Process ids are reused, and command lines can be forged: a process is signalled only
if its identity still matches, through a process descriptor that cannot come to mean another process meanwhile.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import signal
import tempfile
from pathlib import Path

from ..core.ownership import open_own, write_own
from ..core.private_folders import state_folder


def pid_file() -> Path:
    """Return the path of the file with the process id of this user's server; one for each temporary directory, as in TorchServe."""
    place = hashlib.sha256(os.path.realpath(tempfile.gettempdir()).encode()).hexdigest()[:12]
    return state_folder("serve", runtime=True) / f"torchserve-{place}.pid"


def _identity(pid: int) -> str | None:
    """Return a text that identifies one process of this user: boot, start time; None if there is no such process, or it has ended."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            return None
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    state, started = fields[0], fields[19]
    return None if state in "ZX" else f"{pid} {started} {boot}"


def note(pid: int) -> None:
    """Store the identity of the server process in the file."""
    if (words := _identity(pid)) is not None:
        write_own(pid_file(), words.encode())


def forget(pid: int | None = None) -> None:
    """Remove the file; if `pid` is given, only if it names that process."""
    if pid is None or running() == pid:
        pid_file().unlink(missing_ok=True)


def running() -> int | None:
    """Return the process id of the stored server, if it still runs."""
    try:
        with open(open_own(pid_file(), os.O_RDONLY), encoding="ascii") as file:
            words = file.read(200)
        pid = int(words.split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return pid if _identity(pid) == words else None


def end(pid: int, seconds: float) -> bool:
    """Ask the server to end and wait; return whether it has ended in that time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if running() != pid:  # looked at again, now that the descriptor cannot mean another process
            return True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)
