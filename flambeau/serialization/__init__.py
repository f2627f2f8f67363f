"""save and load, in PyTorch's own file formats; checkpoints in several files."""

from collections.abc import Callable as _Callable

from ..core.device import device as _device
from ..core.naming import no_attribute as _no_attribute
from ..core.naming import submodule as _submodule
from ..core.storage import UntypedStorage as _Storage
from .internals import _is_zipfile as _is_zipfile
from .internals import _open_file_like as _open_file_like
from .internals import _open_zipfile_reader as _open_zipfile_reader
from .internals import _open_zipfile_writer as _open_zipfile_writer
from .names import StorageType, normalize_storage_type
from .options import (
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
from .places import default_restore_location, location_tag, register_package, validate_cuda_device
from .reader import get_unsafe_globals_in_checkpoint, load
from .unpickler import SourceChangeWarning, add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from .writer import DEFAULT_PROTOCOL, save

MAP_LOCATION = _Callable[[_Storage, str], _Storage] | _device | str | dict[str, str] | None  # what load takes for it

__all__ = [
    "DEFAULT_PROTOCOL", "LoadEndianness", "SourceChangeWarning", "StorageType", "add_safe_globals",
    "clear_safe_globals", "default_restore_location", "get_crc32_options", "get_default_load_endianness",
    "get_default_mmap_options", "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "load_sharded",
    "load_sharded_checkpoint", "location_tag", "normalize_storage_type", "register_package", "safe_globals", "save", "save_sharded",
    "set_crc32_options", "set_default_load_endianness", "set_default_mmap_options", "skip_data",
    "validate_cuda_device",
]  # fmt: skip

_SHARDED = ("load_sharded", "load_sharded_checkpoint", "save_sharded")


def __getattr__(name: str):
    """Import functions for shards on first use."""
    if name in _SHARDED:
        return getattr(_submodule(__name__, "sharded"), name)
    raise _no_attribute(__name__, name)
