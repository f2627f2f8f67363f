"""Families of calls by name."""

from __future__ import annotations

from . import convolutions, losses, ordering, windows
from .family import FAMILIES

__all__ = ["FAMILIES", "convolutions", "losses", "ordering", "windows"]
