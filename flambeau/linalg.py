"""Linear algebra: every operator declared in the namespace "linalg"."""

from . import ops as _ops

globals().update(_ops.namespace("linalg"))
