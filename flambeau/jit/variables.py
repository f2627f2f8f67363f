"""The variables at one point of a program, in nested scopes: an inner scope sees those around it, and stores only its changes."""

from __future__ import annotations

from .ir import Value


class Variables:
    """Values by name. Changes in an `inner` scope are not visible outside; `changed` holds the names that were set or removed in it."""

    __slots__ = ("around", "changed")

    def __init__(self, around: Variables | None = None):
        self.around = around
        self.changed: dict[str, Value | None] = {}  # None: removed here

    def inner(self) -> Variables:
        return Variables(self)

    def get(self, name: str) -> Value | None:
        scope: Variables | None = self
        while scope is not None:
            if name in scope.changed:
                return scope.changed[name]
            scope = scope.around
        return None

    def __getitem__(self, name: str) -> Value:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __setitem__(self, name: str, value: Value) -> None:
        self.changed[name] = value

    def remove(self, name: str) -> None:
        """Remove a variable if it exists."""
        self.changed[name] = None
