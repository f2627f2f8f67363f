"""The recorder: a mode at the door that writes down every call that touches memory, in order.

Composites are recorded through their bodies; what they are made of (forward, backward, updates of optimizers, random numbers, fills and
copies) passes the same door and becomes a call. Nothing recorded keeps a tensor alive: what operators do may depend on who holds what."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ..core import modes, watching
from ..core.device import cpu
from ..core.held import HeldTensor
from ..core.layout import strided
from ..core.size import make_size
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


class TensorRecorder(Writer):
    """Writes down the calls that it is told of, with a value for each tensor object: several over one place in memory may have
    different histories (`x`, `x.detach()`). It keeps the tensors, so that no memory is used for two; the number of a value is its
    tensor's place in `tensors`."""

    def __init__(self) -> None:
        super().__init__()
        self.program = Program()
        self.tensors: list[Tensor] = []
        self.known: dict[int, tuple[Tensor, Value]] = {}  # by id
        self.latest: dict[int, Tensor] = {}  # the latest known tensor in each piece of memory
        self.places: dict[Value, Tensor] = {}  # and as each value over it

    def value(self, t: Tensor) -> Value:
        """Return a tensor as a value over the memory at its address; without memory, its storage object stands for that."""
        if t.layout is not strided or t.is_nested:
            return Value(NO_MEMORY, 0, t.shape, (), t.dtype, t.device, -1, t.requires_grad)
        shape, strides = make_size([int(n) for n in t.shape]), t.stride()
        if 0 in shape:
            return Value(NO_MEMORY, 0, shape, strides, t.dtype, t.device, -1, t.requires_grad)
        held, start = t.untyped_storage(), t.storage_offset() * t.dtype.itemsize
        buffer = id(held) if t.is_meta else held.data_ptr()
        return Value(buffer, start, shape, strides, t.dtype, t.device, -1, t.requires_grad)

    def number(self, t: Tensor) -> Value:
        """Let a new value stand for a tensor from now on, but not for others over its memory."""
        made = replace(self.value(t), number=len(self.tensors))
        self.tensors.append(t)
        self.known[id(t)] = (t, made)
        return made

    def know(self, t: Tensor) -> Value:
        """Let a new value stand for a tensor, and for others over its memory, from now on."""
        made = self.number(t)
        if made.buffer != NO_MEMORY:
            self.latest[made.buffer] = self.places[made] = t
        return made

    def held(self, t: Tensor) -> Value:
        """Return the value that stands for a tensor."""
        return self.found(t) or self.foreign(t)

    def found(self, t: Tensor) -> Value | None:
        """Return the value of a known tensor, or of another object over a known one's memory: what backward passes keep, and
        gradients that are spread without being copied. None for memory from elsewhere."""
        if id(t) in self.known:
            return self.known[id(t)][1]
        shown = self.value(t)
        same = self.places.get(shown)
        near = same if same is not None and id(same) in self.known else self.latest.get(shown.buffer)
        if near is None or id(near) not in self.known:
            return None
        if shown != self.value(near):
            return self.viewed(t, near) if t.dtype is near.dtype else None
        self.known[id(t)] = (t, self.known[id(near)][1])
        return self.known[id(near)][1]

    def foreign(self, t: Tensor) -> Value:
        """Return a value for a tensor that the program has from elsewhere."""
        return self.number(t)

    def viewed(self, t: Tensor, near: Tensor) -> Value | None:
        """Write down a call that makes a tensor of a known one in the same memory; its value."""
        return None

    def call(self, op: Any, function: Callable, run: Callable, args: tuple, kwargs: dict) -> Any:
        """Run an operator and write it down; returns what it returns."""
        given = self.structure((args, kwargs))
        result = run(*args, **kwargs)
        self.write(op, function, given, result)
        return result

    def write(self, op: Any, function: Any, given: tuple[tuple, dict], result: Any) -> None:
        """Write down a call with these arguments, values in the place of tensors; `function` is None for one that nobody made."""
        found = self.structure(result, self.know)
        self.program.calls.append(Call(op, function, *given, found, notes=self.notes(op)))

    def notes(self, op: Any) -> dict[str, Any]:
        """Return what is to be kept with a call."""
        return {}

    def maker(self, value: Value) -> Call | None:
        """Return the call whose only result is this value; None where there is none."""
        made = (c for c in self.program.calls if isinstance(c.results, Value) and c.results.number == value.number)
        return next(made, None)

    def returned(self, noted: Any, result: Any) -> None:
        """Note that the program gets other tensors in the place of those that a call has returned."""
        if isinstance(noted, (list, tuple)):
            for a, b in zip(noted, result):
                self.returned(a, b)
        elif isinstance(noted, Tensor) and noted is not result and id(noted) in self.known:
            self.known[id(result)] = (result, self.known[id(noted)][1])

    def mark(self) -> tuple[int, int]:
        """Return the present end of the program."""
        return len(self.program.calls), len(self.tensors)

    def forget(self, mark: tuple[int, int]) -> None:
        """Forget the calls written since then, and their results; numbers are not given again."""
        calls, tensors = mark
        del self.program.calls[calls:]
        self.known = {key: (t, value) for key, (t, value) in self.known.items() if value.number < tensors}


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


__all__ = ["NotRecordable", "Recorder", "Running", "TensorRecorder", "Writer", "is_leaf", "record"]
