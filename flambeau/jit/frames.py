"""Variables of the function that is being compiled, block by block, and conditions, which refine their types."""

from __future__ import annotations

from dataclasses import dataclass, field

from .ir import Block, Value
from .types import Type
from .values import Sugared


class Frame:
    """The variables of one block."""

    def __init__(self, block: Block, parent: Frame | None):
        self.block, self.parent = block, parent
        self.types: dict[str, Type] = {}
        self.sugared: dict[str, Sugared] = {}
        self.broken: dict[str, str] = {}  # variables that cannot be read, and why

    def defined(self) -> set[str]:
        return set(self.types) | set(self.sugared)

    def holder(self, name: str) -> Frame | None:
        frame: Frame | None = self
        while frame is not None:
            if name in frame.types or name in frame.sugared:
                return frame
            frame = frame.parent
        return None


class Definition:
    """Facts about the function being compiled."""

    def __init__(self, declared: Type | None):
        self.declared, self.merged = declared, None  # type: Type | None, Type | None
        self.loops: list[str] = []  # "loop" or "unrolled"


def meaningful(name: str) -> bool:
    """Return whether the user chose a name: `_`, `_1`, numbers and names made by the emitter (`$...`) do not count."""
    if not name or name.startswith("$"):
        return False
    return not (name[0] == "_" and (len(name) == 1 or name[1:].isdigit())) and not name.isdigit()


@dataclass
class Refinements:
    """Types of variables that follow if a condition is true, and if it is false."""

    true: dict[str, Type] = field(default_factory=dict)
    false: dict[str, Type] = field(default_factory=dict)

    def when(self, truth: bool) -> dict[str, Type]:
        return self.true if truth else self.false

    def inverted(self) -> Refinements:
        return Refinements(self.false, self.true)

    def both(self, other: Refinements) -> Refinements:
        """Return the refinements of `a and b`: those of both if it is true, those they share if it is false."""
        return Refinements({**self.true, **other.true}, _common_entries(self.false, other.false))

    def either(self, other: Refinements) -> Refinements:
        return Refinements(_common_entries(self.true, other.true), {**self.false, **other.false})


def _common_entries(a: dict[str, Type], b: dict[str, Type]) -> dict[str, Type]:
    return {name: kind for name, kind in a.items() if b.get(name) == kind}


@dataclass
class Condition:
    """Value of a condition, the types it refines, and its truth if that is known at compile time."""

    value: Value
    refinements: Refinements = field(default_factory=Refinements)
    static: bool | None = None
