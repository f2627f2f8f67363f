"""Recording: a function runs eagerly, and every native call is recorded with the memory that it touches.

The recorder of `graph` reports which call runs, the stubs in front of compiled code which kernel gets which arguments; new storages and reads
of memory by the host are reported, too. So an operator whose effect is more than native calls is known as such, and becomes a step that calls
it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ...backends.cpu import jit, native_call
from ...backends.cpu.onednn import direct, plan, sequence
from ...core import watching
from ...core.device import cpu
from ...core.dtype import float64
from ...core.generator import Generator, default_generator
from ...core.tensor import Tensor
from ...graph import loops
from ...graph import program as operators
from ...graph.fusion import fused_call
from ...graph.memory import Memory, instances
from ...graph.program import Value
from ...graph.recorder import NotRecordable, Recorder, Running
from ...ops.index.bad_index import bad_index
from ...optim.fused import Update as FusedUpdate
from .operator_call import parts_of, plain_parts
from .returned_numbers import only_returned
from .steps import MEMCPY, MEMSET, Buffer, Call, Launch, Number, Ref, StepGraph, Test, Update, VaryingNumber
from .views import Views


class Loose:
    """Gradients that existed before, by buffer. A call that does not use them may drop them, as in an eager call: their memory is free then.
    One that a step uses is pinned: it is kept alive."""

    def __init__(self) -> None:
        self.known: dict[int, list[weakref.ref]] = {}
        self.pinned: dict[int, list[Tensor]] = {}

    def add(self, buffer: int, grad: Tensor) -> None:
        self.known.setdefault(buffer, []).append(weakref.ref(grad))

    def pin(self, buffer: int) -> bool:
        """Keep the gradients in a buffer alive for the recording; return whether any of them still exists."""
        held = [grad for ref in self.known[buffer] if (grad := ref()) is not None]
        if held:
            self.pinned[buffer] = held
            del self.known[buffer]
        return bool(held)


class Plans:
    """The plans of oneDNN by the addresses of their tables, and the memory that they share."""

    def __init__(self) -> None:
        found = [f(brief) for f in (sequence.runner, direct.runner) for brief in (False, True)]
        self.runners = {jit.address_of(f) for f in found if f is not None}
        self.known: dict[int, Any] = {}

    def find(self, table: int) -> Any:
        if table not in self.known:
            for cache in list(plan._caches):
                for entry in [*cache.young.values(), *cache.old.values()]:
                    one = entry[0] if type(entry) is tuple else getattr(entry, "plan", entry)
                    if getattr(one, "address", None) is not None:
                        self.known[one.address] = one
        return self.known.get(table)

    def know_workspace(self, memory: Memory) -> None:
        place = plan._workspace.address
        known = memory.find(place)
        if place and (known is None or memory.buffers[known.buffer].source != "workspace"):
            memory.add(place, plan._workspace.size, "workspace")

    def in_workspace(self, memory: Memory, address: int) -> Ref | None:
        start = plan._workspace.address
        if not start <= address < start + plan._workspace.size:
            return None
        self.know_workspace(memory)
        return memory.find(address)


class Leaf(Running):
    """The operator being recorded: its native calls so far, and why it cannot be replayed."""

    def __init__(self, call: operators.Call):
        super().__init__(call)
        self.name = call.name
        self.steps: list[Any] = []
        self.tests: list[Test] = []
        self.converts = False  # whether it has got a number from a tensor
        self.numbers: list[bytes] = []  # those that it has got
        self.generator: Generator | None = None
        # The generator's state before the operator, and after its engine was prepared, which reading it does.
        self.mark: Any = None
        self.ready: Any = None


class StepRecorder(Recorder):
    """Recorder of the native calls that each call makes, as the steps of a graph."""

    only_host = True
    skips = 0  # whether native functions should not run
    observes = True  # whether the Python code that runs is observed, and its changes of state are searched for
    restarts = False  # whether a replay that differs from the recording can be abandoned for an eager call
    keeps_numbers = False  # whether numbers that a derivative holds may be compared in later calls
    under_way = 0  # messages that were started and not waited for
    prepare: Any = None  # the class that saves the state before, if it is not `preparation.Prepared`

    def __init__(self) -> None:
        super().__init__()
        self.interruption: KeyboardInterrupt | None = None  # one that came while a native call was written down
        self.graph = StepGraph()
        self.thread = threading.get_ident()
        self.graph.buffers = self.memory.buffers
        self.codes: frozenset = frozenset()  # of the function itself
        self.numbers: list[tuple[float, int, int]] = []  # that are only returned: value, buffer, size
        self.loose = Loose()
        self.views = Views()

    @functools.cached_property
    def plans(self) -> Plans:
        """Return the plans of oneDNN that native calls run."""
        return Plans()

    @functools.cached_property
    def _callback(self) -> Any:  # made when it is needed: it is a cycle
        return _CALLBACK(self._record_native_call)

    @contextlib.contextmanager
    def recording(self) -> Iterator[StepRecorder]:
        for buffer in (bad_index.buffer,):
            self.know_storage(buffer._storage, "state")
        with self.native_calls(), super().recording():
            yield self
        if self.interruption is not None:
            raise self.interruption

    @contextlib.contextmanager
    def native_calls(self) -> Iterator[None]:
        """Context manager: report native calls to this recorder, except those of finalizers that a garbage collection runs."""
        watching.notice_collections()
        native_call.recorder.value = ctypes.cast(self._callback, ctypes.c_void_p).value
        try:
            yield
        finally:
            native_call.recorder.value = None

    # -- calls ------------------------------------------------------------------------------------------------------
    def instead(self, op: Any, function: Callable, args: tuple, kwargs: dict) -> Any:
        if isinstance(op.impl, FusedUpdate) and op.updates:
            return self._update(op.impl, args, kwargs)
        if op.tells and self.running is not None:  # the call that runs reads a number, and is made as a whole then
            return function(*args, **kwargs)
        if op.tells == "number" and only_returned(self.codes):
            return self._number(function, args)
        return NotImplemented

    def begin(self, call: operators.Call, args: tuple, kwargs: dict) -> Leaf:
        op, leaf = call.op, Leaf(call)
        self.under_way += {"start": 1, "end": -1}.get(op.sends, 0)
        if op.reads_values:
            self.refuse(f"{leaf.name} depends on values")
        if op.draws:
            self._know_generators(leaf, args, kwargs)
        return leaf

    def failed(self, running: Leaf) -> None:
        """Record an operator that raised, perhaps by a hook for saved tensors: what it did until then counts. Refuse if the exception depends
        on values: in a replay it may not come, and what handles it must not run."""
        self.end(running, None)
        if running.problem or running.tests or running.converts:
            self.refuse(f"{running.name} ends with an exception")

    def _number(self, function: Callable, args: tuple) -> Any:
        """Handle a number that is read only to be returned: copy it to a buffer of its own, from which it is read after a replay."""
        t: Tensor = args[0]
        held = self.held(t)
        with watching.without(self):
            value = function(*args)
        if type(value) is not float or held is None or t.dtype.name not in ("float32", "float64"):
            self.refuse("item depends on values")
            return value
        aside = Buffer(len(self.memory.buffers), 0, t.dtype.itemsize)
        self.memory.buffers.append(aside)
        self.graph.steps.append(
            Launch("item", MEMCPY, "ppl", [Ref(aside.index, 0), Ref(held.buffer, held.start), aside.size])
        )
        self.numbers.append((value, aside.index, aside.size))
        return value

    def _know_generators(self, leaf: Leaf, args: tuple, kwargs: dict) -> None:
        found = instances((args, kwargs), Generator)
        self.graph.draws += [g for g in found or [default_generator] if g not in self.graph.draws]
        if len(found) != 1:
            leaf.problem = "it draws random numbers"
            return
        leaf.generator, leaf.mark = found[0], found[0].state_bytes()
        with leaf.generator.lock, watching.without(self):  # the memory it prepares belongs to the generator
            engine, words, _, _ = leaf.generator.native()
        self.know_storage(engine._storage, ("engine", leaf.generator))
        self.know_storage(words._storage, ("words", leaf.generator))
        leaf.ready = leaf.generator.state_bytes()

    def end(self, leaf: Leaf, result: Any) -> None:
        """Record an operator that has run: by its native calls if they are its whole effect, else as a call of the operator."""
        whole, op = leaf.call, leaf.call.op
        given = whole.args, whole.kwargs
        self._claim_memory(leaf, given, result)
        touched = {ref.buffer for step in leaf.steps for ref in step.refs()}
        if not leaf.steps and not leaf.problem and op.unfilled:
            return
        if not leaf.problem and any(b not in touched and self.memory.buffers[b].size for b in leaf.makes):
            leaf.problem = "it fills memory by itself"
        changes = bool(op.writes or op.draws or op.sends or op.in_place)
        if not leaf.problem and not leaf.steps and changes and op.kind != "view":
            leaf.problem = "it changes memory by itself"
        if leaf.generator is not None and leaf.generator.state_bytes() == leaf.ready:
            leaf.generator.set_state_bytes(leaf.mark)  # nothing was drawn
        if not leaf.steps and not leaf.makes and not leaf.problem:
            return
        whole.makes, whole.stays = leaf.makes, bool(leaf.problem or leaf.tests)
        whole.results = self.structure(result, self.value)
        for step in leaf.steps:
            step.call = whole
        call = Call(leaf.name, whole.function, *given, leaf.makes, leaf.problem, changes, call=whole)
        if leaf.converts and not op.reads_values:
            if any(isinstance(part, Tensor) and part.requires_grad for part in parts_of(result)):
                call.numbers = leaf.numbers  # its derivative holds them
            call.results = self._results(call, op, result)
        if leaf.problem:
            self.graph.steps.append(call)
            return
        self.graph.steps += leaf.steps
        if leaf.generator is not None and leaf.generator not in self.graph.generators:
            self.graph.generators.append(leaf.generator)

    def _claim_memory(self, leaf: Leaf, given: tuple[tuple, dict], result: Any) -> None:
        """Adopt memory of unknown origin under an operator's results, such as a NumPy array's: it is the operator's own if all its arguments
        are tensors and plain values."""
        held = [t._storage for t in parts_of(result) if isinstance(t, Tensor) and self.plain(t)]
        foreign = [s for s in held if s.owner is not None]
        known = plain_parts(given) if foreign else None
        if known is None:
            return
        for one in foreign:
            place = self.memory.find(one.ptr)
            if place is None or place.buffer not in known:
                leaf.makes.append(self.memory.add(one.ptr, one.size_bytes, "new").index)
                leaf.problem = leaf.problem or "its result is memory of another library"

    def _results(self, call: Call, op: Any, result: Any) -> list[Value]:
        """Return the results of an operator that has read a number from a tensor, to be compared in later calls. Refuse to record if the
        number may have an effect other than these results, or if the call cannot be restarted."""
        parts = [part for part in parts_of(result) if part is not None]
        tensors = [part for part in parts if isinstance(part, Tensor)]
        if (
            not self.restarts
            or op.draws
            or len(tensors) < len(parts)
            or (call.numbers is not None and (call.changes or not self.keeps_numbers))
        ):
            self.refuse(f"{call.name} depends on a number that it reads from a tensor")
            return []
        return [self.held(t) for t in tensors]

    def find(self, address: int) -> Ref | None:
        """Return the place at an address that a step is about to use, pinning a gradient that is stored there."""
        place = self.memory.find(address)
        if place is not None and place.buffer in self.loose.known and not self.loose.pin(place.buffer):
            return None  # other data is stored there now
        return place

    # -- what is told -----------------------------------------------------------------------------------------------
    def converted(self, address: int, nbytes: int) -> None:
        """Note that Python reads a number: its use in sizes or branches cannot be recorded."""
        if self.running is not None:
            self.running.converts = True
            self.running.numbers.append(ctypes.string_at(address, nbytes))
        self.told("the program looks at the values of a tensor", "it reads a number from a tensor")

    def filled(self, address: int, value: int, size: int) -> None:
        """Record that memory is filled with a byte."""
        place = self.find(address)
        if place is None:
            self.refuse("a fill of unknown memory")
            return
        self._step(Launch("zeros" if self.running is None else self.running.name, MEMSET, "pil", [place, value, size]))

    def loaded(self, address: int, size: int) -> None:
        """Record values from Python that are written to new memory: they depend only on guarded values."""
        place = self.find(address)
        if place is None:
            self.refuse("values for unknown memory")
            return
        name = "values" if self.running is None else self.running.name
        self._step(Launch(name, MEMCPY, "ppl", [place, ctypes.string_at(address, size), size]))

    def constant(self, t: Tensor) -> None:
        """Note that one of this library's constant tables is about to be read."""
        if t.device is cpu:
            self.know_storage(t._storage, "state")

    def _step(self, step: Any) -> None:
        """Append a step: to the operator that runs, or between operators."""
        (self.graph.steps if self.running is None else self.running.steps).append(step)

    def tested(self, address: int, size: int, error: Exception | None) -> None:
        """Record that an operator tests a number in which a kernel reports errors."""
        place = self.find(address)
        if place is not None and error is not None and self.running is None:
            self.graph.steps.append(Test(str(error), place, size, error=error))
            return
        if place is None or self.running is None:
            self.refuse("a test of unknown memory")
            return
        test = Test(self.running.name, place, size)
        self.running.tests.append(test)
        self.running.steps.append(test)

    def _record_native_call(self, kernel: Any, arguments: int, count: int) -> int:
        """Record a call of a native function, and return whether it shall be skipped."""
        if threading.get_ident() != self.thread or watching.collecting.now:
            return 0
        try:
            words = (ctypes.py_object * count).from_address(arguments)
            self._record_launch(kernel, list(words))
        except Exception as error:  # an error cannot leave a callback
            self.refuse(f"{type(error).__name__}: {error}")
        except KeyboardInterrupt as error:
            self.refuse("it was interrupted")
            self.interruption = error
        return self.skips

    def _record_launch(self, kernel: int, given: list[Any]) -> None:
        signature = jit.signatures[kernel]
        leaf = self.running
        given = [value.number if type(value) is VaryingNumber else value for value in given]
        launch = Launch("between operators" if leaf is None else leaf.name, kernel, signature, [])
        if kernel in self.plans.runners:
            launch.plan = self.plans.find(given[0])
            if launch.plan is None:
                self._not_native("its plan of oneDNN is not known")
                return
            if launch.plan.scratch_size:
                self.plans.know_workspace(self.memory)
        for letter, value in zip(signature, given):
            if letter != "p" or value is None or isinstance(value, bytes):
                launch.arguments.append(value)
            elif launch.plan is not None and not launch.arguments:
                launch.arguments.append(value)  # the table of the plan
            else:
                place = self.find(value) or self.plans.in_workspace(self.memory, value)
                if place is None:
                    self._not_native("it uses memory of its own")
                    return
                launch.arguments.append(place)
        self._step(launch)

    def _not_native(self, why: str) -> None:
        """Note that the operator that runs does something that its native calls alone do not repeat."""
        self.told(f"a native call between operators: {why}", why)

    # -- optimizers -------------------------------------------------------------------------------------------------
    def _update(self, update: FusedUpdate, args: tuple, options: dict) -> None:
        """Record an optimizer's update of a list of parameters. The numbers that its kernels get are computed in each run."""
        used = update.variant(options)
        count = len(used.scalars)
        names = tuple(n for n, v in options.items() if v is not None and type(v) not in (bool, str))
        cells = [list(cells) for cells in args[2 : 2 + count]]
        given = self.structure(args)
        problem = ""
        if any(isinstance(options[n], Tensor) for n in names):
            problem = "its options are tensors"
        with watching.without(self):  # what it reads is not what the program reads
            values = [tuple(s.item() for s in state) for state in zip(*cells)] if count else []
        if len(set(values)) > 1:
            problem = "parameters have different step counts"
        if any(c.dtype.name not in ("float32", "float64") for row in cells for c in row):
            problem = "step counts are not floats"
        leaf = self.running = Leaf(operators.Call(update.operator.op, update.operator, given, dict(options)))
        try:
            with watching.without(self):
                update.update_lists(*args, **options)
        finally:
            self.running = None
        numbers = (
            used.prologue(*(values[0] if count else ()), *(options[n] for n in names))[count:] if not problem else ()
        )
        steps = [s for s in leaf.steps if isinstance(s, Launch) and self._is_update(s, used, len(numbers))]
        if problem or leaf.problem:
            given, kept = leaf.call.args, leaf.call.kwargs
            self.graph.steps.append(Call(leaf.name, update.operator, given, kept, [], problem or leaf.problem, True))
            return
        position = len(self.graph.updates)
        for step in steps:
            first = len(step.arguments) - len(numbers)
            step.arguments[first:] = [Number(position, k) for k in range(len(numbers))]
        self._as_formulas(update.operator.op, used, given, steps)
        self.graph.steps += steps
        scalars = tuple(tuple(Ref(v.buffer, v.start) for v in row) for row in given[2 : 2 + count])
        kinds = tuple(row[0].dtype for row in given[2 : 2 + count])
        parameters = frozenset(map(id, args[0]))
        self.graph.updates.append(Update(used.prologue, scalars, kinds, dict(options), names, parameters))

    @staticmethod
    def _as_formulas(op: Any, used: Any, given: tuple, steps: list[Launch]) -> None:
        """Split an update into calls for its native calls: formulas over a parameter, its gradient and its states."""
        count = len(used.scalars)
        rows = {tuple(Ref(v.buffer, v.start) for v in row): row for row in zip(*given[:2], *given[2 + count :])}
        for step in steps:
            places = [a for a in step.arguments if type(a) is Ref][len(used.positions) :]
            row = rows[tuple(places)]
            if any(v.dtype.is_complex or v.shape != row[0].shape for v in row):
                continue
            reads: list[Any] = [(loops.Place(v.buffer, v.start, tuple(v.strides)), v.dtype) for v in row]
            stored = {reads[i][0]: (root, reads[i][1]) for i, root in zip(used.positions, used.formulas(row))}
            reads += [(loops.Number(a, float), float64) for a in step.arguments if type(a) is Number]
            call = operators.Call(op, op.function, tuple(row), {}, changes=frozenset(p.buffer for p in stored))
            loop = loops.collapsed(call, row[0].shape, reads, stored, cpu)
            if loop is not None:
                step.call = fused_call(loop, list(loop.results))

    @staticmethod
    def _is_update(step: Launch, used: Any, numbers: int) -> bool:
        """Return whether a native call is the kernel that updates a parameter, not the one that stores a step count."""
        pointers = len(step.refs())
        return pointers == len(used.positions) + 2 + len(used.states)


_CALLBACK = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int64)


__all__ = ["Leaf", "Loose", "Memory", "NotRecordable", "StepRecorder"]
