"""What spread tensors do: which collectives run, and which rank has what."""

from __future__ import annotations

from ._comm_mode import CommDebugMode
from ._visualize_sharding import visualize_sharding

__all__ = ["CommDebugMode", "visualize_sharding"]
