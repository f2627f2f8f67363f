"""Flambeau as torch beyond this process: in the programs that a program starts, and in a whole Python environment.

`python -m flambeau` puts the folder `startup` beside this file on PYTHONPATH (`export`), so that every Python started from there has
Flambeau as torch, too. `flambeau activate` writes a `.pth` file, which Python reads at every start in that environment; commands.py installs the names
of commands beside it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

STARTUP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "startup")
_FILE = "flambeau-as-torch.pth"


def export() -> None:
    """Set environment variables so that programs started from now on get Flambeau as torch."""
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    os.environ["PYTHONPATH"] = os.pathsep.join([STARTUP, *(folder for folder in folders if folder != STARTUP)])
    if STARTUP not in sys.path:  # where PYTHONPATH would have put it: programs hand sys.path on, too
        sys.path.insert(0 if getattr(sys.flags, "safe_path", False) else 1, STARTUP)


def activation_file() -> Path:
    """Return the path of the file that activates Flambeau as torch in this Python environment."""
    return Path(sysconfig.get_path("purelib"), _FILE)


def activate() -> Path:
    """Make every `import torch` in this Python's environment return Flambeau from the next start on. Returns the file that was written; it
    has no effect after the package is removed."""
    line = (
        f"import os, sys; there = {STARTUP!r}; os.path.isdir(there) and (sys.path.append(there),"
        " __import__('flambeau_torch_later').come_first(), sys.path.remove(there))\n"
    )
    path = activation_file()
    path.write_text(line, encoding="utf-8")
    return path


def deactivate() -> Path | None:
    """Undo `activate`; return the removed file, or None."""
    path = activation_file()
    if not path.exists():
        return None
    path.unlink()
    return path
