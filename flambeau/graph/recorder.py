"""The recorder: a mode at the door that records every call that touches memory, in order.

Composites are recorded through their bodies; their parts (forward, backward, updates of optimizers, random numbers, fills and copies) pass
the same door and become calls. Nothing recorded keeps a tensor alive: operators may depend on reference counts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ..core import modes, watching
from ..core.casts import casts
from ..core.device import cpu
from ..core.held import HeldTensor
from ..core.layout import strided
from ..core.overrides import overriding_arguments
from ..core.records import replace
from ..core.sharded import SpreadTensor
from ..core.size import make_size
from ..core.sparse import SparseTensor
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor, tensors_in
from ..core.user_frames import user_frame
from .memory import Buffer, Memory, Ref, instances, mapped
from .program import NO_MEMORY, Call, Program, Value


class NotRecordable(Exception):
    """Raised when a function cannot be recorded as a program; the message gives the reason."""


class Running:
    """The call being recorded: the buffers that it makes, and why its native calls alone would not have the same effect."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.makes: list[int] = []
        self.problem = ""
        self.versions: list[tuple[UntypedStorage, int]] = []  # of the arguments' memory, before


class Writer(modes.Mode):
    """Mode that writes calls: the record and arguments of a call, with tensors as values over known memory, and why one cannot be recorded."""

    only_host = False  # whether it knows only memory of the host
    running: Any = None  # the call that runs; None between calls
    passing = ""  # what this call does and later ones do not
    place = ""  # the user's line that the first problem is about

    def __init__(self) -> None:
        self.memory = Memory()
        self.program = Program(self.memory.buffers)
        self.problems: list[str] = []  # why the recorded calls do not describe everything that happened

    def refuse(self, why: str) -> None:
        """Record why the function cannot be recorded."""
        if not self.problems:
            self.place = user_frame()
        self.problems.append(why)

    # -- calls ------------------------------------------------------------------------------------------------------
    def call(self, op: Any, function: Callable, run: Callable, args: tuple, kwargs: dict) -> Any:
        """Run an operator, record the call and return its result. `run` makes the call; `function` is the form to record."""
        call = Call(op, function, *self.structure((args, kwargs)))
        outer, self.running = self.running, self.begin(call, args, kwargs)
        try:
            result = run(*args, **kwargs)
        except BaseException:
            running, self.running = self.running, outer
            self.failed(running)
            raise
        running, self.running = self.running, outer
        self.end(running, result)
        return result

    def begin(self, call: Call, args: tuple, kwargs: dict) -> Any:
        """Return the object that collects facts about a call while it runs."""
        return Running(call)

    def end(self, running: Any, result: Any) -> None:
        """Record a call that has run, with its results."""
        call = running.call
        call.makes, call.results = running.makes, self.structure(result, self.result)
        call.notes = self.notes(call.op)
        self.program.calls.append(call)

    def failed(self, running: Any) -> None:
        """Note that a call has ended with an exception."""
        if running.makes:
            self.refuse(f"{running.call.name} ends with an exception")

    def notes(self, op: Any) -> dict[str, Any]:
        """Return the notes to be stored with a call of `op`."""
        return {}

    # -- tensors ----------------------------------------------------------------------------------------------------
    def plain(self, t: Tensor) -> bool:
        """Return whether a tensor is dense and has storage of its own on a device that is recorded."""
        in_memory = type(t) is Tensor or (not isinstance(t, (HeldTensor, SparseTensor)) and hasattr(t, "_storage"))
        return in_memory and (t.device is cpu or not self.only_host)

    def find(self, address: int) -> Ref | None:
        """Return the place of an address; None for memory that is not known."""
        return self.memory.find(address)

    def value(self, t: Tensor) -> Value | None:
        """Return a tensor as a value; None if its memory is not known."""
        return Value.of(t, self.find) if self.plain(t) else None

    def held(self, t: Tensor) -> Any:
        """Return a tensor as a value; refuse the recording if its memory is not known."""
        found = self.value(t)
        if found is None:
            origin = "of unknown origin" if self.plain(t) else f"on {t.device} with layout {t.layout}"
            self.refuse(f"a tensor {origin}")
        return found

    def result(self, t: Tensor) -> Any:
        """Return a tensor that a call has returned as a value: unknown memory is refused only where it is used."""
        return self.value(t)

    def structure(self, value: Any, change: Callable[[Tensor], Any] | None = None) -> Any:
        """Replace all tensors of a structure by values."""
        if isinstance(value, tuple) and type(value) is not tuple:
            value = tuple(value)
        return mapped(value, Tensor, change or self.held)


def _declared(call: Call) -> list[Value]:
    """Return the values that an operator declares to change."""
    written = written_arguments(call.op, call.args, call.kwargs) if call.op.writes else ()
    return instances((call.kwargs.get("out"), written), Value)


def written_arguments(op: Any, args: tuple, kwargs: dict) -> list[Any]:
    """Return the arguments that an operator declares to change; all of them if they cannot be told apart."""
    if op.updates:
        return [args[0], args[2:]]
    try:
        bound = op.bind(args, kwargs)
        return [bound[name] for name in op.writes]
    except (TypeError, KeyError):
        return [args, kwargs]


class Recorder(Writer):
    """The mode at the door: records this thread's calls between entering and leaving `recording()`. Composites for whose record `whole`
    returns True are recorded as one call. `views` is notified of calls that may have made views.

    Subclasses that need more than calls override the notifications: `instead` of a call that is about to be made, `begin` and `end` of one
    that runs and has run, and the methods of `watching.Watcher` for what happens to memory meanwhile."""

    views: Any = None

    def __init__(self, whole: Callable[[Any], bool] | None = None):
        super().__init__()
        self.whole = whole or (lambda op: False)
        self._known: dict[int, Tensor] = {}  # tensors that existed before, by id

    @contextlib.contextmanager
    def recording(self) -> Iterator[Any]:
        """Context manager: record this thread's calls."""
        with watching.watch(self), self:
            yield self

    def new_program(self) -> Program:
        """Record further calls into another program over the same buffers."""
        self.program = Program(self.memory.buffers, states=self.program.states)
        return self.program

    # -- what existed before ----------------------------------------------------------------------------------------
    def know_storage(self, held: UntypedStorage, source: Any = "state") -> Buffer | None:
        """Register a storage that existed before, if it has memory, and return its buffer."""
        if not held.ptr or (self.only_host and held.device is not cpu):
            return None
        found = self.memory.find(held.ptr)
        if found is not None and found.offset == 0:
            return self.memory.buffers[found.buffer]
        return self.memory.add(held.ptr, max(held.size_bytes, held.capacity), source, held)

    def know(self, t: Tensor, source: Any = "state") -> Value:
        """Register a tensor that existed before: an argument, or one of the state. An equal value then stands for the tensor itself."""
        known = self.memory.find(t._storage.ptr) is not None
        buffer = None if known else self.know_storage(t._storage, source)
        if source == "state":
            self._known[id(t)] = t
        elif buffer is not None:
            buffer.storage = None  # arguments come with each run
        return self.held(t)

    def held(self, t: Tensor) -> Any:
        found = super().held(t)
        if id(t) in self._known and found is not None and found.buffer != NO_MEMORY:
            self.program.states[found] = t
        return found

    # -- the door ---------------------------------------------------------------------------------------------------
    def handle(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        if watching.collecting.now:
            return function(*args, **kwargs)
        if overriding_arguments(args, kwargs):
            self.refuse("an argument's class overrides operators")
            return function(*args, **kwargs)
        given = tensors_in((*args, *kwargs.values()))
        spread = [t for t in given if type(t) is not Tensor and isinstance(t, SpreadTensor)]
        if spread:  # the calls made instead, on this rank's parts, are recorded
            with self:
                return spread[0]._call_spread(function, args, kwargs)
        result = self.settled(self._made, op, function, args, kwargs)
        if self.views is not None and (op.kind == "view" or (op.has_parts and not modes.staying())):
            self.views.note(function, args, kwargs, result)
        return result

    def _made(self, op: Any, function: Callable, run: Callable, args: tuple, kwargs: dict) -> Any:
        """Make a call as its record says: as one call, or through the calls in its body."""
        if run is not function and run is not modes.unwatched(function):
            function = run
        if op.has_parts and not self.whole(op):
            return self.through(run, args, kwargs)
        found = self.instead(op, function, args, kwargs)
        if found is not NotImplemented:
            return found
        if op.kind == "pointwise" and op.writes:  # the copies for its derivative are separate calls
            return self.call(op, function, lambda *a, **k: self.through(run, a, k), args, kwargs)
        return self.call(op, function, run, args, kwargs)

    def instead(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Make a call in another way, or return NotImplemented for one that is to be made and recorded normally."""
        return NotImplemented

    def begin(self, call: Call, args: tuple, kwargs: dict) -> Any:
        if call.op.reads_values:
            self.refuse(f"{call.name} depends on values")
        running = super().begin(call, args, kwargs)
        running.versions = [(t._storage, t._storage.version) for t in tensors_in((args, kwargs)) if self.plain(t)]
        return running

    def end(self, running: Any, result: Any) -> None:
        call = running.call
        changed = {self.memory.find(s.ptr) for s, before in running.versions if s.ptr and s.version != before}
        changes = {place.buffer for place in changed if place is not None}
        call.changes = frozenset(changes | {v.buffer for v in _declared(call)} - {NO_MEMORY})
        call.line, call.stays = user_frame(), bool(call.op.sends)
        super().end(running, result)

    # -- what is told about memory ----------------------------------------------------------------------------------
    def told(self, between: str, within: str) -> None:
        """Record an effect that no call shows: `between` is the reason to refuse it between calls, `within` why the call that has it must be
        kept whole."""
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

    def reseeded(self) -> None:
        self.told("the state of a random generator is set", "it sets the state of a random generator")

    def sent(self, what: str) -> None:
        self.told(f"{what} exchanges messages, but is no operator", "it exchanges messages with other processes")

    def once(self, what: str) -> None:
        self.passing = self.passing or what

    def converted(self, address: int, nbytes: int) -> None:
        self.looked()

    def tested(self, address: int, nbytes: int, error: Exception | None) -> None:
        """Do nothing: a call that tests for errors does so again in a replay."""

    def filled(self, address: int, value: int, nbytes: int) -> None:
        self.told("bytes are set between operators", "")

    def loaded(self, address: int, nbytes: int) -> None:
        self.filled(address, 0, nbytes)

    def constant(self, found: Tensor) -> None:
        if found._storage.ptr:
            self.know(found)


class TensorRecorder(Writer):
    """Recorder of the calls that it is given, with a value for each tensor object: several over one place in memory may have different
    histories (`x`, `x.detach()`). It keeps the tensors alive, so that no memory is used for two; the number of a value is its tensor's index
    in `tensors`."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[Tensor] = []
        self.known: dict[int, tuple[Tensor, Value]] = {}  # by id
        self.latest: dict[int, Tensor] = {}  # the latest known tensor in each piece of memory
        self.places: dict[Value, Tensor] = {}  # and as each value over it

    def __enter__(self) -> Any:
        self._casts, casts.cache = casts.cache, {}  # copies that autocast has made before would be constants
        return super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        casts.cache = self._casts

    def value(self, t: Tensor) -> Value:
        """Return a tensor as a value over the memory at its address; without memory, over its storage object."""
        if t.layout is not strided or t.is_nested:
            return Value(NO_MEMORY, 0, t.shape, (), t.dtype, t.device, -1, t.requires_grad)
        shape, strides = make_size([int(n) for n in t.shape]), t.stride()
        if 0 in shape:
            return Value(NO_MEMORY, 0, shape, strides, t.dtype, t.device, -1, t.requires_grad)
        held, start = t.untyped_storage(), t.storage_offset() * t.dtype.itemsize
        buffer = id(held) if t.is_meta else held.data_ptr()
        return Value(buffer, start, shape, strides, t.dtype, t.device, -1, t.requires_grad)

    def number(self, t: Tensor) -> Value:
        """Make a new value for a tensor object, without claiming its memory for it."""
        made = replace(self.value(t), number=len(self.tensors))
        self.tensors.append(t)
        self.known[id(t)] = (t, made)
        return made

    def know(self, t: Tensor) -> Value:
        """Make a new value for a tensor, which also stands for unknown tensors over its memory."""
        made = self.number(t)
        if made.buffer != NO_MEMORY:
            self.latest[made.buffer] = self.places[made] = t
        return made

    def held(self, t: Tensor) -> Value:
        """Return the value that stands for a tensor."""
        return self.found(t) or self.foreign(t)

    def found(self, t: Tensor) -> Value | None:
        """Return the value of a known tensor, or of another object over a known one's memory: tensors that backward passes keep, and
        gradients that are expanded without being copied. None for memory from elsewhere."""
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
        """Return a value for a tensor that was made outside the program."""
        return self.number(t)

    def viewed(self, t: Tensor, near: Tensor) -> Value | None:
        """Record a call that makes a tensor from a known one in the same memory, and return its value; here None."""
        return None

    def result(self, t: Tensor) -> Value:
        return self.know(t)

    def write(self, op: Any, function: Any, given: tuple[tuple, dict], result: Any) -> None:
        """Record a call with these arguments, values in place of tensors; `function` is None for a call that was not made."""
        self.end(Running(Call(op, function, *given)), result)

    def maker(self, value: Value) -> Call | None:
        """Return the call whose only result is this value, or None."""
        made = (c for c in self.program.calls if isinstance(c.results, Value) and c.results.number == value.number)
        return next(made, None)

    def returned(self, noted: Any, result: Any) -> None:
        """Note that the program gets other tensor objects in place of those that a call has returned."""
        if isinstance(noted, (list, tuple)):
            for a, b in zip(noted, result):
                self.returned(a, b)
        elif isinstance(noted, Tensor) and noted is not result and id(noted) in self.known:
            self.known[id(result)] = (result, self.known[id(noted)][1])

    def mark(self) -> tuple[int, int]:
        """Return the present end of the program."""
        return len(self.program.calls), len(self.tensors)

    def forget(self, mark: tuple[int, int]) -> None:
        """Forget the calls recorded since `mark`, and their results; numbers are not reused."""
        calls, tensors = mark
        del self.program.calls[calls:]
        self.known = {key: (t, value) for key, (t, value) in self.known.items() if value.number < tensors}


def record(function: Callable, *args: Any, states: Any = (), whole: Callable[[Any], bool] | None = None) -> Program:
    """Run `function` on `args` and return its operator calls as a program. `states` are tensors it finds elsewhere (parameters, buffers,
    optimizer state); `whole(op)` returns whether a composite stays one call instead of the calls of its body.

    >>> len(record(flambeau.nn.functional.relu, flambeau.ones(2)).calls)
    1
    """
    recorder = Recorder(whole)
    inputs = [recorder.know(t, ("argument", i)) for i, t in enumerate(instances(args, Tensor))]
    for t in states:
        recorder.know(t)
    with recorder.recording():
        result = function(*args)
        program = recorder.program
        program.inputs, program.outputs = inputs, recorder.structure(result)
    if recorder.problems:
        raise NotRecordable(recorder.problems[0])
    return program
