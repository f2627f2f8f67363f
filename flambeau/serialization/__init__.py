"""save and load, in PyTorch's own file formats."""

from .reader import add_safe_globals, clear_safe_globals, get_safe_globals, load, safe_globals
from .writer import save

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save"]
