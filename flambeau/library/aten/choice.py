"""Choice of an operator's overload for a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ops.machinery.matching import NoMatch, bind, told
from ...ops.machinery.schema import Schema
from ...ops.machinery.schema_table import overloads_of, schema_of

# Operators whose second tensor may be a plain number; others have an overload for numbers.
_NUMBERS_AS_TENSORS = frozenset(
    ["add", "sub", "mul", "div", "divide", "true_divide", "multiply", "subtract", "floor_divide", "copysign", "copy"]
)


def _candidates(name: str) -> Iterator[Schema]:
    return (schema for schema in (schema_of(name, o) for o in overloads_of(name)) if not schema.is_out)


def choose(name: str, args: tuple, kwargs: dict[str, Any], loose: bool = False) -> tuple[Schema, list[Any]] | None:
    """Return the overload that a call of an operator means, and the values of its arguments, or None; `loose` as in `bind`."""
    numbers = name.rstrip("_") in _NUMBERS_AS_TENSORS
    for schema in _candidates(name):
        try:
            return schema, bind(schema, args, kwargs, numbers, loose)
        except NoMatch:
            continue
    return None


def refused(name: str, args: tuple, kwargs: dict[str, Any]) -> str:
    """Return the message about why no overload of an operator fits a call."""
    reasons = []
    for schema in _candidates(name):
        try:
            bind(schema, args, kwargs)
        except NoMatch as problem:
            reasons.append(told(schema, problem))
    if len(reasons) == 1:
        return reasons[0]
    lines = "\n\n".join(reasons)
    return f"Overloaded torch operator invoked from Python failed to match any schema:\n{lines}\n\n"
