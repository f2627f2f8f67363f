"""A compiled function: which recording fits a call, and when to record again.

The first call with arguments of a kind runs as it is (it may fill caches and make the state of optimizers), the second is recorded
while it runs, and the third runs the recording *and* the function, and compares: only a recording that gave the same values is used
from then on. What cannot be recorded keeps running as it is, for a reason that `explain()` tells and one warning says."""

from __future__ import annotations

import functools
import importlib
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from ..backends.cpu import jit, native_call
from ..core import modes
from ..core.casts import casts
from ..core.device import cpu
from ..core.generator import default_generator
from ..core.graph import grad_mode, unusual
from ..core.locks import new_lock
from ..core.overrides import only_for_subclasses
from ..core.tensor import Tensor
from ..nn.modules import module as module_room
from .arguments import Arguments, generation, settings_key
from .differentiable import Derivative, FunctionNode
from .preparing import Changes, Prepared
from .program import Stale
from .reach import Reach, Unreachable
from .recorded import Recorded, tensors_in
from .recorder import NotRecordable, Recorder
from .results import leaves_of, replaced, saved_storages, spent

_GLOBAL_HOOKS = [
    getattr(module_room, f"_global_{kind}_hooks") for kind in ("forward", "forward_pre", "backward", "backward_pre")
]
_TRIES = 4  # recordings that a function gets which changes Python's state
_LIMIT = 8  # recordings for different arguments and states


class _Recording(threading.local):
    """Whether this thread records, or runs a function whose calls should not be compiled."""

    on = False


recording = _Recording()
available = jit.available() and native_call.supported()
_one_at_a_time = new_lock()
stance = ["default"]  # what `compiler.set_stance` says


class Last:
    """A recording whose arguments are tensors without a history or memory in common: a quick look says whether a call is like it."""

    __slots__ = ("recorded", "layouts", "settings", "several")

    def __init__(self, recorded: Recorded, tensors: list[Tensor], settings: tuple):
        self.recorded, self.settings = recorded, settings
        self.layouts = [(t.shape, t._strides, t.dtype, t.device) for t in tensors]
        self.several = len(tensors) > 1

    def takes(self, args: tuple) -> bool:
        state = self.recorded.state_addresses
        for t, (shape, strides, d, where) in zip(args, self.layouts):
            if type(t) is not Tensor or t._autograd is not None or t._base is not None or t.dtype is not d:
                return False
            if t.shape != shape or t._strides != strides or t.device is not where:
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


class CompiledFunction:
    """Calls `function`, by recordings where they fit."""

    def __init__(self, function: Callable, options: dict[str, Any], name: str = ""):
        self.function, self.options = function, options
        self.name = name or getattr(function, "__qualname__", type(function).__name__)
        self.fullgraph = bool(options.get("fullgraph"))
        self.limit = options.get("recompile_limit") or _LIMIT
        self.found: dict[tuple, Any] = {}
        self.causes: list[str] = []  # why there was another recording
        # why calls run as they are
        self.reasons: list[str] = [] if available else ["kernels cannot be compiled here"]
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
        if stack and not all(mode.stays or only_for_subclasses(mode) for mode in stack):
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
                problem, result = recorded.check(
                    given.tensors, lambda table: run(replaced(args, table), replaced(kwargs, table))
                )
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
        room = _room_for(reach, given)
        recorder = Recorder() if room is None else room.Observer()
        code = getattr(getattr(self.function, "__func__", self.function), "__code__", None)
        recorder.codes = frozenset(() if code is None else (code,))
        table = cut(given)
        inside = given if not table else Arguments(replaced(args, table), replaced(kwargs, table))
        try:
            prepared = (Prepared if room is None else room.Prepared)(reach, recorder, inside)
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
        except Changes as problem:  # it may be the last time: state that is made once
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


def _room_for(reach: Reach, given: Arguments) -> Any:
    """What records functions that work on a GPU; None for the CPU."""
    if not any(t.device is not cpu for t in [*given.tensors, *(t for _, t in reach.tensors.values())]):
        return None
    return importlib.import_module(f"{__package__}.on_gpu")


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


__all__ = ["CompiledFunction", "available", "generation", "recording", "stance"]
