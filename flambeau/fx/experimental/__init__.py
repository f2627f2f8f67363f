"""Parts of fx that may change."""

from ...library import aten as _aten  # noqa: F401  the whole room before its parts: see naming.load
