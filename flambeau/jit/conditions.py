"""Conditions: their value, whether it is known at compile time, and how they refine the types of variables."""

from __future__ import annotations

from dataclasses import dataclass, field

from .ir import Value
from .types import Type


@dataclass
class Refinements:
    """The types of variables where a condition holds, and where it does not."""

    true: dict[str, Type] = field(default_factory=dict)
    false: dict[str, Type] = field(default_factory=dict)

    def when(self, truth: bool) -> dict[str, Type]:
        return self.true if truth else self.false

    def inverted(self) -> Refinements:
        return Refinements(self.false, self.true)

    def both(self, other: Refinements) -> Refinements:
        """Return the conclusions from `a and b`: those of both when true, those they share when false."""
        return Refinements({**self.true, **other.true}, _agreed(self.false, other.false))

    def either(self, other: Refinements) -> Refinements:
        return Refinements(_agreed(self.true, other.true), {**self.false, **other.false})


def _agreed(a: dict[str, Type], b: dict[str, Type]) -> dict[str, Type]:
    return {name: kind for name, kind in a.items() if b.get(name) == kind}


@dataclass
class Condition:
    value: Value
    refinements: Refinements = field(default_factory=Refinements)
    static: bool | None = None
