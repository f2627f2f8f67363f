"""The first run of a program: on memory full of garbage, one step after the other, and undone afterwards.

It needs little more memory than the function itself: memory that a step changes is copied right before that step, when the arena has already
returned to the system what no later step uses."""

from __future__ import annotations

import ctypes
import importlib
import math
import os
from collections.abc import Callable
from typing import Any

from ...core.generator import default_generator
from ...core.raw_memory import first_address
from ...core.storage import UntypedStorage
from ...core.tensor import Tensor
from ..record.comparison import Print, kind_of, view
from ..record.operator_call import may_fail
from ..record.steps import Call, Launch, Test, operands
from .program import Program

_GARBAGE = 0xCB
_WORTHWHILE = 1 << 20  # bytes
PIECE = 1 << 14  # elements of a loop that are done together


class SetAside:
    """Bytes of some storages, saved in a file while they are overwritten temporarily, so that no memory is needed for them."""

    def __init__(self, storages: list[UntypedStorage]):
        self.places = [view(s.ptr, s.size_bytes) for s in storages if s.ptr]
        self.file = _nameless_file() if self.places else None
        for place in self.places:
            written = 0
            while self.file is not None and written < len(place):
                written += self.file.write(place[written:])

    def put_back(self) -> None:
        """Restore the saved bytes."""
        if self.file is None:
            return
        self.file.seek(0)
        for place in self.places:
            read = 0
            while read < len(place):
                read += self.file.readinto(place[read:])

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def _nameless_file() -> Any:
    """Open a file that vanishes when it is closed; `tempfile` is imported only on systems without nameless files."""
    try:
        folder = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - nobody else can open it
        return os.fdopen(os.open(folder, os.O_RDWR | os.O_TMPFILE, 0o600), "r+b", buffering=0)
    except (AttributeError, OSError):
        return importlib.import_module("tempfile").TemporaryFile(buffering=0)


def to_the_end(action: Callable[[], Any]) -> Any:
    """Complete an action that may be repeated, whatever interrupts it, and raise the interruption afterwards."""
    interruption: BaseException | None = None
    while True:
        try:
            found = action()
            break
        except KeyboardInterrupt as problem:
            interruption = problem
    if interruption is not None:
        raise interruption
    return found


class Rehearsal:
    """First run of a program: the work before and after each step, and the saved state from before the run. `shown` are addresses of memory
    that results view, which must stay until these are compared; None if that is not known."""

    def __init__(
        self, program: Program, tensors: list[Tensor], made: list[UntypedStorage], shown: set[int] | None = None
    ):
        self.program, self.shown = program, shown
        self.answers: Any = None  # of other processes, where the program asks some
        self.times: list[tuple[str, float]] = []
        self.saved: list[tuple[int, bytes, Any]] = []  # where, what was there, and the kind of numbers it is
        self._since = 0  # bytes saved since the arena was last cleared up
        self._filled: dict[int, list[tuple[int, int]]] = {}  # by step: places to fill with garbage
        self._changed: dict[int, list[tuple[int, int, Any]]] = {}  # places to be saved
        self._brief: dict[int, list[tuple[int, int, Any]]] = {}  # those of them that no later step uses
        self._copies: list[tuple[int, bytes, Any]] = []  # of these, while the step runs
        self._found: list[tuple[int, Print]] = []  # what they had become
        self._first: dict[int, int] = {}  # of each buffer, the steps that use it first and last
        self._last: dict[int, int] = {}
        self._number = {id(step): i for i, step in enumerate(program.graph.steps)}
        self._generators = [(g, g.state_bytes()) for g in dict.fromkeys([default_generator, *program.graph.draws])]
        self._plan(tensors, made)

    def _plan(self, tensors: list[Tensor], made: list[UntypedStorage]) -> None:
        graph, program = self.program.graph, self.program
        places = {b: (made[i].ptr, made[i].size_bytes) for i, b in enumerate(program.results) if made[i].ptr}
        for b, offset in program.offsets.items():
            if b in program.in_place:  # there is what the step reads
                continue
            places[b] = program.arena.ptr + offset, graph.buffers[b].size
        written: set[int] = set()
        for i, step in enumerate(graph.steps):
            for ref in step.refs():
                self._last[ref.buffer] = i
                self._first.setdefault(ref.buffer, i)
                if ref.buffer in places:
                    self._filled.setdefault(i, []).append(places.pop(ref.buffer))
            for ref in () if isinstance(step, Test) else changed_by(step):
                if ref.buffer >= 0 and ref.buffer not in written:
                    written.add(ref.buffer)
                    self._changed.setdefault(i, []).extend(outside(program, ref.buffer, tensors))
        self._find_brief(tensors)
        for address, size in places.values():  # no step uses them
            ctypes.memset(address, _GARBAGE, size)
        for b in {r.buffer for u in graph.updates for refs in u.scalars for r in refs} - written:
            self.saved += [(at, ctypes.string_at(at, size), kind) for at, size, kind in outside(program, b, tensors)]

    def _find_brief(self, tensors: list[Tensor]) -> None:
        """Find the parts of changed memory that nothing else needs: they are restored right after the step."""
        if self.shown is None:
            return
        graph = self.program.graph
        kept = {r.buffer for u in graph.updates for refs in u.scalars for r in refs} | set(self.program.arguments)
        for i, step in enumerate(graph.steps):
            refs = {} if isinstance(step, Test) else {r.buffer: r for r in changed_by(step) if r.buffer not in kept}
            for buffer in refs:
                places = outside(self.program, buffer, tensors) if self._last.get(buffer) == i else []
                for place in places:
                    if place in self._changed.get(i, ()) and place[0] not in self.shown:
                        self._changed[i].remove(place)
                        self._brief.setdefault(i, []).append(place)

    def widths(self, step: Any) -> list[int] | None:
        """Return, for a loop over a formula that can run in pieces, the bytes per element behind each argument after the first, which is
        their count; else None. Then `piece` copies what changes instead of `before`."""
        places = self._brief.get(self._number.get(id(step), -1), [])
        if not places or not isinstance(step, Launch) or type(step.arguments[0]) is not int:
            return None
        known = operands(step)
        count = step.arguments[0]
        if known is None or count <= PIECE:
            return None
        widths, starts = [], set()
        for place, width in (*known[0], *known[1]):
            dense = type(place) is tuple and place[1] == (1,)
            widths.append(width if dense else 0)
            if dense:
                starts.add((self.program.address(place[0]), count * width))
        return widths if all((at, size) in starts for at, size, _ in places) else None

    def piece(self, step: Any, first: int, count: int, whole: int) -> None:
        """Save the memory that `count` of a loop's elements, from `first` on, are about to change."""
        for address, size, kind in self._brief[self._number[id(step)]]:
            width = size // whole
            at = address + first * width
            self._copies.append((at, ctypes.string_at(at, count * width), kind))

    def before(self, step: Any, in_pieces: bool = False, in_room: bool = False) -> None:
        """Fill and save memory for a step that is about to run. `in_pieces`: `piece` saves the rest; `in_room`: return unused arena memory
        first."""
        number = self._number.get(id(step), -1)
        for address, size in self._filled.pop(number, ()):
            ctypes.memset(address, _GARBAGE, size)
        for address, size, kind in self._changed.pop(number, ()):
            self.saved.append((address, ctypes.string_at(address, size), kind))
            self._since += size
        for address, size, kind in () if in_pieces else self._brief.pop(number, ()):
            self._copies.append((address, ctypes.string_at(address, size), kind))
            self._since += size
        if number >= 0 and (self._since > _WORTHWHILE or in_room):
            self._since = 0
            offsets, buffers = self.program.offsets, self.program.graph.buffers
            lives = {b for b, last in self._last.items() if self._first.get(b, number + 1) <= number <= last}
            self.program.rest([(at, at + buffers[b].size) for b, at in offsets.items() if b in lives])

    def after(self, step: Any) -> None:
        """Restore the memory that a step of the first run has changed."""
        self._restore_copies(self._copies)

    def _restore_copies(self, copies: list[tuple[int, bytes, Any]]) -> None:
        while copies:
            address, old, kind = copies[-1]
            self._found.append((address, Print(address, len(old), kind)))
            ctypes.memmove(address, old, len(old))
            copies.pop()

    def undo(self) -> list[tuple[int, Print]]:
        """Restore everything that was changed, and return the changed values. May be called again after an interruption."""
        self._restore_copies(self._copies)
        self._restore_copies(self.saved)
        for generator, mark in self._generators:
            generator.set_state_bytes(mark)
        return self._found


class Undo:
    """Memory and generators that a program changes before the last step that may raise an exception. A call saves them, and restores
    them where one is raised: run eagerly from there, the function leaves behind and handles what it would uncompiled. Where they are
    large and the call `leaves` nothing else behind, only what is changed first is saved: later errors are not undone."""

    def __init__(self, program: Program, leaves: bool):
        self.graph, self.arguments, steps = program.graph, program.arguments, program.graph.steps
        # Errors of steps before this one are undone.
        self.end = max((i + 1 for i, step in enumerate(steps) if may_fail(step)), default=0)
        self.needed, self.complete, self.buffers = not program.sends and self.end > 0, True, list[int]()
        leaves = leaves or any(isinstance(step, Call) and step.results is not None for step in steps)
        left = math.inf if leaves else max(_WORTHWHILE, program.bytes // 16)
        for i, step in enumerate(steps[: self.end]):
            for b in () if isinstance(step, Test) else dict.fromkeys(r.buffer for r in changed_by(step)):
                held = b in self.arguments or (b >= 0 and self.graph.buffers[b].source == "state")
                if b in self.buffers or not held:
                    continue
                left -= self.graph.buffers[b].size
                if left < 0:
                    self.end, self.complete = i, False
                    return
                self.buffers.append(b)

    def restores(self, failed: Any) -> bool:
        """Return whether everything is as it was before the call where this step has failed, or an unknown one."""
        return self.complete or (failed is not None and self.graph.steps.index(failed) < self.end)

    def save(self, tensors: list[Tensor]) -> Callable[[], None]:
        """Copy what is going to be changed, and return the function that restores it."""
        places = [place for b in self.buffers for place in outside(self, b, tensors)]
        copies = [(address, ctypes.string_at(address, size)) for address, size, _ in places]
        marks = [(g, g.state_bytes()) for g in self.graph.draws]

        def restore() -> None:
            for address, old in copies:
                ctypes.memmove(address, old, len(old))
            for generator, mark in marks:
                generator.set_state_bytes(mark)

        return restore


def outside(program: Program | Undo, index: int, tensors: list[Tensor]) -> list[tuple[int, int, Any]]:
    """Return the memory of a buffer that existed before: address, size, and the kind of its numbers."""
    argument = program.arguments.get(index)
    if argument is None:
        buffer = program.graph.buffers[index]
        if buffer.source != "state":
            return []
        size = buffer.size if buffer.storage is None else min(buffer.size, buffer.storage.size_bytes)
        return [(buffer.address, size, None if buffer.dtype is None else kind_of(buffer.dtype))]
    first = tensors[argument[0]]._storage.ptr
    sharing = [t for t in tensors if t._storage.ptr == first and first]
    return [(first_address(t), extent(t), kind_of(t.dtype)) for t in sharing]


def changed_by(step: Any) -> list[Any]:
    """Return the places that a step may write to."""
    return step.writes() if isinstance(step, Launch) else step.refs()


def extent(t: Tensor) -> int:
    """Return the bytes from the first to the last element."""
    if 0 in t.shape:
        return 0
    return (1 + sum((n - 1) * s for n, s in zip(t.shape, t._strides))) * t.dtype.itemsize
