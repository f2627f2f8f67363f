"""The order in which patterns are tried."""

from .match_utils import _sorted_patterns_dict

__all__ = ["_sorted_patterns_dict"]
