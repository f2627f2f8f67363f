"""save and load, in PyTorch's own file formats; checkpoints in several files."""

import importlib as _importlib

from ..core.naming import no_attribute as _no_attribute
from .reader import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    get_unsafe_globals_in_checkpoint,
    load,
    safe_globals,
)
from .writer import DEFAULT_PROTOCOL, save

__all__ = [
    "DEFAULT_PROTOCOL",
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "load",
    "load_sharded",
    "load_sharded_checkpoint",
    "safe_globals",
    "save",
    "save_sharded",
]

_SHARDED = ("load_sharded", "load_sharded_checkpoint", "save_sharded")


def __getattr__(name: str):  # type: ignore[no-untyped-def]
    """Reading and writing shards is imported when first used."""
    if name in _SHARDED:
        return getattr(_importlib.import_module(f"{__name__}.sharded"), name)
    raise _no_attribute(__name__, name)
