"""Families of calls by name."""

from __future__ import annotations

from . import chance, convolutions, derivatives, formulas, layers, losses, matrices, ordering, windows
from .family import FAMILIES

__all__ = [
    "FAMILIES",
    "chance",
    "convolutions",
    "derivatives",
    "formulas",
    "layers",
    "losses",
    "matrices",
    "ordering",
    "windows",
]
