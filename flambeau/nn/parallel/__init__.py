"""Modules that run on several devices or in several processes."""

from typing import Any

from ...core import naming as _naming
from .data_parallel import DataParallel, data_parallel, gather, parallel_apply, replicate, scatter

__all__ = [
    "DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter",
]  # fmt: skip
_HOMES = {"DistributedDataParallel": "distributed"}


def __getattr__(name: str) -> Any:
    """Import names that need process groups on first use."""
    if name in _HOMES:
        return getattr(_naming.submodule(__name__, _HOMES[name]), name)
    if not name.startswith("__"):
        return _naming.submodule(__name__, name)
    raise _naming.no_attribute(__name__, name)
