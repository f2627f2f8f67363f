"""What PyTorch's side of a program looks like after each line, as plain data that can be recorded.

Facts that must agree exactly become one digest a line; values become sums (tests/ops/operator_database.py), which may differ by rounding.
"""

from __future__ import annotations

import hashlib
from typing import Any

from random_programs import EMPTY_IGNORES, HalfDone, Side, facts, generate, run, sharing, ungoverned

from tests.ops.operator_database import summed

ROUNDED = 2e-3  # of the norm: values are not made equal after each line, so that differences by rounding pile up


def state(side: Side, raised: str) -> list:
    """[exception, digest of what must agree exactly, sums of values and gradients] after a line."""
    exact: list[Any] = [side.log, sharing(side.tensors())]
    sums = []
    for name, t in side.tensors().items():
        known = facts(t)
        exact.append([name, sorted((k, str(v)) for k, v in known.items() if t.numel() or k not in EMPTY_IGNORES)])
        sums.append(summed(t))
        if known["is_leaf"] is True or t.retains_grad:
            exact.append([name, t.grad is None])
            if t.grad is not None:
                sums.append(summed(t.grad))
    return [raised, hashlib.sha256(repr(exact).encode()).hexdigest()[:8], sums]


def observed(lines: list[str], side: Side, most: int) -> list:
    """The state of one library after each of the first lines."""
    return [state(side, side.execute(line)) for line in lines[:most]]


def settled(lines: list[str], ours: Any, theirs: Any) -> list:
    """The lines up to the first at which both stop to be compared, with PyTorch's states: only lines whose states agree here, too."""
    sides = Side(ours), Side(theirs)
    kept = []
    for line in lines:
        mine, judge = (state(side, side.execute(line)) for side in sides)
        if differs(mine, judge) or ungoverned(sides[1]):
            break
        kept.append([line, judge])
    return kept


def invented(seed: int, ours: Any, theirs: Any) -> list:
    """The program of a seed and PyTorch's states."""
    lines, difference = generate(seed, Side(ours), Side(theirs))
    assert difference is None, difference
    return settled(lines[:-1], ours, theirs)  # PyTorch may have been left half done by the last line


def told_of(lines: list[str], ours: Any, theirs: Any) -> list:
    """A given program and PyTorch's states."""
    run(lines, Side(ours), Side(theirs))
    return settled(lines, ours, theirs)


def differs(mine: list, judge: list) -> str:
    if mine[:2] != list(judge[:2]) or len(mine[2]) != len(judge[2]):
        return f"{mine[:2]} instead of {judge[:2]}"
    for found, wanted in zip(mine[2], judge[2]):
        room = ROUNDED * wanted[4] + 1e-5
        if (
            found[:3] != list(wanted[:3])
            or max(abs(a - b) for a, b in zip([*found[3], found[4]], [*wanted[3], wanted[4]])) > room
        ):
            return f"{found} instead of {wanted}"
    return ""


__all__ = ["HalfDone", "differs", "invented", "observed", "settled", "state", "told_of"]
