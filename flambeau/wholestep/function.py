"""A compiled function: which recording fits a call, and when to record again.

The first call with arguments of a kind runs as it is (it may fill caches and make the state of optimizers), the second is recorded
while it runs, and the third runs the recording *and* the function, and compares: only a recording that gave the same values is used
from then on. What cannot be recorded keeps running as it is, for a reason that `explain()` tells and one warning says."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from ..backends.cpu import heavy, jit, native_call, threads
from ..core import modes, settings
from ..core.allocator import allocator
from ..core.casts import casts
from ..core.device import cpu, default_device
from ..core.generator import default_generator
from ..core.graph import grad_mode, unusual
from ..core.locks import new_lock
from ..core.promotion import get_default_dtype
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor
from ..nn.modules import module as module_room
from ..nn.parameter import Parameter
from ..optim.elementwise import ElementwiseOptimizer
from . import passes
from .comparing import close, equal
from .differentiable import Derivative, FunctionNode
from .guards import (
    ATOMS,
    GRADIENTS_ARE_KNOWN,
    AutogradItem,
    DictItem,
    GroupItem,
    Guard,
    TensorItem,
    Words,
    gradient_rows,
    layout_of,
    observe,
)
from .program import Program, Stale
from .reach import Reach, Unreachable
from .recorder import NotRecordable, Recorder
from .results import Header, Results, leaves_of, replaced, saved_storages, spent

_GLOBAL_HOOKS = [
    getattr(module_room, f"_global_{kind}_hooks") for kind in ("forward", "forward_pre", "backward", "backward_pre")
]
_TRIES = 4  # recordings that a function gets which changes Python's state
_TIMED = 0.2  # seconds: programs that take longer are not run once more to know how long each native call takes
_LARGE_ARENA = 1 << 26
_LIMIT = 8  # recordings for different arguments and states


class _Recording(threading.local):
    """Whether this thread records, or runs a function whose calls should not be compiled."""

    on = False


recording = _Recording()
available = jit.available() and native_call.supported()
_one_at_a_time = new_lock()
stance = ["default"]  # what `compiler.set_stance` says
generation = [0]  # counts resets: recordings of an earlier one are not used


class Arguments:
    """The tensors among the arguments of a call, and a key of everything else about them."""

    __slots__ = ("tensors", "key", "objects")

    def __init__(self, args: tuple, kwargs: dict):
        self.tensors: list[Tensor] = []
        self.objects: list[Any] = []  # that are neither tensors nor plain values
        parts = [self._describe(a) for a in args]
        if kwargs:
            parts.append(tuple([(name, self._describe(value)) for name, value in kwargs.items()]))
        self.key = (*parts, self._shared())

    def plain(self, args: tuple) -> bool:
        """Whether these are all tensors that `Last` knows how to compare."""
        tensors = self.tensors
        if len(args) != len(tensors) or any(a is not t for a, t in zip(args, tensors)) or self.key[-1]:
            return False
        return all(
            type(t) is Tensor and t._autograd is None and t._base is None and t.device is cpu and not t.is_sparse
            for t in tensors
        )

    def _describe(self, value: Any) -> Any:
        kind = type(value)
        if kind is Tensor or kind is Parameter:
            self.tensors.append(value)
            meta = value._autograd
            if value.is_sparse:
                return "sparse"
            history = None if meta is None else (value.requires_grad, meta.grad_fn is None, layout_of(meta.grad))
            base = value._base is not None and value._base.requires_grad
            return kind, value.shape, value._strides, value.dtype, value.device, history, base
        if kind in ATOMS:
            return kind, value if value == value else repr(value)
        if kind is tuple or kind is list:
            return kind, tuple([self._describe(v) for v in value])
        if kind is dict:
            return kind, tuple([(k, self._describe(v)) for k, v in value.items()])
        self.objects.append(value)
        return "object", id(value)

    def _shared(self) -> Any:
        """Which tensors share memory, and how far from each other they begin."""
        tensors = self.tensors
        if len(tensors) < 2:
            return None
        seen: dict[int, int] = {}
        found: list[Any] = []
        if any(t._storage.owner is not None for t in tensors if not t.is_sparse) and self._overlapping():
            found.append(id(self))  # unlike any other call
        for i, t in enumerate(tensors):
            at = getattr(t._storage, "ptr", 0) or 0
            first = seen.setdefault(at, i)
            if first != i and at:
                found.append(
                    (first, i, t._offset * t.dtype.itemsize - tensors[first]._offset * tensors[first].dtype.itemsize)
                )
        return tuple(found)

    def _overlapping(self) -> bool:
        """Whether the memory of two tensors overlaps, though their storages begin at different places."""
        storages = {t._storage.ptr: t._storage for t in self.tensors if not t.is_sparse}
        spans = sorted((s.ptr, s.ptr + s.size_bytes) for s in storages.values() if s.ptr)
        return any(a[1] > b[0] for a, b in zip(spans, spans[1:]))


def settings_key() -> tuple:
    """The switches that decide what operators do."""
    cast = (casts.dtype, casts.cache_enabled) if casts.active else None
    state = settings._State
    return (
        grad_mode.enabled, grad_mode.inference, cast, get_default_dtype(), default_device(), threads.get_num_threads(),
        heavy._use_onednn, state.deterministic, state.fill_uninitialized_memory, tuple(settings.attention_kernels.values()),
        threading.get_ident(), os.getpid(), generation[0],
    )  # fmt: skip


class Last:
    """A recording whose arguments are tensors without a history or memory in common: a quick look says whether a call is like it."""

    __slots__ = ("recorded", "layouts", "settings", "several")

    def __init__(self, recorded: Recorded, tensors: list[Tensor], settings: tuple):
        self.recorded, self.settings = recorded, settings
        self.layouts = [(t.shape, t._strides, t.dtype) for t in tensors]
        self.several = len(tensors) > 1

    def takes(self, args: tuple) -> bool:
        state = self.recorded.state_addresses
        for t, (shape, strides, d) in zip(args, self.layouts):
            if type(t) is not Tensor or t._autograd is not None or t._base is not None or t.dtype is not d:
                return False
            if t.shape != shape or t._strides != strides or t.device is not cpu:
                return False
            storage = t._storage
            if storage.ptr in state or (
                storage.owner is not None and (self.several or self.recorded._in_state(storage))
            ):
                return False
        if self.several and len({t._storage.ptr for t in args}) != len(args):
            return False
        return settings_key() == self.settings and not self.recorded.guard.difference()


class Unfit:
    """Arguments for which the function runs as it is, and why."""

    def __init__(self, why: str):
        self.why = why


class GradSlot:
    """A leaf whose gradient the function sets: a tensor of the state, or an argument."""

    def __init__(self, holder: Any, header: Header | None):
        self.holder, self.header = holder, header
        self.tensor: Tensor | None = None
        self.counts = (0, 0)


class Recorded:
    """One recording that can be run."""

    def __init__(self, program: Program, guard: Guard, results: Results, make: Callable, grads: list[GradSlot]):
        self.program, self.guard, self.make, self.grads = program, guard, make, grads
        self.slots = results.slots
        self.bumps: list[tuple[UntypedStorage, int]] = []  # storages of the state and how often they were changed
        self.argument_bumps: list[tuple[int, int]] = []
        self.options: list[Any] = []
        self.checked = False
        self.calls = 0
        self.state_addresses: frozenset[int] = frozenset()
        self.kept: list[Any] = []  # the storages of gradients that were made last, by slot
        self.others: list[int] = []
        self.exclusive: Any = None
        self.state_ranges: list[tuple[int, int]] = []
        self.seconds = 0.0
        self.times: list[tuple[str, float]] = []  # of native calls, when it was compared
        self.trail: list[tuple[str, str]] = []
        self.busy = False  # whether it runs, further out: a recording belongs to one thread
        self.derivative: Derivative | None = None
        self.saves: list[Any] = []  # slots of what the derivative reads, or the storage itself where it existed before

    def fits(self, given: Arguments) -> str:
        """Why the recording cannot be used for this call, or nothing."""
        for t in given.tensors:
            storage = t._storage
            if storage.ptr in self.state_addresses or (storage.owner is not None and self._in_state(storage)):
                return "an argument shares memory with a parameter or a buffer"
        return self.guard.difference()

    def _in_state(self, storage: UntypedStorage) -> bool:
        """Whether memory that belongs to something else overlaps that of the state."""
        end = storage.ptr + storage.size_bytes
        return any(start < end and storage.ptr < stop for start, stop in self.state_ranges)

    # -- running ----------------------------------------------------------------------------------------------------
    def run(self, tensors: Any) -> Any:
        made, reused = self._storages()
        self.program.run(tensors, made, self._options())
        self._leave(tensors, made, reused)
        self.calls += 1
        return self.make(tensors, made, None) if self.derivative is None else self._with_history(tensors, made)

    def _with_history(self, tensors: list[Tensor], made: list[UntypedStorage]) -> Any:
        """The results, with a node that knows their derivative."""
        assert self.derivative is not None
        saved = [made[s] if type(s) is int else s for s in self.saves]
        return self.make(tensors, made, FunctionNode(self.derivative, tensors, saved))

    def _options(self) -> list[dict[str, Any]]:
        return [o() for o in self.options]

    def _storages(self) -> tuple[list[UntypedStorage], bool]:
        """Memory for the results. Gradients that nobody but their leaf holds are written where they are."""
        if self.kept and self.exclusive.unchanged():
            made = self.kept.copy()
            for i in self.others:
                made[i] = UntypedStorage(self.slots[i].size)
            return made, True
        grads = self.grads
        made = [None] * len(self.slots)
        reused = True
        for slot in grads:
            header = slot.header
            if header is None:
                continue
            held = slot.tensor
            if (
                held is not None
                and type(slot.holder) is not int
                and slot.holder.grad is held
                and (sys.getrefcount(held), sys.getrefcount(held._storage)) == slot.counts
                and held._autograd is None
            ):
                made[header.slot] = held._storage
            else:
                slot.tensor, reused = None, False
        for i, one in enumerate(self.slots):
            if made[i] is None:
                made[i] = UntypedStorage(one.size)
        return made, reused

    def _leave(self, tensors: list[Tensor], made: list[UntypedStorage], reused: bool) -> None:
        """What eager would have left behind besides values in memory."""
        for storage, count in self.bumps:
            storage.version += count
        for i, count in self.argument_bumps:
            tensors[i]._storage.version += count
        if not reused or any(s.header is None for s in self.grads):
            for slot in self.grads:
                if type(slot.holder) is int:
                    grad = None if slot.header is None else slot.header.make(made)
                    tensors[slot.holder]._ensure_autograd().grad = grad
                elif slot.header is None:
                    slot.holder.grad = None
                elif slot.tensor is None:
                    slot.tensor = slot.holder.grad = slot.header.make(made)
                    held = slot.tensor
                    slot.counts = sys.getrefcount(held), sys.getrefcount(held._storage) - 1
                    del held
            self._remember(made)

    def _remember(self, made: list[UntypedStorage]) -> None:
        """From now on one look at the words of the gradients says whether they can be written where they are."""
        slots = [s for s in self.grads if s.header is not None]
        self.kept = []
        if not GRADIENTS_ARE_KNOWN or len(slots) != len(self.grads) or any(type(s.holder) is int for s in slots):
            return
        if len({s.header.slot for s in slots if s.header}) != len(slots):
            return  # two gradients in one storage
        rows: list[tuple[int, int]] = []
        for s in slots:
            rows += gradient_rows(s.tensor, s.holder._autograd)
        mine = {s.header.slot for s in slots if s.header}
        self.others = [i for i in range(len(made)) if i not in mine]
        self.kept = [storage if i in mine else None for i, storage in enumerate(made)]
        self.exclusive = Words(rows)

    # -- the first run ----------------------------------------------------------------------------------------------
    def check(self, tensors: list[Tensor], run: Callable[[], Any]) -> tuple[str, Any]:
        """Run the recording, undo it, run the function, and compare: why they differ (or nothing), and the function's result."""
        graph = self.program.graph
        written = sorted({r.buffer for s in graph.steps for r in _written(s)} | _cells(graph))
        kept = []
        for index in written:
            buffer = graph.buffers[index]
            if buffer.source == "state" or index in self.program.arguments:
                address = buffer.address
                if index in self.program.arguments:
                    i, shift = self.program.arguments[index]
                    address = tensors[i].data_ptr() - shift
                kept.append((address, ctypes.string_at(address, buffer.size)))
        marks = [(g, g.state_bytes()) for g in dict.fromkeys([default_generator, *graph.draws])]
        made = [UntypedStorage(slot.size) for slot in self.slots]
        self.program.poison(made)
        problem = ""
        started = time.perf_counter()
        try:
            self.program.run(tensors, made, self._options())
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        after = [ctypes.string_at(address, len(old)) for address, old in kept]
        contents = [ctypes.string_at(s.ptr, s.size_bytes) if s.ptr else b"" for s in made]
        if not problem and self.program.only is not None and time.perf_counter() - started < _TIMED:
            self.times = self.program.timed()
        for storage, content in zip(made, contents):
            ctypes.memmove(storage.ptr, content, len(content))
        for address, old in kept:
            ctypes.memmove(address, old, len(old))
        for g, mark in marks:
            g.set_state_bytes(mark)
        result = run()
        if not problem:
            problem = self._compare(tensors, made, result, [(a, new) for (a, _), new in zip(kept, after)])
        self.checked = not problem
        if self.checked and self.program.arena_size > _LARGE_ARENA:
            allocator.empty_cache()  # blocks that the arena stands for now
        return problem, result

    def _compare(
        self, tensors: list[Tensor], made: list[UntypedStorage], result: Any, kept: list[tuple[int, bytes]]
    ) -> str:
        for address, new in kept:
            if ctypes.string_at(address, len(new)) != new and not close(address, new):
                return f"a state of {len(new)} bytes came out differently"
        ours, theirs = tensors_in(self.make(tensors, made, None)), tensors_in(result)
        for a, b in zip(ours, theirs):
            if not equal(a, b):
                return f"a result of shape {list(b.shape)} came out differently"
        for slot in self.grads:
            held = tensors[slot.holder].grad if type(slot.holder) is int else slot.holder.grad
            if slot.header is not None and not equal(slot.header.make(made), held):
                return f"a gradient of shape {list(slot.header.shape)} came out differently"
        return ""


def _written(step: Any) -> list[Any]:
    return step.writes() if hasattr(step, "writes") else [r for r in step.refs() if r.buffer >= 0]


def _cells(graph: Any) -> set[int]:
    return {r.buffer for u in graph.updates for refs in u.scalars for r in refs}


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (list, tuple)) else []


class CompiledFunction:
    """Calls `function`, by recordings where they fit."""

    def __init__(self, function: Callable, options: dict[str, Any], name: str = ""):
        self.function, self.options = function, options
        self.name = name or getattr(function, "__qualname__", type(function).__name__)
        self.fullgraph = bool(options.get("fullgraph"))
        self.limit = options.get("recompile_limit") or _LIMIT
        self.found: dict[tuple, Any] = {}
        self.causes: list[str] = []  # why there was another recording
        self.reasons: list[str] = []  # why calls run as they are
        self.tries = 0
        self.given_up = "the backend says so" if options.get("run_as_it_is") else ""
        self.seconds = 0.0
        self.last: Last | None = None  # the recording that was run last, if its arguments were plain

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (
            self.given_up
            or recording.on
            or not available
            or unusual
            or any(_GLOBAL_HOOKS)
            or stance[0] == "force_eager"
        ):
            return self.function(*args, **kwargs)
        stack = modes.own.stack
        if stack and (len(stack) > 1 or not stack[0].stays):
            return self.function(*args, **kwargs)
        last = self.last
        like_last = last is not None and not kwargs and len(args) == len(last.layouts) and last.takes(args)
        if last is not None and like_last and not last.recorded.busy:
            last.recorded.busy = True
            try:
                return last.recorded.run(args)
            except Stale:
                self.last = None
            finally:
                last.recorded.busy = False
        try:
            given = Arguments(args, kwargs)
            key = (given.key, settings_key())
            entry = self.found.get(key)
        except TypeError:  # an argument that cannot be hashed
            return self._eager(args, kwargs, "an argument cannot be compared")
        if entry is None:  # the first call of this kind
            if len(self.found) >= 8 * self.limit:
                return self._eager(args, kwargs, "its arguments are of a new kind again and again")
            self.found[key] = 1
            return self._as_it_is(args, kwargs)
        if type(entry) is Unfit:
            return self._as_it_is(args, kwargs)
        cause = ""
        if type(entry) is list:
            for recorded in entry:
                cause = recorded.fits(given)
                if not cause:
                    if recorded is not entry[0]:  # the next call is probably like this one
                        self.found[key] = [recorded, *(r for r in entry if r is not recorded)]
                    return self._run(recorded, given, args, kwargs, key)
            self.causes.append(cause)
        return self._record(given, key, args, kwargs)

    def _as_it_is(self, args: tuple, kwargs: dict) -> Any:
        return self.function(*args, **kwargs)

    def _eager(self, args: tuple, kwargs: dict, why: str) -> Any:
        self._say(why)
        return self.function(*args, **kwargs)

    def _say(self, why: str) -> None:
        if why not in self.reasons:
            self.reasons.append(why)
            if self.fullgraph:
                raise RuntimeError(f"compile(fullgraph=True): {self.name} cannot be one graph: {why}")
            if len(self.reasons) == 1:
                warnings.warn(f"{self.name} is not compiled, it runs as it is: {why}", UserWarning, stacklevel=4)

    def _run(self, recorded: Recorded, given: Arguments, args: tuple, kwargs: dict, key: tuple) -> Any:
        if recorded.busy:
            return self.function(*args, **kwargs)
        recorded.busy = True
        derivative = recorded.derivative
        run = self._as_it_is if derivative is None else functools.partial(self._differentiably, derivative, given)
        try:
            if derivative is not None and derivative.problem:
                self.found[key] = Unfit(derivative.problem)
                self._say(derivative.problem)
                return self._as_it_is(args, kwargs)
            if derivative is not None and derivative.program is None:
                return run(args, kwargs)  # until a backward pass has shown what the derivative is
            if not recorded.checked:
                problem, result = recorded.check(given.tensors, lambda: run(args, kwargs))
                if problem:
                    self.found[key] = Unfit(problem)
                    self._say(problem)
                return result
            if derivative is not None and not derivative.checked:
                return run(args, kwargs)
            if not kwargs and given.plain(args):
                self.last = Last(recorded, given.tensors, key[1])
            return recorded.run(given.tensors)
        except Stale as problem:
            self.found[key] = Unfit(str(problem))
        finally:
            recorded.busy = False
        return self._eager(args, kwargs, self.found[key].why)

    def _differentiably(self, derivative: Derivative, given: Arguments, args: tuple, kwargs: dict) -> Any:
        """Run the function as it is, with a node in front of its graph that learns the derivative."""
        table = cut(given)
        result = self.function(*replaced(args, table), **replaced(kwargs, table))
        live = [t for t in tensors_in(result) if t.grad_fn is not None and not spent(t.grad_fn)]
        return attached(derivative, given, table, result, live)

    # -- recording --------------------------------------------------------------------------------------------------
    def _record(self, given: Arguments, key: tuple, args: tuple, kwargs: dict) -> Any:
        entry = self.found.get(key)
        if sum(len(e) for e in self.found.values() if type(e) is list) >= self.limit:
            why = f"there are {self.limit} recordings already; the last one was because {(self.causes or ['of new arguments'])[-1]}"
            if type(entry) is not list:
                self.found[key] = Unfit(why)
            return self._eager(args, kwargs, why)
        started = time.perf_counter()
        try:
            reach = Reach().explore(
                [(self.name, self.function), *((f"argument {type(o).__name__}", o) for o in given.objects)]
            )
        except Unreachable as problem:
            self.found[key] = Unfit(str(problem))
            return self._eager(args, kwargs, str(problem))
        recorder = Recorder()
        code = getattr(getattr(self.function, "__func__", self.function), "__code__", None)
        recorder.codes = frozenset(() if code is None else (code,))
        table = cut(given)
        inside = given if not table else Arguments(replaced(args, table), replaced(kwargs, table))
        try:
            prepared = _Prepared(reach, recorder, inside)
        except NotRecordable as problem:
            self.found[key] = Unfit(str(problem))
            return self._eager(args, kwargs, str(problem))
        if not _one_at_a_time.acquire(blocking=False):
            return self.function(*args, **kwargs)  # another thread is recording
        recording.on, cache, casts.cache = True, casts.cache, {}
        seed = default_generator.state_bytes()
        try:
            with recorder.recording():
                result = self.function(*replaced(args, table), **replaced(kwargs, table))
        finally:
            recording.on, casts.cache = False, cache
            _one_at_a_time.release()
        if settings_key() != key[1]:
            recorder.problems.append("it changes settings")
        if default_generator not in recorder.graph.draws and default_generator.state_bytes() != seed:
            recorder.problems.append("it changes the state of the random number generator")
        if table:
            prepared.pass_on(given.tensors)
        try:
            recorded = prepared.finish(result)
        except _Changes as problem:  # it may be the last time: state that is made once
            self.tries += 1
            if self.tries >= _TRIES:
                self.found[key] = Unfit(str(problem))
                self._say(str(problem))
            return uncut(given, table, result)
        except NotRecordable as problem:
            self.found[key] = Unfit(str(problem))
            self._say(str(problem))
            return uncut(given, table, result)
        recorded.seconds = time.perf_counter() - started
        self.seconds += recorded.seconds
        self.found[key] = [*(entry if type(entry) is list else ()), recorded]
        if recorded.derivative is None:
            return replaced(result, {id(alias): given.tensors[i] for i, alias in enumerate(inside.tensors)})
        return attached(recorded.derivative, given, table, result, prepared.live)


def cut(given: Arguments) -> dict[int, Tensor]:
    """Arguments with a history, and leaves in their place: what happens inside a function ends there."""
    if not grad_mode.enabled:
        return {}
    table: dict[int, Tensor] = {}
    for t in given.tensors:
        if not t.is_leaf:
            table[id(t)] = t._bare_alias()
            table[id(t)].requires_grad = True
    return table


def attached(
    derivative: Derivative, given: Arguments, table: dict[int, Tensor], result: Any, live: list[Tensor]
) -> Any:
    """The result of a function that ran as it is, with one node in front of its graph."""
    tensors = given.tensors
    node = FunctionNode(derivative, tensors, saved_storages(live), live)
    inside = [table.get(id(t), t) for t in tensors]
    node.inner = [inside[leaf] if type(leaf) is int else leaf for leaf in derivative.leaves]
    wrapped = {id(t): node.wrap(t, k) for k, t in enumerate(live)}
    wrapped.update({id(alias): t for alias, t in zip(inside, tensors) if alias is not t})
    return replaced(result, wrapped)


def uncut(given: Arguments, table: dict[int, Tensor], result: Any) -> Any:
    """The result of a function that ran with leaves in place of its arguments, connected with their history again."""
    if not table:
        return result
    live = [t for t in tensors_in(result) if t.grad_fn is not None]
    inside = [table.get(id(t), t) for t in given.tensors]
    leaves = leaves_of(live)
    positions = {id(t): i for i, t in enumerate(inside)}
    derivative = Derivative([positions.get(id(leaf), leaf) for leaf in leaves], live, {}, 0)
    derivative.problem = "it is not recorded"
    return attached(derivative, given, table, result, live)


class _Changes(NotRecordable):
    """The function changes Python's state."""


class _Prepared:
    """Everything as it is before the recorded call, to be compared with what it is afterwards."""

    def __init__(self, reach: Reach, recorder: Recorder, given: Arguments):
        self.reach, self.recorder, self.given = reach, recorder, given
        self.state = [t for _, t in reach.tensors.values()]
        self.observed = observe(reach.items)
        self.grads_before = {id(t): t.grad if t.is_leaf else None for t in [*self.state, *given.tensors]}
        self.storages: dict[int, UntypedStorage] = {}
        for t in self.state:
            self._know(t)
            if t.is_leaf and t.grad is not None and not t.grad.is_sparse:
                self._know(t.grad)
        own = {s.ptr for s in self.storages.values()}
        self.arguments: dict[int, tuple[int, int]] = {}
        for i, t in enumerate(given.tensors):
            self._argument(i, t, own)
        self.versions = [(s, s.version) for s in self.storages.values()]
        self.argument_versions = [t._storage.version for t in given.tensors]
        self.headers = [TensorItem(f"argument {i}", t) for i, t in enumerate(given.tensors)]

    def _know(self, t: Tensor) -> None:
        self.storages[id(t._storage)] = t._storage
        self.recorder.know(t._storage, "state")

    def _argument(self, i: int, t: Tensor, own: set[int]) -> None:
        if t.is_sparse or t.device is not cpu:
            raise NotRecordable(f"an argument is on {t.device} with layout {t.layout}")
        if t._storage.ptr in own:
            raise NotRecordable("an argument shares memory with a parameter or a buffer")
        if t._autograd is not None and (t._autograd.hooks or t._autograd.post_hooks):
            raise NotRecordable("an argument has hooks")
        if t.is_leaf and t.grad is not None:
            self._know(t.grad)
        if not t._storage.ptr:
            return
        buffer = self.recorder.know(t._storage, ("argument", i))
        if buffer is not None and buffer.index not in self.arguments:
            self.arguments[buffer.index] = (i, t._offset * t.dtype.itemsize)

    # -- afterwards -------------------------------------------------------------------------------------------------
    def finish(self, result: Any) -> Recorded:
        recorder = self.recorder
        if recorder.problems:
            raise NotRecordable(recorder.problems[0])
        known = {**{id(t): t for t in self.state}, **self.reach.seen}
        results = Results(recorder.memory, self.given.tensors, known)
        for number in recorder.numbers:
            results.add_number(*number)
        grads = self._grads(results)
        self._unchanged()
        make = results.maker(result)
        self.live = results.live
        derivative, saves = self._derivative(results)
        graph = recorder.graph
        self._guard_grads(graph)
        buffers = [s.buffer for s in results.slots]
        self._only_known(graph)
        trail = passes.run(graph, set(buffers))
        program = Program(graph, self.arguments, [b if b >= 0 else -1 for b in buffers])
        options = self._live_options(graph)
        recorded = Recorded(program, Guard(self.observed), results, make, grads)
        recorded.trail = trail
        recorded.derivative, recorded.saves = derivative, saves
        recorded.bumps = [(s, s.version - v) for s, v in self.versions if s.version != v]
        after = [t._storage.version for t in self.given.tensors]
        recorded.argument_bumps = [
            (i, new - old)
            for i, (old, new) in enumerate(zip(self.argument_versions, after))
            if new != old and self._first(i)
        ]
        recorded.state_addresses = frozenset(s.ptr for s in self.storages.values() if s.ptr)
        recorded.state_ranges = [(s.ptr, s.ptr + s.size_bytes) for s in self.storages.values() if s.ptr]
        recorded.options = options
        return recorded

    def _derivative(self, results: Results) -> tuple[Derivative | None, list[Any]]:
        """What stands for the graph behind the results, where there is one, and the memory that it reads."""
        if not results.live:
            return None, []
        positions = {id(t): i for i, t in enumerate(self.given.tensors)}
        state = {id(t) for t in self.state}
        leaves: list[Any] = []
        for leaf in leaves_of(results.live):
            if id(leaf) not in positions and id(leaf) not in state:
                raise NotRecordable("it makes leaves of its own")
            leaves.append(positions.get(id(leaf), leaf))
        saved = saved_storages(results.live)
        saves = [slot if slot is not None else self._standing(s) for slot, s in zip(results.keep(saved), saved)]
        return Derivative(leaves, results.live, dict(self.storages), len(saved)), saves

    def _standing(self, storage: UntypedStorage) -> UntypedStorage:
        """A storage of the state; for that of an argument, which comes with each call, something empty."""
        return storage if id(storage) in self.storages else UntypedStorage(0)

    def pass_on(self, originals: list[Tensor]) -> None:
        """Gradients that arrived at leaves which stand for arguments with a history go on from there."""
        for t, leaf in zip(originals, self.given.tensors):
            if t is not leaf and leaf.grad is not None:
                t.backward(leaf.grad)
                self.recorder.problems.append("it differentiates an argument that has a history")

    def _first(self, i: int) -> bool:
        """Whether no earlier argument has the same storage."""
        tensors = self.given.tensors
        return all(tensors[k]._storage is not tensors[i]._storage for k in range(i))

    def _grads(self, results: Results) -> list[GradSlot]:
        """Which gradients the function has set."""
        found = []
        holders: list[Any] = [*self.state, *range(len(self.given.tensors))]
        for holder in holders:
            t = self.given.tensors[holder] if type(holder) is int else holder
            if not t.is_leaf:
                continue
            before, after = self.grads_before[id(t)], t.grad
            if before is after:
                continue
            if after is None:
                found.append(GradSlot(holder, None))
                continue
            if after.is_sparse or after.requires_grad or type(after) is not Tensor:
                raise NotRecordable("it makes a gradient that is sparse or has a history")
            header = results.header(after)
            if header is None:
                raise NotRecordable("a gradient shares memory with something that existed before")
            found.append(GradSlot(holder, header))
        return found

    def _unchanged(self) -> None:
        """Nothing but gradients may have changed."""
        for item in self.reach.items:
            if isinstance(item, AutogradItem):
                before, now = item.seen, item._state()
                if before[:5] != now[:5]:
                    raise _Changes(f"it changes Python's state: {item.difference()}")
                continue
            problem = item.difference()
            if problem:
                raise _Changes(f"it changes Python's state: {problem}")
        for item in self.headers:
            problem = item.difference()
            if problem:
                raise _Changes(f"it changes an argument: {problem}")

    def _guard_grads(self, graph: Any) -> None:
        """A gradient that the function reads must stay where it is."""
        used = {r.buffer for s in graph.steps for r in s.refs()}
        extra: list[Any] = []
        for t in [*self.state, *self.given.tensors]:
            before = self.grads_before[id(t)]
            if before is None or before.is_sparse or not before._storage.ptr:
                continue
            buffers = [b for b in graph.buffers if b.storage is before._storage]
            if any(b.index in used for b in buffers):
                if any(t is a for a in self.given.tensors):
                    raise NotRecordable("it adds to the gradient of an argument")
                extra += [TensorItem("a gradient", before), _GradItem(t, before)]
        self.observed += observe(extra)

    def _live_options(self, graph: Any) -> list[Callable[[], dict[str, Any]]]:
        """Where the options of updates come from in each call: the optimizer's groups, whose numbers may change. Where the function
        itself looks at groups, or a group is used otherwise, they are what they were."""
        found: list[Callable[[], dict[str, Any]]] = []
        for update in graph.updates:
            item = None if "param_groups" in self.reach.names or self.reach.computed else self._group_item(update)
            found.append(functools.partial(getattr, update if item is None else item, "options"))
        return found

    def _group_item(self, update: Any) -> GroupItem | None:
        for optimizer in self.reach.optimizers:
            for group in optimizer.param_groups:
                if not isinstance(optimizer, ElementwiseOptimizer) or not _is_ours(optimizer):
                    continue
                if not update.parameters <= {id(p) for p in group["params"]}:
                    continue
                options = optimizer._options(group)
                if options != update.options:
                    return None
                for k, (item, rows) in enumerate(self.observed):
                    if isinstance(item, DictItem) and item.held is group:
                        if not isinstance(item, GroupItem):
                            self.observed[k] = (GroupItem(item.what, group, optimizer, options), rows)
                        return self.observed[k][0]  # type: ignore[return-value]
        return None

    def _only_known(self, graph: Any) -> None:
        for step in graph.steps:
            for ref in step.refs():
                if (
                    ref.buffer >= 0
                    and graph.buffers[ref.buffer].source == "new"
                    and graph.buffers[ref.buffer].storage is not None
                ):
                    raise NotRecordable("it uses memory of unknown origin")


def _is_ours(optimizer: Any) -> bool:
    return type(optimizer).__module__.partition(".")[0] == __name__.partition(".")[0]


class _GradItem(TensorItem):
    """A leaf's gradient is a certain tensor."""

    __slots__ = ("leaf",)

    def __init__(self, leaf: Tensor, grad: Tensor):
        super().__init__("a gradient", grad)
        self.leaf = leaf

    def rows(self) -> list[tuple[int, int]] | None:
        return None

    def difference(self) -> str:
        meta = self.leaf._autograd
        return "" if meta is not None and meta.grad is self.held else "a gradient is another tensor"


__all__ = ["CompiledFunction", "available", "recording"]
