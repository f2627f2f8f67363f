"""Special functions: every operator declared in the namespace "special"."""

from . import ops as _ops

globals().update(_ops.namespace("special"))
