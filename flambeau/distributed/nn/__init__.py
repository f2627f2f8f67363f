"""Differentiable collectives, and modules on other workers."""

from __future__ import annotations

from typing import Any

from ...core import naming as _naming
from .functional import (
    all_gather,
    all_reduce,
    all_to_all,
    all_to_all_single,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)

__all__ = [
    "RemoteModule",
    "all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter", "scatter",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "RemoteModule":  # needs the RPC framework, which is imported when it is used
        return _naming.submodule(f"{__name__}.api", "remote_module").RemoteModule
    return _naming.submodule(__name__, name)
