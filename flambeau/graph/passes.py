"""The passes over programs, in order. Each makes a program cheaper and changes no number, but for the order of sums over lists of tensors
and the last digit of probabilities that are found again."""

from __future__ import annotations

from collections.abc import Callable

from .conversions import fold_conversions
from .fusion import drop_dead, fuse
from .gathering import gather
from .placing import place_parts
from .program import Program
from .reductions import fuse_into_reductions
from .remaking import remake_kept

PASSES: tuple[Callable[[Program], None], ...] = (
    drop_dead,
    remake_kept,
    place_parts,
    fold_conversions,
    drop_dead,
    fuse,
    fuse_into_reductions,
    gather,
)

__all__ = ["PASSES"]
