"""`torch.__config__`: what this installation is made of."""

from __future__ import annotations

from ...backends.cpu.threads import get_num_interop_threads, get_num_threads
from ...config import show

__all__ = ["parallel_info", "show"]


def _cxx_flags() -> str:
    """The options of the C++ compiler: none, because nothing here is compiled before it is used."""
    return ""


def parallel_info() -> str:
    """A text: the number of threads that kernels use, and what runs them."""
    return (
        f"threads of one operator: {get_num_threads()}\n"
        f"operators at the same time: {get_num_interop_threads()}\n"
        "parallel loops and oneDNN share libgomp's threads, unless other programs crowd the cores"
    )
