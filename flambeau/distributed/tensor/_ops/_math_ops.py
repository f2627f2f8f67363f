"""Another place where programs look for the placement of norms."""

from ..placement_types import _NormPartial

__all__ = ["_NormPartial"]
