"""Queries and changes of a program during a pass: the maker of a value, its only reader, whether memory stays unchanged between calls.

A pass over calls is a loop over `Matches`: it examines a call, looks up the calls around it, and replaces them. The conditions under which
that changes no result are defined here, once."""

from __future__ import annotations

from collections.abc import Iterator

from .program import Call, Program


class Matches:
    """A program while a pass rewrites it. Positions are those of the calls when the pass began."""

    def __init__(self, program: Program):
        self.program = program
        self.calls: list[Call | None] = list(program.calls)
        self._before: dict[int, list[Call]] = {}  # calls inserted before the one at a position
        self._lasting = program.lasting()
        self._touched: dict[int, list[int]] = {}
        self._written: dict[int, list[int]] = {}
        for i, call in enumerate(program.calls):
            for b in call.touches():
                self._touched.setdefault(b, []).append(i)
            for b in call.writes():
                self._written.setdefault(b, []).append(i)

    def __iter__(self) -> Iterator[tuple[int, Call]]:
        """Yield the calls that still exist, with their positions."""
        for i in range(len(self.calls)):
            call = self.calls[i]
            if call is not None:
                yield i, call

    def maker(self, buffer: int) -> int | None:
        """Return the position of the only call that ever writes a buffer, if it still exists."""
        writers = self._written.get(buffer, [])
        return writers[0] if len(writers) == 1 and self.calls[writers[0]] is not None else None

    def only_pair(self, buffer: int) -> tuple[int, int] | None:
        """Return the positions of the only two calls that ever touch a buffer, if both still exist."""
        users = self._touched.get(buffer, [])
        alone = len(users) == 2 and buffer not in self._lasting and all(self.calls[i] is not None for i in users)
        return (users[0], users[1]) if alone else None

    def users(self, buffer: int) -> list[int] | None:
        """Return the positions of all calls that touch a buffer not read after the program; None if one of them no longer exists."""
        users = self._touched.get(buffer, [])
        return None if buffer in self._lasting or any(self.calls[i] is None for i in users) else list(users)

    def is_alone(self, buffer: int) -> bool:
        """Return whether at most one call touches a buffer, and nothing reads it after the program."""
        return len(self._touched.get(buffer, ())) <= 1 and buffer not in self._lasting

    def is_untouched(self, buffer: int, before: int, gone: list[int]) -> bool:
        """Return whether a buffer is new and no call before position `before` touches it, except those in `gone`."""
        new = self.program.buffers[buffer].source == "new"
        return new and all(self.calls[i] is None or i in gone for i in self._touched[buffer] if i < before)

    def first_touch(self, buffer: int) -> int:
        return self._touched[buffer][0]

    def unchanged(self, buffers: set[int], after: int, before: int) -> bool:
        """Return whether no call between two positions writes to these buffers."""
        return not any(after < i < before for b in buffers for i in self._written.get(b, ()))

    def exchange(self, i: int, now: Call, gone: list[int]) -> None:
        """Replace a call by another, which also does the work of the calls at the positions `gone`."""
        self.calls[i] = now
        for k in gone:
            self.calls[k] = None

    def replace(self, i: int, now: list[Call], gone: list[int]) -> None:
        """Replace a call by several, which also do the work of the calls at the positions `gone`."""
        self._before[i] = now[:-1]
        self.exchange(i, now[-1], gone)

    def finish(self) -> None:
        self.program.calls = [
            call for i, last in enumerate(self.calls) for call in (*self._before.get(i, ()), last) if call is not None
        ]
