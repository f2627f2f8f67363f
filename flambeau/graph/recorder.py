"""The recorder: a mode at the door that writes down every call that touches memory, in order.

Composites are recorded through their bodies; what they are made of (forward, backward, updates of optimizers, random numbers, fills and
copies) passes the same door and becomes a call. Nothing recorded keeps a tensor alive: what operators do may depend on who holds what."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ..core import modes, watching
from ..core.graph import user_frame
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor
from .memory import Memory, mapped
from .program import NO_MEMORY, Call, Program, Value


class NotWritable(Exception):
    """Raised when a function cannot be recorded as a program; the message gives the reason."""


class Writer:
    """Turns calls into `Call`s over the buffers of a memory, which is told of every storage that is made."""

    def __init__(self, memory: Memory):
        self.memory = memory
        self.program = Program(memory.buffers)
        self.problem = ""  # the first reason why the program does not say all that happened
        self._makes: list[int] | None = None  # while a call runs
        self._known: dict[int, Tensor] = {}  # tensors that existed before, by id

    def begin(self) -> Program:
        """From now on calls belong to another program, over the same buffers."""
        self.program = Program(self.memory.buffers, states=self.program.states)
        return self.program

    def know(self, t: Tensor) -> None:
        """A tensor that existed before: a value that is just this tensor stands for it."""
        self._known[id(t)] = t

    def made(self, buffer: int) -> None:
        """A buffer was made, by the call that runs if there is one."""
        if self._makes is not None:
            self._makes.append(buffer)

    def value(self, t: Tensor) -> Any:
        """The value that a tensor is now."""
        if t.is_sparse or not hasattr(t, "_storage"):
            return self._refuse(f"a tensor with layout {t.layout}")
        found = Value.of(t, self.memory.find)
        if found is None:
            return self._refuse("a tensor of unknown origin")
        if id(t) in self._known and found.buffer != NO_MEMORY:
            self.program.states[found] = t
        return found

    def structure(self, value: Any) -> Any:
        """Values in the place of all tensors."""
        if isinstance(value, tuple) and type(value) is not tuple:
            value = tuple(value)
        return mapped(value, Tensor, self.value)

    def call(self, op: Any, function: Callable, run: Callable, args: tuple, kwargs: dict) -> Any:
        """Run an operator and write it down; returns what it returns."""
        tensors: list[Tensor] = []
        mapped((args, kwargs), Tensor, tensors.append)
        given = self.structure((args, kwargs))
        versions = [(t._storage, t._storage.version) for t in tensors if hasattr(t, "_storage")]
        outer, self._makes = self._makes, []
        try:
            result = run(*args, **kwargs)
        finally:
            makes, self._makes = self._makes, outer
        if op.reads_values:
            self._refuse(f"{op.key or op.name} depends on values")
        changed = {self.memory.find(s.ptr) for s, before in versions if s.ptr and s.version != before}
        changes = {place.buffer for place in changed if place is not None}
        changes |= {v.buffer for v in _declared(op, *given)} - {NO_MEMORY}
        found = self.structure(result)
        call = Call(
            op, function, given[0], given[1], found, makes, frozenset(changes), user_frame(), stays=bool(op.sends)
        )
        self.program.calls.append(call)
        return result

    def _refuse(self, why: str) -> None:
        self.problem = self.problem or why


def _declared(op: Any, args: tuple, kwargs: dict) -> list[Value]:
    """The values that an operator says it changes."""
    found: list[Value] = []
    if kwargs.get("out") is not None:
        mapped(kwargs["out"], Value, found.append)
    if op.writes:
        mapped(written_arguments(op, args, kwargs), Value, found.append)
    return found


def written_arguments(op: Any, args: tuple, kwargs: dict) -> list[Any]:
    """The arguments that an operator says it changes; all of them, where they cannot be told apart."""
    try:
        bound = op.bind(args, kwargs)
        return [bound[name] for name in op.writes]
    except (TypeError, KeyError):
        return [args, kwargs]


def is_leaf(op: Any) -> bool:
    """Return whether a call of this operator is recorded as one call, not as the calls in its body."""
    return not op.has_parts or (op.kind == "composite" and bool(op.writes))


class Recorder(modes.Mode):
    """Writes down what happens between entering and leaving `recording()`, in this thread. With `whole`, a function of a record,
    composites for which it is true are written down as one call."""

    def __init__(self, whole: Callable[[Any], bool] | None = None):
        self.memory = Memory()
        self.writer = Writer(self.memory)
        self.whole = whole or (lambda op: False)

    def know(self, t: Tensor, source: Any = "state") -> Value:
        """A tensor that existed before: an argument, or one that the function finds."""
        held = t._storage
        if held.ptr and self.memory.find(held.ptr) is None:
            holder = held if source == "state" else None  # arguments come with each run
            self.memory.add(held.ptr, max(held.size_bytes, held.capacity), source, holder)
        if source == "state":
            self.writer.know(t)
        return self.writer.value(t)

    @contextlib.contextmanager
    def recording(self) -> Iterator[Recorder]:
        with watching.watch(self), self:
            yield self

    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        bottom = modes.own.stack[0] if modes.staying() else None
        if bottom is None:
            return self._handle(op, function, function, args, kwargs)
        with self:
            run, args, kwargs, alone = bottom.prepared(op, function, args, kwargs)
        with bottom.aside() if alone else contextlib.nullcontext():
            return self._handle(op, function if run is modes.unwatched(function) else run, run, args, kwargs)

    def _handle(self, op: Any, function: Callable, run: Callable, args: tuple, kwargs: dict) -> Any:
        if op.kind == "pointwise" and op.writes:  # what it copies for its derivative before are calls of their own
            return self.writer.call(op, function, lambda *a, **k: self._through(run, a, k), args, kwargs)
        if is_leaf(op) or self.whole(op):
            return self.writer.call(op, function, run, args, kwargs)
        return self._through(run, args, kwargs)

    def _through(self, run: Callable, args: tuple, kwargs: dict) -> Any:
        """Run a function whose parts are seen."""
        with self:
            return modes.unwatched(run)(*args, **kwargs)

    # -- what is told about memory ----------------------------------------------------------------------------------
    def made(self, new: UntypedStorage) -> None:
        if new.ptr:
            size = max(new.capacity, new.size_bytes)
            self.writer.made(self.memory.add(new.ptr, size, "new").index)

    def looked(self) -> None:
        if self.writer._makes is None:
            self.writer._refuse("the program looks at the values of a tensor")

    def converted(self, address: int, nbytes: int) -> None:
        self.looked()

    def sent(self, what: str) -> None:
        if self.writer._makes is None:
            self.writer._refuse(f"{what} exchanges messages, but is no operator")

    def once(self, what: str) -> None:
        """A program is what one call did."""

    def tested(self, address: int, nbytes: int, error: Exception | None) -> None:
        """A call that tests for errors does so again when it is run again."""

    def filled(self, address: int, value: int, nbytes: int) -> None:
        if self.writer._makes is None:
            self.writer._refuse("bytes are set between operators")

    def loaded(self, address: int, nbytes: int) -> None:
        self.filled(address, 0, nbytes)

    def constant(self, found: Tensor) -> None:
        if found._storage.ptr:
            self.know(found)


def record(function: Callable, *args: Any, states: Any = (), whole: Callable[[Any], bool] | None = None) -> Program:
    """Run a function on these arguments and return what it did as a program. `states` are the tensors that it finds elsewhere
    (parameters, buffers, what an optimizer keeps)."""
    recorder = Recorder(whole)
    tensors: list[Tensor] = []
    mapped(args, Tensor, tensors.append)
    inputs = [recorder.know(t, ("argument", i)) for i, t in enumerate(tensors)]
    for t in states:
        recorder.know(t)
    with recorder.recording():
        result = function(*args)
        program = recorder.writer.program
        program.inputs, program.outputs = inputs, recorder.writer.structure(result)
    if recorder.writer.problem:
        raise NotWritable(recorder.writer.problem)
    return program


__all__ = ["NotWritable", "Recorder", "Writer", "is_leaf", "record"]
