"""Linear algebra: every operator declared in the namespace "linalg"."""

from typing import TYPE_CHECKING, Any

from . import ops as _ops
from .core.errors import LinAlgError  # noqa: F401

globals().update(_ops.namespace("linalg"))

if TYPE_CHECKING:  # names that are put here when the module is imported

    def __getattr__(name: str) -> Any: ...
