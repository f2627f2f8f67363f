"""The recorder: a mode at the door that writes down every call that touches memory, in order.

Composites are recorded through their bodies; what they are made of (forward, backward, updates of optimizers, random numbers, fills and
copies) passes the same door and becomes a call. Nothing recorded keeps a tensor alive: what operators do may depend on who holds what."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ..core import modes, watching
from ..core.device import cpu
from ..core.held import HeldTensor
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor
from ..core.user_frames import user_frame
from .memory import Memory, Ref, mapped
from .program import NO_MEMORY, Call, Program, Value


class NotRecordable(Exception):
    """Raised when a function cannot be recorded as a program; the message gives the reason."""


class Running:
    """The call being recorded: the buffers that it makes, and why its steps alone would not do the same again."""

    def __init__(self) -> None:
        self.makes: list[int] = []
        self.problem = ""


class Writer(modes.Mode):
    """Base of all recorders: the memory that is known, tensors as values over it, and why a call cannot be recorded."""

    only_host = False  # whether it knows only memory of the host
    running: Any = None  # the call that runs; None between calls
    passing = ""  # what this call does and later ones do not
    place = ""  # the user's line that the first problem is about

    def __init__(self) -> None:
        self.memory = Memory()
        self.problems: list[str] = []  # why what was written down does not say all that happened

    @contextlib.contextmanager
    def recording(self) -> Iterator[Any]:
        with watching.watch(self), self:
            yield self

    def refuse(self, why: str) -> None:
        """Note why this cannot be written down."""
        if not self.problems:
            self.place = user_frame()
        self.problems.append(why)

    # -- tensors ----------------------------------------------------------------------------------------------------
    def plain(self, t: Tensor) -> bool:
        """Return whether a tensor is dense and has storage of its own on a device that is recorded."""
        in_memory = not t.is_sparse and not isinstance(t, HeldTensor) and hasattr(t, "_storage")
        return in_memory and (t.device is cpu or not self.only_host)

    def find(self, address: int) -> Ref | None:
        """Return the place of an address; None for memory that is not known."""
        return self.memory.find(address)

    def value(self, t: Tensor) -> Value | None:
        """Return a tensor as a value; None where its memory is not known."""
        return Value.of(t, self.find) if self.plain(t) else None

    def held(self, t: Tensor) -> Any:
        """Return a tensor as a value; refuse the recording where its memory is not known."""
        found = self.value(t)
        if found is None:
            origin = "of unknown origin" if self.plain(t) else f"on {t.device} with layout {t.layout}"
            self.refuse(f"a tensor {origin}")
        return found

    def structure(self, value: Any, change: Callable[[Tensor], Any] | None = None) -> Any:
        """Replace all tensors of a structure by values."""
        if isinstance(value, tuple) and type(value) is not tuple:
            value = tuple(value)
        return mapped(value, Tensor, change or self.held)

    # -- what is told about memory ----------------------------------------------------------------------------------
    def told(self, between: str, within: str) -> None:
        """Note what no call says: why it is a problem between calls, and why the call that does it must be made as a whole."""
        if self.running is None:
            self.refuse(between)
        else:
            self.running.problem = self.running.problem or within

    def made(self, new: UntypedStorage) -> None:
        if not new.ptr or (self.only_host and new.device is not cpu):
            return
        buffer = self.memory.add(new.ptr, max(new.capacity, new.size_bytes), "new")
        if self.running is not None:
            self.running.makes.append(buffer.index)

    def looked(self) -> None:
        self.told("the program looks at the values of a tensor", "it works on the host")

    def sent(self, what: str) -> None:
        self.told(f"{what} exchanges messages, but is no operator", "it exchanges messages with other processes")

    def once(self, what: str) -> None:
        self.passing = self.passing or what


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


class Recorder(Writer):
    """Writes down what happens between entering and leaving `recording()`, in this thread. With `whole`, a function of a record,
    composites for which it is true are written down as one call."""

    def __init__(self, whole: Callable[[Any], bool] | None = None):
        super().__init__()
        self.program = Program(self.memory.buffers)
        self.whole = whole or (lambda op: False)
        self._known: dict[int, Tensor] = {}  # tensors that existed before, by id

    def begin(self) -> Program:
        """Record further calls into another program over the same buffers."""
        self.program = Program(self.memory.buffers, states=self.program.states)
        return self.program

    def know(self, t: Tensor, source: Any = "state") -> Value:
        """A tensor that existed before: an argument, or one that the function finds; a value that is just this tensor stands for it."""
        held = t._storage
        if held.ptr and self.memory.find(held.ptr) is None:
            holder = held if source == "state" else None  # arguments come with each run
            self.memory.add(held.ptr, max(held.size_bytes, held.capacity), source, holder)
        if source == "state":
            self._known[id(t)] = t
        return self.held(t)

    def held(self, t: Tensor) -> Any:
        found = super().held(t)
        if id(t) in self._known and found is not None and found.buffer != NO_MEMORY:
            self.program.states[found] = t
        return found

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
            return self.call(op, function, lambda *a, **k: self.through(run, a, k), args, kwargs)
        if is_leaf(op) or self.whole(op):
            return self.call(op, function, run, args, kwargs)
        return self.through(run, args, kwargs)

    def call(self, op: Any, function: Callable, run: Callable, args: tuple, kwargs: dict) -> Any:
        """Run an operator and write it down; returns what it returns."""
        tensors: list[Tensor] = []
        mapped((args, kwargs), Tensor, tensors.append)
        given = self.structure((args, kwargs))
        versions = [(t._storage, t._storage.version) for t in tensors if hasattr(t, "_storage")]
        outer, self.running = self.running, Running()
        try:
            result = run(*args, **kwargs)
        finally:
            running, self.running = self.running, outer
        if op.reads_values:
            self.refuse(f"{op.key or op.name} depends on values")
        changed = {self.memory.find(s.ptr) for s, before in versions if s.ptr and s.version != before}
        changes = {place.buffer for place in changed if place is not None}
        changes |= {v.buffer for v in _declared(op, *given)} - {NO_MEMORY}
        found = self.structure(result)
        made, line, stays = running.makes, user_frame(), bool(op.sends)
        self.program.calls.append(
            Call(op, function, given[0], given[1], found, made, frozenset(changes), line, stays=stays)
        )
        return result

    # -- what is told about memory ----------------------------------------------------------------------------------
    def converted(self, address: int, nbytes: int) -> None:
        self.looked()

    def tested(self, address: int, nbytes: int, error: Exception | None) -> None:
        """A call that tests for errors does so again when it is run again."""

    def filled(self, address: int, value: int, nbytes: int) -> None:
        self.told("bytes are set between operators", "")

    def loaded(self, address: int, nbytes: int) -> None:
        self.filled(address, 0, nbytes)

    def constant(self, found: Tensor) -> None:
        if found._storage.ptr:
            self.know(found)


def record(function: Callable, *args: Any, states: Any = (), whole: Callable[[Any], bool] | None = None) -> Program:
    """Run a function on these arguments and return its operator calls as a program: `record(model, x, states=[*model.parameters()])`.
    `states` are the tensors it finds elsewhere (parameters, buffers, optimizer state); `whole(op)` tells which composites stay one call."""
    recorder = Recorder(whole)
    tensors: list[Tensor] = []
    mapped(args, Tensor, tensors.append)
    inputs = [recorder.know(t, ("argument", i)) for i, t in enumerate(tensors)]
    for t in states:
        recorder.know(t)
    with recorder.recording():
        result = function(*args)
        program = recorder.program
        program.inputs, program.outputs = inputs, recorder.structure(result)
    if recorder.problems:
        raise NotRecordable(recorder.problems[0])
    return program


__all__ = ["NotRecordable", "Recorder", "Running", "Writer", "is_leaf", "record"]
