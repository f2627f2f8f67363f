"""Modules that only some functions need: most are compiled without them, and without the memory that they take."""

from __future__ import annotations

import importlib
from typing import Any


class Late:
    """Stands for a module, which is imported when something of it is first used."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


def late(name: str) -> Any:
    """Return a stand-in for a module of the compiler, by its name below it: `passes.layouts`."""
    return Late(f"{__package__}.{name}")


__all__ = ["Late", "late"]
