"""Out of Python: what C++ programs and operators written in C++ need (headers, CMake files), and models as native libraries."""

from .. import utils as _utils  # noqa: F401  the whole room before its parts: see naming.load
from .aot import NotExportable, export_library

__all__ = ["NotExportable", "export_library"]
