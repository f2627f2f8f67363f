"""The passes over programs, in order. Each makes a program cheaper and changes no number, but for the order of sums over lists of tensors,
rows and columns, and the last digit of probabilities that are found again."""

from __future__ import annotations

from collections.abc import Callable

from .channels import spread_norms
from .conversions import fold_conversions, read_unconverted
from .fusion import drop_dead, fuse
from .gathering import gather
from .part_sums import place_parts
from .pieces import split_where_made
from .placement import place
from .program import Program
from .recomputation import remake_kept
from .reductions import fuse_into_reductions, take_sums
from .rows import fuse_rows
from .sharing import share, write_over
from .updates import fold_into_updates

PASSES: tuple[Callable[[Program], None], ...] = (
    drop_dead,
    share,
    remake_kept,
    spread_norms,
    place_parts,
    split_where_made,
    place,
    fold_into_updates,
    fold_conversions,
    drop_dead,
    take_sums,
    read_unconverted,
    drop_dead,
    write_over,
    fuse,
    fuse_rows,
    fuse_into_reductions,
    gather,
)
