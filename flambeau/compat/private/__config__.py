"""`torch.__config__`: the build and settings of this installation."""

from __future__ import annotations

from ...backends.cpu.threads import get_num_interop_threads, get_num_threads
from ...config import show

__all__ = ["parallel_info", "show"]


def _cxx_flags() -> str:
    """Return the options of the C++ compiler: none, because nothing is compiled in advance."""
    return ""


def parallel_info() -> str:
    """Return a text on the number of threads that kernels use, and the library that runs them."""
    return (
        f"threads of one operator: {get_num_threads()}\n"
        f"operators at the same time: {get_num_interop_threads()}\n"
        "parallel loops and oneDNN share libgomp's threads, unless other programs crowd the cores"
    )
