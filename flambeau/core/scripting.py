"""`is_scripting`, which code asks that TorchScript compiles, too."""

from __future__ import annotations


def is_scripting() -> bool:
    """Return whether this is compiled code: in Python never. The compiler leaves out what only Python does."""
    return False
