"""`torch.distributed.tensor.experimental`: functions of local parts, custom sharding rules, context parallelism."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .._dispatch import switches as _switches
from ._context_parallel import context_parallel
from ._func_map import local_map
from ._register_sharding import register_sharding

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]


@contextlib.contextmanager
def implicit_replication() -> Iterator[None]:
    """Context manager: plain tensors among DTensors count as replicated."""
    before, _switches.implicit = _switches.implicit, True
    try:
        yield
    finally:
        _switches.implicit = before
