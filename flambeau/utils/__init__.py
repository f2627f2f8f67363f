"""Tools for training, data and inspection; each is imported on first use."""

from pathlib import Path as _Path

from ..core import naming as _naming
from ..core.exchange import swap_tensors as swap_tensors

# The function has its module's name: imported here, so that `utils.summary` is always the function.
from .summary import summary as summary

# Where CMake finds `find_package(Torch)`: -DCMAKE_PREFIX_PATH=$(python -c "import flambeau; print(flambeau.utils.cmake_prefix_path)")
cmake_prefix_path = str(_Path(__file__).parents[1] / "share" / "cmake")
_HOMES = {"draw": "drawing"}


def set_module(obj: object, mod: str) -> None:
    """Set an object's `__module__`."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(_naming.submodule(__name__, _HOMES[name]), name)
    if name.startswith("_") and name not in ("_pytree", "_python_dispatch", "_triton"):
        raise _naming.no_attribute(__name__, name)
    return _naming.submodule(__name__, name)
