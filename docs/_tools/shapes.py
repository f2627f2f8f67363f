"""The shapes that a function or layer takes and gives: as shapes.txt says, as the operator's record says, and as its example shows."""

from __future__ import annotations

import fnmatch
import functools
from pathlib import Path
from typing import Any

import records

from flambeau.distributions import Distribution, constraints

_TOOLS = Path(__file__).parent


def shape(whole: str, value: Any) -> str:
    """What is known about shapes; empty where nothing is, or where no tensors take part."""
    op = getattr(value, "op", None)
    names = [whole, *(function_names(op) if op is not None else ())]
    rules = (
        _written(names),
        _of_a_writer(whole, op),
        records.shapes(op) if op is not None else "",
        _of_a_distribution(value),
    )
    return " ".join(filter(None, (next(filter(None, rules), "").removeprefix("-"), seen(names))))


def is_told(whole: str, value: Any) -> bool:
    """Whether shapes are told, or there is nothing to tell."""
    return bool(shape(whole, value) or _written([whole]))


def function_names(op: Any) -> list[str]:
    """The public names of an operator's function."""
    return [f"{'torch' if space == 'torch' else 'torch.' + space}.{op.name}" for space in op.namespaces]


@functools.cache
def _lines() -> list[tuple[list[str], str]]:
    lines = (_TOOLS / "shapes.txt").read_text().splitlines()
    parts = (line.partition("|") for line in lines if line and not line.startswith("#"))
    return [(names.split(), text.strip()) for names, _, text in parts]


def _written(names: list[str]) -> str:
    """What shapes.txt says about one of the names."""
    for name in names:
        for patterns, text in _lines():
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                return text
    return ""


def _of_a_writer(whole: str, op: Any) -> str:
    """A form that works in place returns the tensor it has changed."""
    if op is None or not whole.endswith("_"):
        return ""
    changed = op.writes[0] if op.writes else "input"
    return f"The result is `{changed}` itself."


def _of_a_distribution(value: Any) -> str:
    """What the constraints of a distribution's parameters and of its support say about dimensions."""
    if not (isinstance(value, type) and issubclass(value, Distribution) and value is not Distribution):
        return ""
    own = value.arg_constraints
    limits = own if isinstance(own, dict) else {}
    support = value.support
    told = [f"`{name} {_dimensions(limit.event_dim)}`" for name, limit in limits.items()]
    if not told or not isinstance(support, constraints.Constraint):
        return ""
    given = f"Parameters {', '.join(told)}, whose leading dimensions broadcast to `batch_shape`. "
    return f"{given}`sample(s)` has the shape `{_dimensions(support.event_dim).replace('...', '*s, *batch_shape')}`."


def _dimensions(count: int) -> str:
    return f"({', '.join(['...', *'nm'[:count]])})"


def seen(names: list[str]) -> str:
    """What the example of one of the names shows of shapes."""
    text = next((_read()[n] for n in names if n in _read()), "")
    return f"In the example {text}." if text else ""


@functools.cache
def _read() -> dict[str, str]:
    parts = (
        line.partition(" | ")
        for line in (_TOOLS / "shapes-seen.txt").read_text().splitlines()
        if not line.startswith("#")
    )
    return {name: text for name, _, text in parts}
