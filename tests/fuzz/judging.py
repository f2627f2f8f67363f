"""Whether two outcomes of a program differ, by more than rounding where numbers are rounded."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .execution import Numbers, Outcome, run, run_wide

# Relative precision, and how many units of it a result may be away before double precision is asked which library is nearer
EPSILON = {"float64": 2.2e-16, "complex128": 2.2e-16, "float32": 1.2e-7, "complex64": 1.2e-7, "bfloat16": 7.8e-3, "float16": 9.8e-4,
           "complex32": 9.8e-4, "float": 2.2e-16, "complex": 2.2e-16}  # fmt: skip
UNITS = 8
FARTHER = 8  # times PyTorch's own distance from the result in double precision
DOUBLE = 1e-11  # of the largest number, for results that nothing more exact judges

GRADIENTS = (
    "slopes",
    "curves",
)  # names of results whose layout is nobody's business, and whose history may be left out if it leads nowhere
FREE = ("stride", "requires_grad")


class Difference:
    """What is different: `kind` groups differences that most likely have one cause."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind, self.text = kind, text


def compared(lines: list[str], ours: Any, theirs: Any, exact: bool = False) -> Difference | None:
    """Run a program in both libraries. Returns their first difference."""
    judge = run(lines, theirs)
    mine = run(lines, ours)
    if (mine.error, mine.error and mine.line) != (judge.error, judge.error and judge.line):
        kind = f"raises {mine.error or 'nothing'} instead of {judge.error or 'nothing'}"
        mistake = re.sub(r"[\d\W]+", " ", f"{mine.said[:40]} / {judge.said[:40]}")
        return Difference(f"{kind}: {mistake}", f"{kind}\n  ours:  {mine.said[:300]}\n  torch: {judge.said[:300]}")
    if judge.error:
        return None  # what a refused call left behind: Flambeau changes nothing, PyTorch may have
    leaves: list[tuple[str, Any, Any, str]] = []
    for name in {**judge.values, **mine.values}:
        found = _different(name, mine.values.get(name, "absent"), judge.values.get(name, "absent"), leaves)
        if found:
            return found
    if [group for group in mine.shared if not any(n.startswith(GRADIENTS) for n in group)] != [
        group for group in judge.shared if not any(n.startswith(GRADIENTS) for n in group)
    ]:
        return Difference("memory", f"memory shared by {mine.shared} instead of {judge.shared}")
    return _rounded(lines, leaves, _largest(judge.values), theirs, exact) if leaves else None


def _different(place: str, ours: Any, theirs: Any, leaves: list) -> Difference | None:
    """The first difference of what must agree exactly; numbers that may be rounded are added to `leaves`."""
    gradient = place.startswith(GRADIENTS)
    if (
        gradient
        and (ours is None or theirs is None)
        and not any(isinstance(x, Numbers) and x.values.any() for x in (ours, theirs))
    ):
        return None  # a gradient of zeros need not be made
    if isinstance(theirs, Numbers) and isinstance(ours, Numbers):
        for fact, judge in theirs.facts.items():
            if ours.facts.get(fact) != judge and not (fact in FREE and gradient):
                return Difference(fact, f"{place}: {fact} is {ours.facts.get(fact)!r} instead of {judge!r}")
        return _numbers(place, ours.values, theirs.values, theirs.facts["dtype"], leaves)
    if isinstance(theirs, (list, dict)) and type(ours) is type(theirs) and len(ours) == len(theirs):
        keys = theirs if isinstance(theirs, dict) else range(len(theirs))
        for key in keys:
            mine = ours[key] if isinstance(ours, list) else ours.get(key)
            found = _different(f"{place}|{key}", mine, theirs[key], leaves)
            if found:
                return found
        return None
    if type(ours) is not type(theirs) or ours != theirs:
        return Difference("value", f"{place}: {ours!r} instead of {theirs!r}"[:600])
    return None


def _numbers(place: str, ours: np.ndarray, theirs: np.ndarray, dtype: str, leaves: list) -> Difference | None:
    if np.array_equal(*(map(_bits, (ours, theirs)) if theirs.dtype.kind in "fc" else (ours, theirs))):
        return None
    if dtype in EPSILON and _same_kind(ours, theirs):
        leaves.append((place, ours, theirs, dtype))
        return None
    return Difference("value", shown(place, ours, theirs))


def _bits(a: np.ndarray) -> np.ndarray:
    """Numbers in which all nans are the same, and zeros are not."""
    parts = np.stack([a.real, a.imag]) if np.iscomplexobj(a) else a
    return np.where(np.isnan(parts), 7e77, np.where(parts == 0, np.copysign(5e-324, parts), parts.astype(np.float64)))


def _same_kind(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Whether nans and infinities stand in the same places."""
    a, b = (np.where(np.isfinite(_bits(x)), 0, _bits(x)) for x in (ours, theirs))
    nans = np.array_equal(np.isnan(ours), np.isnan(theirs))
    return nans and (np.array_equal(a, b) or bool(np.isnan(theirs).any() and np.iscomplexobj(theirs)))


def _largest(values: Any) -> float:
    """The largest finite magnitude among numbers in all these values."""
    if isinstance(values, (Numbers, np.ndarray)):
        a = values.values if isinstance(values, Numbers) else values
        a = np.abs(a[np.isfinite(a)]) if a.dtype.kind in "fc" else np.zeros(0)
        return float(a.max()) if a.size else 0.0
    parts = values.values() if isinstance(values, dict) else values if isinstance(values, list) else ()
    return max(map(_largest, parts), default=0.0)


def _rounded(lines: list[str], leaves: list, inputs: float, theirs: Any, exact: bool) -> Difference | None:
    """Ask double precision about numbers that differ."""
    if exact:
        return Difference("bits", shown(*leaves[0][:3]))
    wide: Outcome | None = None
    scale = max((_largest(leaf[2]) for leaf in leaves), default=0.0)
    scale = max(scale, min(1.0, inputs))
    for place, ours, judge, dtype in leaves:
        room = (
            UNITS * EPSILON[dtype] * np.abs(judge) + np.finfo(np.float32 if EPSILON[dtype] > 1e-8 else np.float64).tiny
        )
        if dtype in ("float64", "complex128", "float", "complex"):
            room = DOUBLE * max(scale, 1e-300)
        with np.errstate(all="ignore"):
            away = np.abs(np.where(ours == judge, 0, ours - judge))
        if not (away > room).any():
            continue
        wide = wide or run_wide(lines, theirs)
        best = _at(wide.values, place)
        if not isinstance(best, Numbers) or best.values.shape != judge.shape:
            return Difference("value", shown(place, ours, judge))
        with np.errstate(all="ignore"):
            own, other = (np.abs(np.where(x == best.values, 0, x - best.values)) for x in (judge, ours))
            own, other = (np.where(np.isfinite(x), x, 0) for x in (own, other))
        if (other > FARTHER * own.max(initial=0) + room + EPSILON[dtype] * scale).any():
            return Difference(
                "value", shown(place, ours, judge) + f"\n  in double precision: {best.values.tolist()}"[:400]
            )
    return None


def _at(values: Any, place: str) -> Any:
    for key in place.split("|"):
        try:
            values = values[key if isinstance(values, dict) else int(key)]
        except (KeyError, IndexError, ValueError, TypeError):
            return None
    return values


def shown(place: str, ours: np.ndarray, theirs: np.ndarray) -> str:
    return f"{place}\n  ours:  {ours.tolist()}"[:600] + f"\n  torch: {theirs.tolist()}"[:600]
