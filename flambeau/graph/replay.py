"""Running a program: every call is made again through the door, on tensors over newly chosen memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import modes, watching
from ..core.casts import casts
from ..core.graph import grad_mode
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor
from .memory import mapped
from .program import NO_MEMORY, Call, Program, Value


class Diverged(Exception):
    """Raised when a call does something else than when it was recorded."""


class Replay(watching.Watcher):
    """Run of a program: `at` has the storage of every live buffer; those in `hold` are not released."""

    def __init__(self, program: Program, hold: set[int] | frozenset[int] = frozenset()):
        self.program = program
        self.hold = program.lasting() | hold
        self.at: dict[int, UntypedStorage] = {
            b.index: b.storage for b in program.buffers if b.storage is not None and b.source == "state"
        }
        self._made: list[UntypedStorage] | None = None

    def run(self, inputs: list[Tensor]) -> Any:
        """Run the whole program for these inputs, and return the outputs."""
        for v, t in zip(self.program.inputs, inputs):
            if v.buffer != NO_MEMORY:
                self.at[v.buffer] = t._storage
        self.calls(self.program.calls)
        return mapped(self.program.outputs, Value, self.tensor)

    def calls(self, calls: list[Call]) -> None:
        """Make these calls in order, and free memory after its last use."""
        last = {b: i for i, call in enumerate(calls) for b in call.touches()}
        with watching.watch(self), modes_off():
            for i, call in enumerate(calls):
                self.call(call)
                for b in call.touches():
                    if last[b] == i and b not in self.hold:
                        self.at.pop(b, None)

    def tensor(self, v: Value) -> Tensor:
        """Return the tensor that a value denotes in this run."""
        if v in self.program.states:
            return self.program.states[v]
        if v.buffer == NO_MEMORY:
            return v.over(UntypedStorage(0, v.device))
        held = self.at.get(v.buffer)
        if held is None:  # memory that was made between calls and is not written yet
            held = self.at[v.buffer] = UntypedStorage(self.program.buffers[v.buffer].size, v.device)
        return v.over(held)

    def call(self, call: Call) -> None:
        """Replay one call."""
        if not call.makes and not call.changes and not call.op.draws and not call.stays:
            return  # a view, or a test that has passed
        outs: tuple = (mapped(call.results, Value, self.tensor),) if call.rewritten else ()
        args, kwargs = mapped((call.args, call.kwargs), Value, self.tensor)
        self._made = []
        try:
            through_door(call.op, call.function, (*outs, *args), kwargs)
        finally:
            made, self._made = self._made, None
        if call.rewritten or not call.makes:
            return
        if len(made) != len(call.makes):
            raise Diverged(f"{call.name} made {len(made)} pieces of memory, and {len(call.makes)} when it was recorded")
        self.at.update(zip(call.makes, made))

    def made(self, new: UntypedStorage) -> None:
        if self._made is not None and new.ptr:
            self._made.append(new)


def through_door(op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
    """Call an operator so that modes see it, if there are any."""
    if modes.own.stack:
        return modes.intercept(op, function, args, kwargs)
    return modes.unwatched(function)(*args, **kwargs)


class modes_off:  # noqa: N801 - reads like a keyword
    """Context manager: turn off autograd's recording, and autocast, whose casts are recorded calls."""

    def __enter__(self) -> None:
        self.before = grad_mode.enabled, casts.active
        grad_mode.enabled = casts.active = False

    def __exit__(self, *exc: Any) -> None:
        grad_mode.enabled, casts.active = self.before
