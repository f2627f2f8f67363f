"""Where programs look for the name of the flat parameter."""

from ._common_utils import FLAT_PARAM

__all__ = ["FLAT_PARAM"]
