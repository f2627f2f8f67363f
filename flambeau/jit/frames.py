"""Variables of the function that is being compiled, block by block."""

from __future__ import annotations

from .ir import Block
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
    """Return whether a name is meaningful: `_`, `_1` and the emitter's own are not."""
    if not name or name.startswith("$"):
        return False
    return not (name[0] == "_" and (len(name) == 1 or name[1:].isdigit())) and not name.isdigit()
