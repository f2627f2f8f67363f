"""Executable form of a graph: every buffer has an address, every native call a block of arguments, and the driver runs them all.

Buffers of the function's own are in one arena, where those with disjoint lifetimes share memory. Words that differ in every call (addresses
of arguments and results, numbers of optimizers) are written into the blocks by the driver before the first step.

Other executors, such as a captured CUDA graph, have the same interface:

    Program(graph, arguments, results)
        graph       a `StepGraph`: `steps` in order (`Launch`, `Test`, `Call`) over `buffers`, whose `source` says who owns
                    the memory; `updates`, whose `prologue` turns an optimizer's options and step counts into the `Number`s among the
                    arguments of launches; `generators`, whose engines launches use, and `draws`, all that random numbers come from
        arguments   {buffer: (position of the argument it belongs to, bytes from the buffer's start to that tensor's first element)}
        results     the buffer that goes into each storage of `made`, in order; -1 for a storage without memory
    run(tensors, made, options)
        tensors     the arguments: anything with `_storage`, `_offset` and `dtype`; their layouts are those of the recorded call
        made        storages for the results, which the caller keeps
        options     for each update, the current options of its optimizer
        Runs every step, in order. Raises `Stale`, before anything has changed, if the program does not fit this call, and
        an error if a `Test` finds a number that is not zero; `failed` is that step then.
    place(made, which)
                    store some results in these storages from now on, unless a run is given others
    rest()          return the program's own memory to the system until the next run, if possible
    changed         which storages of `made` differ from those of the last run; None if any may. Optional information
    rehearsal       a function that runs the steps of the program (see `stepwise`), or None
    sends           whether it exchanges messages with other processes
    graph, segments, arena_size, bytes, offsets, in_place, only
                    read by `show` and `recorded`: `segments` are the runs of steps between calls through Python, `only` is the one
                    segment of a program without such calls, `offsets` the buffers in the arena, `in_place` those of them that
                    reuse the memory of a buffer that a step reads for the last time, `bytes` the size of the memory touched

The graph is recorded on one device, and `recorded` guards each call: a program need not check its arguments."""

from __future__ import annotations

import ctypes
import functools
import struct
from array import array
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ...backends.cpu.onednn import plan as onednn_plan
from ...backends.cpu.onednn import sequence
from ...core import naming
from ...core.generator import Generator
from ...core.storage import UntypedStorage
from ..record.operator_call import Stale, call_operator
from ..record.steps import Call, Launch, Number, Ref, Same, StepGraph, Test
from . import driver
from .arena import arrange, give_back, shared_arena

layout_check = naming.late("compiler.passes.layout_check")
_BRIEF_BYTES = 1 << 18  # programs that touch less than this keep the interpreter's lock
_UNSIGNED = (1 << 64) - 1


class Segment(NamedTuple):
    """Consecutive native steps, or one call of an operator."""

    first: int
    size: int
    call: Call | None


class Program:
    """A graph that can be run. `arguments` maps buffers to the position of an argument and the distance of its first element from the
    buffer's start; buffers in `results` are allocated in every call."""

    def __init__(self, graph: StepGraph, arguments: dict[int, tuple[int, int]], results: list[int]):
        self.graph, self.arguments, self.results = graph, arguments, results
        self.names: list[Any] = []  # what each value is
        self._value: dict[Any, int] = {}
        own = {b.index for b in graph.buffers if b.source == "new"} - set(results)
        self.offsets, self.arena_size, self.in_place = arrange(graph, own)
        alone = any(isinstance(step, Call) for step in graph.steps)  # an operator might run another program
        self.arena = UntypedStorage(max(self.arena_size, 1)) if alone else shared_arena(self.arena_size)
        self.words: list[int] = []
        self._patches: list[tuple[int, Any, int]] = []
        self.keep: list[Any] = []
        self.instructions: list[tuple[int, int, int]] = []  # caller, function, first word of the block
        self.step_names: list[str] = []
        self.origins: list[Any] = []  # the step of the graph that each is made for
        self.failures: list[Callable[[], None] | None] = []
        self.segments: list[Segment] = []
        self.numbers: dict[int, tuple[float, ...]] = {}  # of each update, in the last run
        self.plans: list[Any] = []
        self._cells: list[tuple] = []
        self._zero = ctypes.c_int64()
        self._others: dict[int, tuple[Any, int]] = {}  # steps that replace other calls, with the places of those
        self._forks: dict[int, list[list[int]]] = {}  # what runs steps side by side: by its number those of the steps
        self._lists: list[tuple[int, int]] = []  # words that take the addresses of steps
        self._flags: dict[int, Any] = {}  # of these, what tells of infinities and nan
        self._relaid: dict[int, Any] = {}  # steps with feature maps in another layout than in the recorded calls
        self.rehearsal: Callable[[Program], None] | None = None
        self.changed: list[int] | None = None
        self.failed: Any = None  # the step that last reported an error
        self._left = False  # whether a run has ended between the start and the end of a message
        self._build()

    # -- building ---------------------------------------------------------------------------------------------------
    def _build(self) -> None:
        first = 0
        for position in range(len(self.graph.updates)):
            self._add_cells(position, False)
        steps = self.graph.steps
        relaid = layout_check.relaid_steps(self.graph) if self.graph.maps else []
        begins = {id(each.made[0]): each for each in relaid}
        for k, step in enumerate(steps):
            if isinstance(step, Call):
                if len(self.instructions) > first:
                    self.segments.append(Segment(first, len(self.instructions) - first, None))
                self.segments.append(Segment(0, 0, step))
                first = len(self.instructions)
            elif isinstance(step, Test):
                self._add(driver.tester(step.size), 0, "p", [step.place], self._make_failure(step), step)
            elif step.lane is None:
                self._add_launch(step)
                if id(step) in begins:
                    self._relaid[len(self.instructions) - 1] = begins[id(step)]
                if step.other is not None:
                    self._make_room(step)
                if step.plan is not None:
                    self._add_plan(step.plan)
            elif k == 0 or not isinstance(steps[k - 1], Launch) or (steps[k - 1].lane or (-1,))[0] != step.lane[0]:
                self._add_fork([s for s in steps[k:] if isinstance(s, Launch) and s.lane and s.lane[0] == step.lane[0]])
        for position in range(len(self.graph.updates)):
            self._add_cells(position, True)
        if len(self.instructions) > first or not self.segments:
            self.segments.append(Segment(first, len(self.instructions) - first, None))
        for i, (step, _) in self._others.items():  # behind the last segment
            self._others[i] = step, len(self.instructions)
            for call in step.other.calls:
                arguments = [step.arguments[a.position] if type(a) is Same else a for a in call.arguments]
                self._add(driver.caller(call.signature), call.address, call.signature, arguments, None)
        for fork, lists in self._forks.items():  # once more, in an order of their own
            at = self.instructions[fork][2] + 2
            for each in lists:
                self._lists.append((at, len(self.instructions)))
                self.words[at + 1] = len(each)
                at += 2
                for i in each:
                    self.instructions.append(self.instructions[i])
        self._fix()

    def _add_launch(self, step: Launch) -> None:
        self._add(driver.caller(step.signature), step.address, step.signature, step.arguments, None, step, step.name)

    def _add_fork(self, group: list[Launch]) -> None:
        """Add steps that run side by side: first one that runs them all, then each of them, for runs of one step after the other."""
        lists: dict[int, list[int]] = {}
        fork = len(self.instructions)
        count = len({step.lane for step in group})
        self._add(driver.forker(), 0, "l" * (2 + 2 * count), [1 + len(group), count, *[0] * (2 * count)], None)
        for step in group:
            assert step.lane is not None
            lists.setdefault(step.lane[1], []).append(len(self.instructions))
            self._add_launch(step)
        self._forks[fork] = list(lists.values())
        for plan in {id(step.plan): step.plan for step in group if step.plan is not None}.values():
            self._add_plan(plan)

    def _add(
        self,
        caller: int,
        function: int,
        signature: str,
        arguments: list,
        failure: Any,
        step: Any = None,
        name: str = "test",
    ) -> None:
        self.instructions.append((caller, function, len(self.words)))
        self.origins.append(step)
        self.step_names.append(name)
        self.failures.append(failure)
        for letter, value in zip(signature, arguments):
            self.words.append(self._word(letter, value))

    def _word(self, letter: str, value: Any) -> int:
        if type(value) is Ref:
            return self._place(value)
        if type(value) is Number:
            self._patches.append((len(self.words), value, 0))
            return 0
        if value is None:
            return 0
        if isinstance(value, bytes):
            held = ctypes.create_string_buffer(value, max(len(value), 1))
            self.keep.append(held)
            return ctypes.addressof(held)
        if letter == "d":
            return struct.unpack("q", struct.pack("d", value))[0]
        if letter == "f":
            return struct.unpack("i", struct.pack("f", value))[0]
        return _signed(int(value))

    def _place(self, ref: Ref) -> int:
        buffer = self.graph.buffers[ref.buffer]
        if ref.buffer in self.offsets:
            return self.arena.ptr + self.offsets[ref.buffer] + ref.offset
        if buffer.source == "state":
            return buffer.address + ref.offset
        self._patches.append((len(self.words), self._name_of(ref.buffer), ref.offset))
        return 0

    def _name_of(self, index: int) -> Any:
        buffer = self.graph.buffers[index]
        if index in self.arguments:
            return "argument", index
        return ("result", index) if index in self.results else buffer.source

    def _add_plan(self, plan: Any) -> None:
        """Add a test of the error flag in a oneDNN plan's table."""
        self.plans.append(plan)
        self._add_test(plan)

    def _make_room(self, step: Launch) -> None:
        """Reserve tests that always succeed, whose places the calls that a step replaces may take."""
        assert step.other is not None
        number = len(self.instructions) - 1
        self._others[number] = (step, 0)
        at = step.other.flag
        flag = None if at is None else ctypes.c_int64.from_address(self.words[-1] + at)
        for _ in step.other.calls[1:]:
            self._add(driver.tester(8), 0, "p", [ctypes.addressof(self._zero)], None)
        for call in step.other.calls:
            if call.plan is not None:
                self._add_test(call.plan)
        if flag is not None:
            self._flags[number] = flag
            self._add(driver.tester(8), 0, "p", [ctypes.addressof(flag)], functools.partial(self._run_replaced, number))

    def _run_replaced(self, number: int) -> None:
        """Make the calls that a step replaces, because it has met infinities or nan, which it would spread further than they do."""
        self._flags[number].value = 0
        step, k = self._others[number]
        self.scratch += [
            call.plan for call in step.other.calls if call.plan is not None and call.plan not in self.scratch
        ]
        self.bound = -1
        self._bind_scratch()
        count = len(step.other.calls)
        self.runner(self.steps_at + 24 * k, count, self.patches_at, self.patch_count, self.values_at, self.status_at)
        if self.status.value:
            raise RuntimeError(f"{step.name} failed when it was made again")

    def _add_test(self, plan: Any) -> None:
        place = ctypes.addressof(plan.table) + 8 * sequence.STATUS
        self._add(driver.tester(8), 0, "p", [place], plan.fail)

    def _make_failure(self, test: Test) -> Callable[[], None]:
        def fail() -> None:
            ctypes.memset(self.address(test.place), 0, test.size)
            if test.error is not None:
                raise type(test.error)(*test.error.args)
            raise IndexError(f"{test.name}: an index is out of range")

        return fail

    def _add_cells(self, position: int, store: bool) -> None:
        """Add steps which check that all step counts of an update are equal, or (`store`) which store their new value."""
        update = self.graph.updates[position]
        for k, (refs, kind) in enumerate(zip(update.scalars, update.dtypes)):
            addresses = [self.graph.buffers[r.buffer].address + r.offset for r in refs]
            block = (ctypes.c_int64 * len(addresses))(*addresses)
            self.keep.append(block)
            caller = driver.cell_caller(store, kind.itemsize)
            value = Cell(position, k, store)
            failure = None if store else self._raise_stale
            self._add(caller, 0, "pll", [ctypes.addressof(block), len(addresses), 0], failure)
            self._patches.append((len(self.words) - 1, value, 0))
            if not store:
                read = (ctypes.c_float if kind.itemsize == 4 else ctypes.c_double).from_address(addresses[0])
                self._cells.append((position, k, read))

    @staticmethod
    def _raise_stale() -> None:
        raise Stale("the step counts of an optimizer's parameters differ")

    def _fix(self) -> None:
        """Fix all addresses: nothing moves from now on."""
        self.block = array("q", [*map(_signed, self.words), 0])
        base = self.block.buffer_info()[0]
        rows = []
        named = [name for _, name, _ in self._patches]
        for ref in [r for step in self.graph.steps if isinstance(step, Call) for r in step.refs()]:
            if ref.buffer >= 0 and ref.buffer not in self.offsets and self.graph.buffers[ref.buffer].source != "state":
                named.append(self._name_of(ref.buffer))
        for name in dict.fromkeys(named):
            self._value[name] = len(self.names)
            self.names.append(name)
        for word, name, offset in self._patches:
            rows += [base + 8 * word, self._value[name], offset]
        steps = [w for caller, function, at in self.instructions for w in (caller, function, base + 8 * at)]
        self.steps = array("q", [*map(_signed, steps), 0])
        for word, first in self._lists:
            self.block[word] = self.steps.buffer_info()[0] + 24 * first
        self.patches = array("q", [*rows, 0])
        self.patch_count = len(rows) // 3
        self.values = (ctypes.c_int64 * (len(self.names) + 1))()
        self.doubles = (ctypes.c_double * (len(self.names) + 1)).from_buffer(self.values)
        self.floats = (ctypes.c_float * (2 * len(self.values))).from_buffer(self.values)
        self.prologues = [self._prologue(i, update) for i, update in enumerate(self.graph.updates)]
        self.status = ctypes.c_int64()
        touched = {r.buffer for s in self.graph.steps for r in s.refs() if r.buffer >= 0}
        self.bytes = sum(self.graph.buffers[b].size for b in touched)
        self.runner = driver.runner(self.bytes < _BRIEF_BYTES)
        self.scratch = [p for p in self.plans if p.scratch_size]
        self.bound = -1
        self.steps_at, self.patches_at = self.steps.buffer_info()[0], self.patches.buffer_info()[0]
        self.values_at, self.status_at = ctypes.addressof(self.values), ctypes.addressof(self.status)
        value = self._value.get
        self.argument_values = [
            (self._value["argument", b], i, shift)
            for b, (i, shift) in self.arguments.items()
            if ("argument", b) in self._value
        ]
        self.result_values = [value(("result", b)) for b in self.results]
        self.engines = [(g, value(("engine", g)), value(("words", g))) for g in self._generators()]
        self.workspace = value("workspace")
        shared = [b for b in touched if self.graph.buffers[b].source == "workspace"]
        self.workspace_size = max((self.graph.buffers[b].size for b in shared), default=0)
        self.needed = self._needed()
        last = len(self.segments) - 1
        self.only = self.segments[0] if last == 0 and self.segments[0].call is None else None
        sends = {s.call.sends for s in self.segments if s.call is not None} - {""}
        self.sends, self._starts = bool(sends), "start" in sends

    def _generators(self) -> list[Generator]:
        return self.graph.generators

    def _needed(self) -> set[int]:
        """Return the buffers that something reads besides the call that makes them."""
        needed = set(self.results)
        for step in self.graph.steps:
            made = set(step.makes) if isinstance(step, Call) else set()
            needed |= {r.buffer for r in step.refs()} - made
        return needed

    # -- running ----------------------------------------------------------------------------------------------------
    def run(self, tensors: list[Any], made: list[UntypedStorage], options: list[dict[str, Any]]) -> None:
        """Run every step on these arguments, with results in the storages `made` and these options of the updates."""
        if self._left:
            raise Stale("an error occurred during communication, which may still write to its memory")
        values = self.values
        for slot, i, shift in self.argument_values:
            t = tensors[i]
            values[slot] = t._storage.ptr + t._offset * t.dtype.itemsize - shift
        self.place(made, range(len(made)) if self.changed is None else self.changed)
        if self.scratch or self.workspace is not None or self.rehearsal is not None:
            self._bind_scratch()
        if self._cells or self.graph.updates:
            self._find_numbers(options)
        if self.engines:
            self._draw()
            return
        self._run()

    def place(self, made: list[UntypedStorage], which: Iterable[int]) -> None:
        """Set the storages that results go into from now on."""
        values, places = self.values, self.result_values
        for i in which:
            place = places[i]
            if place is not None:
                values[place] = made[i].ptr

    def _run(self) -> None:
        if self.rehearsal is not None:
            self.rehearsal(self)
            return
        only = self.only
        if only is not None:
            self.runner(self.steps_at, only.size, self.patches_at, self.patch_count, self.values_at, self.status_at)
            if self.status.value:
                self._resume(0, only.size)
            return
        fresh, self._left = self.patch_count, self._starts
        for first, count, call in self.segments:
            if call is not None:
                if fresh:
                    self.runner(self.steps_at, 0, self.patches_at, fresh, self.values_at, self.status_at)
                    fresh = 0
                self.failed = call  # unless it returns
                call_operator(self, call)
                continue
            start = self.steps_at + 24 * first
            self.runner(start, count, self.patches_at, fresh, self.values_at, self.status_at)
            fresh = 0
            if self.status.value:
                self._resume(first, count)
        self._left = False

    def _resume(self, first: int, count: int) -> None:
        """Handle native steps that report a failure or a request, and run those after them."""
        end = first + count
        while self.status.value:
            first += self.status.value
            self._fail(first - 1)
            start = self.steps_at + 24 * first
            self.runner(start, end - first, self.patches_at, self.patch_count, self.values_at, self.status_at)

    def rest(self, used: list[tuple[int, int]] | None = None) -> None:
        """Return the arena's memory to the system, except for the used parts (from, to); its addresses stay reserved."""
        give_back(self.arena, self.arena_size, used or [])

    def _draw(self) -> None:
        """Run with the generators locked, and with the present addresses of their engines."""
        locks = [g.lock for g, _, _ in self.engines]
        for lock in locks:
            lock.acquire()
        try:
            for g, engine_at, words_at in self.engines:
                engine, words, _, _ = g.native()
                if engine_at is not None:
                    self.values[engine_at] = engine._storage.ptr
                if words_at is not None:
                    self.values[words_at] = words._storage.ptr
            self._run()
        finally:
            for lock in reversed(locks):
                lock.release()

    def _bind_scratch(self) -> None:
        work = onednn_plan._workspace
        others: list[Any] = []
        if self.rehearsal is not None:
            others = [call.plan for step, _ in self._others.values() for call in step.other.calls if call.plan]
            others += [call.plan for relaid in self._relaid.values() for call in relaid.steps if call.plan]
        if work.address != self.bound or work.size < self.workspace_size or others:
            used = [p for p in [*self.scratch, *others] if p.scratch_size]
            work.reserve(max([self.workspace_size, *(p.scratch_size for p in used)]))
            for p in used:
                p.bind_scratch()
            self.bound = work.address
        if self.workspace is not None:
            self.values[self.workspace] = work.address

    def _find_numbers(self, options: list[dict[str, Any]]) -> None:
        """Compute the numbers that updates need once for all parameters."""
        doubles = self.doubles
        for position, ((prologue, names, cells, places), given) in enumerate(zip(self.prologues, options)):
            scalars = [cell.value for cell, _, _, _ in cells]
            results = prologue(*scalars, *[given[n] for n in names])
            self.numbers[position] = results[len(cells) :]
            for k, slot in places:
                doubles[slot] = results[k]
            for old, new, (_, kind, before, after) in zip(scalars, results, cells):
                kind[before], kind[after] = old, new

    def _prologue(self, position: int, update: Any) -> tuple:
        """Return the code that computes an update's numbers, the options and scalars it reads, and where the results go."""
        count, slot = len(update.scalars), self._value
        cells = []
        for (at, k, cell), d in zip((c for c in self._cells if c[0] == position), update.dtypes):
            kind, size = (self.floats, 2) if d.itemsize == 4 else (self.doubles, 1)
            cells.append((cell, kind, size * slot[Cell(at, k, False)], size * slot[Cell(at, k, True)]))
        numbers = [name for name in slot if type(name) is Number and name.update == position]
        return update.prologue, update.names, cells, [(count + n.position, slot[n]) for n in numbers]

    def _fail(self, instruction: int) -> None:
        failure, self.failed = self.failures[instruction], self.origins[instruction]
        assert failure is not None
        failure()

    def address(self, ref: Ref) -> int:
        """Return the address of a place in the present call."""
        if ref.buffer in self.offsets:
            return self.arena.ptr + self.offsets[ref.buffer] + ref.offset
        buffer = self.graph.buffers[ref.buffer]
        if buffer.source == "state":
            return buffer.address + ref.offset
        return self.values[self._value[self._name_of(ref.buffer)]] + ref.offset


class Cell(NamedTuple):
    """Reference to the value of a scalar of an update, before or after it."""

    update: int
    scalar: int
    after: bool


def _signed(word: int) -> int:
    word &= _UNSIGNED
    return word - (1 << 64) if word >> 63 else word
