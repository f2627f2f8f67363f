"""Linear algebra: every operator declared in the namespace "linalg"."""

from . import ops as _ops
from .core.errors import LinAlgError  # noqa: F401

globals().update(_ops.namespace("linalg"))
