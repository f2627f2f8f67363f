"""Messages about dynamic sizes that a program cannot accept: found by trying, in PyTorch's wording."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

from .dynamic_shapes import Sizes
from .symbols import Expression, Symbol

_MAX_SIZE = 64  # sizes above the example's that are tried to find a bound
Works = Callable[[dict[Symbol, int]], bool]


class Restriction(NamedTuple):
    """A size that is not free: it must equal another one, or is between two numbers."""

    symbol: Symbol
    equal: Symbol | None
    bottom: int = 0
    top: int = 0


def restrictions(sizes: Sizes, works: Works) -> list[Restriction]:
    """Return the sizes that are not free; `works` tests whether the program agrees at given sizes."""
    hints = {s: s.hint for s in sizes.symbols}

    def is_stuck(symbol: Symbol) -> bool:
        tried = [_other(sizes, symbol, n) for n in (1, _MAX_SIZE // 2)] + ([sizes.small[symbol]] if sizes.small else [])
        return not all(works({**hints, symbol: size}) for size in tried)

    stuck = list(filter(is_stuck, sizes.symbols))
    equal: dict[Symbol, Symbol] = {}
    for first, second in combinations(stuck, 2):
        both = _other(sizes, first, 1)
        if first.hint == second.hint and second not in equal and works({**hints, first: both, second: both}):
            equal[second] = first
    apart = [s for s in stuck if s not in equal and s not in equal.values()]
    return [*(Restriction(*pair) for pair in equal.items()), *(_restriction_of(sizes, s, hints, works) for s in apart)]


def settled(sizes: Sizes, works: Works) -> bool:
    """Restrict sizes marked AUTO or DYNAMIC to those that the program accepts; return whether there were such."""
    changed = False
    for symbol, equal, bottom, top in restrictions(sizes, works):
        kind = sizes.hinted.get(symbol)
        if kind is None or (equal is not None and equal not in sizes.hinted):
            continue
        if equal is not None:
            sizes.replace(symbol, Expression.of(equal))
        elif bottom < top:
            low, high = sizes.ranges[symbol]
            bounds = bottom if bottom > 2 else low, top if top < symbol.hint + _MAX_SIZE else high
            if bounds == (low, high):
                continue
            sizes.ranges[symbol] = bounds
        elif kind == "AUTO":
            sizes.replace(symbol, Expression(symbol.hint))
        else:
            continue
        changed = True
    return changed


def violations(sizes: Sizes, works: Works) -> str | None:
    """Return a message about the sizes that are not free; None if each size and each pair is free."""
    found = restrictions(sizes, works)
    if not found:
        return None
    names = ", ".join(sizes.spoken(each.symbol) for each in found)
    texts = [_describe_restriction(sizes, each) for each in found]
    reasons = "\n".join(f"  - {text}" for text, _ in texts)
    fixes = "\n".join(f"  {fix}" for _, fix in texts)
    return f'Constraints violated ({names})! For more information, run with TORCH_LOGS="+dynamic".\n{reasons}\nSuggested fixes:\n{fixes}\n'  # fmt: skip


def within_reach(sizes: Sizes, works: Works) -> Sizes:
    """Return the sizes with upper bounds up to which the program was found to make the same calls."""
    found, hints = copy.copy(sizes), {s: s.hint for s in sizes.symbols}
    found.ranges = {}
    for symbol, (low, high) in sizes.ranges.items():
        end = min(symbol.hint + _MAX_SIZE, high or symbol.hint + _MAX_SIZE)
        top = _furthest_size(symbol.hint, end, 1, functools.partial(_accepts_size, works, hints, symbol))
        found.ranges[symbol] = low, top
    return found


def _accepts_size(works: Works, hints: dict[Symbol, int], symbol: Symbol, size: int) -> bool:
    return works({**hints, symbol: size})


def _other(sizes: Sizes, symbol: Symbol, step: int) -> int:
    low, high = sizes.ranges[symbol]
    wanted = symbol.hint + step
    return wanted if high is None or wanted <= high else max(low, symbol.hint - step)


def _restriction_of(sizes: Sizes, symbol: Symbol, hints: dict[Symbol, int], works: Works) -> Restriction:
    """Return how a size is restricted by itself: to one number, or to a range."""
    low, high = sizes.ranges[symbol]
    ok = functools.partial(_accepts_size, works, hints, symbol)
    top = _furthest_size(symbol.hint, min(symbol.hint + _MAX_SIZE, high or symbol.hint + _MAX_SIZE), 1, ok)
    return Restriction(symbol, None, _furthest_size(symbol.hint, max(low, 2), -1, ok), top)


def _describe_restriction(sizes: Sizes, restriction: Restriction) -> tuple[str, str]:
    """Return the text about a restriction, and the suggested fix."""
    symbol, equal, bottom, top = restriction
    name, source = sizes.spoken(symbol), sizes.sources[symbol]
    if equal is not None:
        other = sizes.spoken(equal)
        return (
            f"The values of {name} = {source} and {other} = {sizes.sources[equal]} must always be equal.",
            f"{name} = {other}",
        )
    if top == bottom:
        return (
            f"You marked {name} as dynamic but your code specialized it to be a constant ({symbol.hint}). If you're using mark_dynamic, either remove it or use maybe_mark_dynamic. If you're using Dim.DYNAMIC, replace it with either Dim.STATIC or Dim.AUTO.",
            f"{name} = {symbol.hint}",
        )
    parts = [f"{bottom} <= {source}"]
    bounds = [] if bottom <= max(sizes.ranges[symbol][0], 2) else [f"min={bottom}"]
    if top < symbol.hint + _MAX_SIZE:
        parts.append(f"{source} <= {top}")
        bounds.append(f"max={top}")
    text = (
        f"Not all values of {name} = {source} in the specified range satisfy the generated guard {' and '.join(parts)}"
    )
    return text, f"{name} = Dim('{name}', {', '.join(bounds)})"


def _furthest_size(start: int, end: int, step: int, ok: Callable[[int], bool]) -> int:
    """Return the furthest size in a direction up to which all tried sizes work."""
    good, bad = start, None
    jump = 1
    while good != end and bad is None:  # further and further
        tried = good + step * jump
        tried = min(tried, end) if step > 0 else max(tried, end)
        good, bad = (tried, None) if ok(tried) else (good, tried)
        jump *= 2
    while bad is not None and abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if ok(middle) else (good, middle)
    return good
