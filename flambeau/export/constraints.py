"""Messages about dynamic sizes that a program cannot accept: found by trying, in PyTorch's wording."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from itertools import combinations

from .dynamic_shapes import Sizes
from .symbols import Symbol

_MAX_SIZE = 64  # sizes above the example's that are tried to find a bound
Works = Callable[[dict[Symbol, int]], bool]


def violations(sizes: Sizes, works: Works) -> str | None:
    """Return a message about the sizes that are not free; `works` tests whether the program agrees at given sizes. None if each size and
    each pair is free."""
    hints = {s: s.hint for s in sizes.symbols}
    stuck = [s for s in sizes.symbols if not all(works({**hints, s: _other(sizes, s, n)}) for n in (1, _MAX_SIZE // 2))]
    found: dict[Symbol, tuple[str, str]] = {}
    for first, second in combinations(stuck, 2):
        both = _other(sizes, first, 1)
        if first.hint == second.hint and second not in found and works({**hints, first: both, second: both}):
            a, b = sizes.spoken(first), sizes.spoken(second)
            text = f"The values of {b} = {sizes.sources[second]} and {a} = {sizes.sources[first]} must always be equal."
            found[second] = (text, f"{b} = {a}")
    equal = {s for pair in combinations(stuck, 2) if pair[1] in found for s in pair}
    for symbol in stuck:
        if symbol not in equal:
            found[symbol] = _describe_restriction(sizes, symbol, hints, works)
    if not found:
        return None
    names = ", ".join(sizes.spoken(s) for s in found)
    reasons = "\n".join(f"  - {text}" for text, _ in found.values())
    fixes = "\n".join(f"  {fix}" for _, fix in found.values())
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


def _describe_restriction(sizes: Sizes, symbol: Symbol, hints: dict[Symbol, int], works: Works) -> tuple[str, str]:
    """Return the message about a size that is restricted by itself: to one number, or to a range."""
    name, source = sizes.spoken(symbol), sizes.sources[symbol]
    low, high = sizes.ranges[symbol]

    ok = functools.partial(_accepts_size, works, hints, symbol)
    top = _furthest_size(symbol.hint, min(symbol.hint + _MAX_SIZE, high or symbol.hint + _MAX_SIZE), 1, ok)
    bottom = _furthest_size(symbol.hint, max(low, 2), -1, ok)
    if top == bottom:
        return (
            f"You marked {name} as dynamic but your code specialized it to be a constant ({symbol.hint}). If you're using mark_dynamic, either remove it or use maybe_mark_dynamic. If you're using Dim.DYNAMIC, replace it with either Dim.STATIC or Dim.AUTO.",
            f"{name} = {symbol.hint}",
        )
    parts = [f"{bottom} <= {source}"]
    bounds = [] if bottom <= max(low, 2) else [f"min={bottom}"]
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
