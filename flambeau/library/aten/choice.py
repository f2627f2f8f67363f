"""Choice of an operator's overload for a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.tensor import Tensor
from ...ops import namespace
from ...ops.machinery.matching import NoMatch, bind, first_match, told
from ...ops.machinery.schema import Schema
from ...ops.machinery.schema_table import overloads_of, schema_of


def choose(name: str, args: tuple, kwargs: dict[str, Any], loose: bool = False) -> tuple[Schema, list[Any]] | None:
    """Return the overload that a call of an operator means, and the values of its arguments, or None; `loose` as in `bind`."""
    function = namespace("torch").get(name.rstrip("_")) or getattr(Tensor, name, None)
    op = getattr(function, "op", None)
    numbers = op is not None and op.quirks.numbers_as_tensors
    candidates = (schema for schema in _overloads(name) if not schema.is_out)
    return first_match(candidates, lambda schema: (schema, bind(schema, args, kwargs, numbers, loose)))


def refused(name: str, args: tuple, kwargs: dict[str, Any]) -> str:
    """Return the message about why no overload of an operator fits a call."""
    problems: list[tuple[Schema, NoMatch]] = []
    first_match(_overloads(name), lambda schema: bind(schema, args, kwargs), problems)
    reasons = [told(*problem) for problem in problems]
    lines = "\n\n".join(reasons)
    if len(reasons) == 1:
        return lines
    return f"Overloaded torch operator invoked from Python failed to match any schema:\n{lines}\n\n"


def _overloads(name: str) -> Iterator[Schema]:
    return (schema_of(name, overload) for overload in overloads_of(name))
