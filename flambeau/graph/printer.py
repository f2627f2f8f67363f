"""Programs as text, one line for each call: `%7: f32[64, 256] = add(%5, %6, alpha=1)  # model.py:12`."""

from __future__ import annotations

import os
from typing import Any

from .memory import mapped
from .program import Call, Program, Value


class _Names:
    """Numbers of values, in the order in which they are first mentioned."""

    def __init__(self) -> None:
        self.known: dict[Value, int] = {}

    def name(self, v: Value) -> str:
        return f"%{self.known.setdefault(v, len(self.known))}"

    def typed(self, v: Value) -> str:
        return f"{self.name(v)}: {type_of(v)}"

    def shown(self, value: Any) -> str:
        if isinstance(value, Value):
            return self.name(value)
        if type(value) in (list, tuple):
            inside = ", ".join(map(self.shown, value))
            return f"[{inside}]" if type(value) is list else f"({inside}{',' if len(value) == 1 else ''})"
        return _short(value)


def text(program: Program) -> str:
    """Return `program` as text, one line for each call.

    >>> from flambeau.graph.recorder import record
    >>> print(text(record(flambeau.exp, flambeau.ones(2))).splitlines()[0])
    program(%0: f32[2]):
    """
    names = _Names()
    given = ", ".join(names.typed(v) for v in program.inputs)
    lines = [f"program({given}):"]
    lines += [f"    {line(call, names)}" for call in program.calls]
    return "\n".join([*lines, f"    return {names.shown(program.outputs)}"])


def line(call: Call, names: _Names | None = None) -> str:
    """Return `call` as one line of text; after an exclamation mark follow the existing values that it changes. `names` holds the names
    of values used so far.

    >>> from flambeau.graph.recorder import record
    >>> line(record(flambeau.exp, flambeau.ones(2)).calls[0]).partition("  #")[0]
    '%1: f32[2] = exp(%0)'
    """
    names = names or _Names()
    arguments = [names.shown(a) for a in call.args] + [f"{k}={names.shown(v)}" for k, v in call.kwargs.items()]
    known = set(call.arguments())
    made: list[str] = []
    mapped(call.results, Value, lambda v: made.append(names.name(v) if v in known else names.typed(v)))
    changed = sorted({names.name(v) for v in call.arguments() if v.buffer in call.changes})
    effects = f" !{', '.join(changed)}" if changed else ""
    where = f"  # {os.path.basename(call.line)}" if call.line else ""
    return f"{', '.join(made)}{' = ' if made else ''}{call.name}({', '.join(arguments)}){effects}{where}"


def type_of(v: Value) -> str:
    """Return dtype and shape as `f32[64, 256]`, followed by the strides if these are not contiguous."""
    dense, expected = [], 1
    for n in reversed(v.shape):
        dense.append(expected)
        expected *= max(n, 1)
    laid_out = "" if tuple(reversed(dense)) == tuple(v.strides) else f":{list(v.strides)}"
    return f"{v.dtype.short}{list(v.shape)}{laid_out}"


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"<{type(value).__name__}>"
