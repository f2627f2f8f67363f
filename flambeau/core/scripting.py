"""The question that code asks which is also compiled by TorchScript."""

from __future__ import annotations


def is_scripting() -> bool:
    """Return whether this is compiled code: in Python never. The compiler leaves out what only Python does."""
    return False
