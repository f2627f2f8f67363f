"""The named tuples that operators with several results return."""

from .core.return_types import ALL as _ALL

globals().update(_ALL)
