"""A compiled function: which recording fits a call, and when to record again.

The first call with arguments of a kind runs eagerly (it may fill caches and make the state of optimizers), the second is recorded while
it runs, and the third runs the recording *and* the function, and compares: only a recording that gave the same values is used from then
on. A function that cannot be recorded whole is split (see `splitting`), for a reason that `explain()` and one warning give; one that
cannot be split either stays eager.

Sizes of tensors are no part of a kernel: a second size of the same rank needs no compilation, and no eager call before it is recorded.
One program serves many sizes if its steps are the same for all of them (see `ranges`)."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..core import modes, naming
from ..core.allocator import allocator
from ..core.casts import casts
from ..core.device import cpu
from ..core.generator import default_generator
from ..core.graph import unusual
from ..core.locks import new_lock
from ..core.overrides import only_for_subclasses
from ..core.tensor import Tensor, tensors_in
from ..nn.modules import module as module_room
from .known_function import DEEPEST, Busy, KnownFunction, Unfit, Unsplit, available, counters, splitting
from .record.histories import attached, cut, take_histories
from .record.operator_call import Failed, OtherLayout, Stale, holds_numbers
from .record.preparation import Changes, Prepared
from .record.recorder import NotRecordable, StepRecorder
from .record.recording import Last, Recorded
from .record.results import live_in, replaced, write_back
from .sizes import Waiting
from .state.arguments import Arguments, marked, settings_key
from .state.guards import Item
from .state.reach import Reach

if TYPE_CHECKING:
    from .ranges import Range, Ranges
    from .record.differentiable import Derivative
    from .state.source import Source

differentiable, marking = naming.late("compiler.record.differentiable"), naming.late("compiler.split.marking")
on_gpu, ranges = naming.late("compiler.gpu.resized"), naming.late("compiler.ranges")

_GLOBAL_HOOKS = [
    getattr(module_room, f"_global_{kind}_hooks") for kind in ("forward", "forward_pre", "backward", "backward_pre")
]
_TRIES = 4  # recordings that a function gets which changes Python's state
_WORTH = 16  # calls after which a recording was worth the trouble: where there are too many, it may go


class _Recording(threading.local):
    """Flag of this thread: True while it records, or runs a function whose inner calls must not be compiled."""

    on = False


recording = _Recording()


@contextlib.contextmanager
def _running_eagerly() -> Iterator[None]:
    """Context manager: compiled functions that are called inside run eagerly, because their operators belong to the caller's recording."""
    before, recording.on = recording.on, True
    try:
        yield
    finally:
        recording.on = before


_one_at_a_time = new_lock()
stance = ["default"]  # what `compiler.set_stance` says


class CompiledFunction(KnownFunction):
    """Compiled `function`: a call replays a recording if one fits, else runs eagerly and records. A part of a split function has its
    `source` and does not warn: `explain` of the whole reports its reasons."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        off = self.given_up or recording.on or not available or stance[0] == "force_eager"
        if off or unusual or any(_GLOBAL_HOOKS):
            return self.function(*args, **kwargs)
        stack = modes.own.stack
        if stack and not all(mode.stays or only_for_subclasses(mode) for mode in stack):
            return self.function(*args, **kwargs)
        if self.split is not None:
            return self._run_by_parts(args, kwargs)
        if self.idling.resting:
            self.idling.resting -= 1
            return self._as_it_is(args, kwargs)
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
            entry = Unfit("an argument cannot be compared")
            self._say(entry.why)
        if entry is None and self._varies(args, kwargs):
            return self._find_parts(given, key, args, kwargs, "a number among its arguments changes again and again")
        if entry is None or type(entry) is Waiting:
            pattern = (given.pattern(self.options.get("dynamic") is False), key[1])
            ranged = self._in_range(pattern, given, key, args, kwargs)
            if ranged is not None:
                return ranged[0]
        if entry is None:  # the first call of this kind
            alike = self._sizes(pattern)
            if len(self.patterns) >= 8 * self.limit:
                return self._run_eagerly(args, kwargs, "its arguments are of a new kind again and again")
            before, first, known = alike.newest(self.found), not self.found, bool(alike.keys)
            entry = alike.add(key, self.found)
            if not known and not self.warm:
                with allocator.sparing() if first and not self.depth else contextlib.nullcontext():
                    return self._run_first_sizes(args, kwargs, key)
            if before is not None:
                self._note_cause(ranges.new_sizes(before[0], key[0]))
        family = None
        if type(entry) is Waiting:
            family = entry.sizes.common(self.found, given)
            if family is not None and entry.is_new():
                return self._as_it_is(args, kwargs)
            if family is None and not entry.ready(self.found):
                return self._run_first_sizes(args, kwargs)
        if type(entry) is Unfit:
            return self._as_it_is(args, kwargs)
        if type(entry) is Unsplit:
            return self._find_parts(given, key, args, kwargs, entry.why, entry.guess)
        cause = ""
        if type(entry) is list:
            for recorded in entry:
                cause = recorded.fits(given)
                if not cause and recorded.calls >= recorded.due:
                    recorded.due, pattern = math.inf, (given.pattern(self.options.get("dynamic") is False), key[1])
                    if self._sizes(pattern).affords():
                        self.found[key] = 1
                        return self._record(given, key, args, kwargs)
                if not cause:
                    if recorded is not entry[0]:  # the next call is probably like this one
                        self.found[key] = [recorded, *(r for r in entry if r is not recorded)]
                    return self._run(recorded, given, args, kwargs, key)
            self._note_cause(cause)
        return self._record(given, key, args, kwargs, family)

    # -- many sizes -------------------------------------------------------------------------------------------------
    def _in_range(self, pattern: tuple, given: Arguments, key: tuple, args: tuple, kwargs: dict) -> tuple | None:
        """Run the call by a program for many sizes, found or made now: return its result in a tuple, or None if there is no such program."""
        alike = self.patterns.get(pattern)
        before = None if alike is None else alike.newest(self.found)
        if alike is None or before is None:
            return None
        programs = alike.ranges
        found = programs.find(given)
        if found is None and not self.observer.noted:  # dry runs keep to those of a call of another size
            with self.observer.following():
                return (self.function(*args, **kwargs),)
        if found is None:
            found = programs.make(ranges.DryCall(self, given, key, args, kwargs), before[0])
            if found is None:
                return None
            self._note_cause(ranges.new_sizes(before[0], key[0]))
        one, t = found
        if one.program.recorded.busy:
            return (self.function(*args, **kwargs),)
        self.last = None
        trusted, new = one.trusts(t), not one.proof.comes_again(t)
        if not trusted and new and one.program.recorded.checked:
            return (self._as_it_is(args, kwargs),)
        recorded = one.program.resize(t)
        if not trusted:
            return (self._compare_program(programs, one, given, args, kwargs),)
        result = self._run(recorded, given, args, kwargs, key)
        if self.last is not None:
            self.last = ranges.LastOfMany(one, given.tensors, key[1], alike.recorded(self.found))
        return (result,)

    def _compare_program(self, programs: Ranges, one: Range, given: Arguments, args: tuple, kwargs: dict) -> Any:
        """Run both the program for many sizes and the function, compare, and return the function's result."""
        recorded = one.program.recorded
        recorded.busy = True
        try:
            with _running_eagerly():
                problem, result = one.compare(given.tensors, lambda: self.function(*args, **kwargs))
        finally:
            recorded.busy = False
        if problem:
            programs.forget(one, problem)
        else:
            one.proof.compared.add(one.program.size)
        return result

    # -- parts ------------------------------------------------------------------------------------------------------
    def _find_parts(
        self, given: Arguments, key: tuple, args: tuple, kwargs: dict, why: str, guess: bool = False
    ) -> Any:
        """Run the function with a mark before each statement, and split it at the statements that cannot be recorded."""
        reach = self._reach_or_why(given)
        if isinstance(reach, str):
            return self._run_unreachable(given, key, args, kwargs, reach)
        found = self._found_source()
        if isinstance(found, str):  # a hook that was not there when it was recorded
            self.found[key] = Unfit(why)
            return self._run_eagerly(args, kwargs, f"{why}; it cannot be split: {found}")
        source, first = found
        marks, before = marking.Marks(source), set(self.observer.ran)
        marked = functools.partial(marks.function, *first)
        counters.set_free(reach)
        watched = self._watched_or_why(
            self._recorder(reach, given), reach, given, key, args, kwargs, marked, marks.begin
        )
        if isinstance(watched, str):
            return self._run_unwatched(watched, key, args, kwargs)
        prepared, _, result = watched
        bad = marks.end()
        self.observer.forget_marked(before)
        if guess and not bad:
            self.found[key] = 1
            return replaced(result, prepared.outside)
        bad |= marking.makers(source, result)
        bad |= marking.users_of(source, self.varying)
        self._split_at(source, first, bad, key, why)
        return replaced(result, prepared.outside)

    def _split_at(self, source: Source, first: tuple, bad: dict[Any, str], key: tuple, why: str) -> bool:
        """Split the function at the statements `bad`, and return whether that gained anything."""
        split = splitting.Split(source, bad, self._part, self.varying) if bad else None
        if split is None or not (split.parts or split.calls_others):
            self.found[key] = Unfit(why)
            self._say(why)
            return False
        self.split, self._first = split, first
        code = source.function.__code__
        for s, reason in bad.items():
            self._say(f"{reason} ({code.co_filename}:{s.lineno})", "is split, its parts are compiled")
        return True

    def _part(self, function: Any, source: Source | None, name: str) -> CompiledFunction:
        part = CompiledFunction(function, self.options, name, source, self.depth + 1)
        found = splitting.find(self.function, self.source)
        if source is not None and not isinstance(found, str):
            part.observer, part.warm = self.observer.besides(found[0].function), True
        return part

    def _run_unreachable(
        self, given: Arguments, key: tuple, args: tuple, kwargs: dict, why: str, changed: Item | None = None
    ) -> Any:
        """Handle a function whose state cannot be known, or changes: split it at the statements that cause this, before anything runs."""
        found = self._found_source()
        if not self.fullgraph and self.depth < DEEPEST and not isinstance(found, str):
            source, first = found
            objects = [*self._objects(given), *((f"argument {type(o).__name__}", o) for o in first)]
            bad = marking.unreachable(source, objects, self.observer, changed) | marking.users_of(source, self.varying)
            if self._split_at(source, first, bad, key, why):
                return self._run_by_parts(args, kwargs)
        return self._run_unwatched(why, key, args, kwargs)

    def _run(self, recorded: Recorded, given: Arguments, args: tuple, kwargs: dict, key: tuple) -> Any:
        if recorded.busy:
            return self.function(*args, **kwargs)
        recorded.busy = True
        derivative = recorded.derivative
        run = self._as_it_is if derivative is None else functools.partial(self._run_with_node, derivative, given)
        try:
            if derivative is not None and derivative.problem:
                self.found[key] = Unfit(derivative.problem)
                self._say(derivative.problem)
                return self._as_it_is(args, kwargs)
            if derivative is not None and derivative.program is None:
                result = run(args, kwargs)  # until a backward pass has recorded the derivative
                self._try_out(recorded, result)
                return result
            if not recorded.checked:
                if marked(given.tensors):
                    ranges.refuse_constants(ranges.DryCall(self, given, key, args, kwargs))
                with _running_eagerly():
                    problem, result = recorded.check(
                        given.tensors, lambda table: run(replaced(args, table), replaced(kwargs, table))
                    )
                graph = getattr(recorded.program, "graph", None)  # a recording that was not captured has no program
                if problem and graph is not None and graph.relaid:
                    self.layouts, self.found[key] = False, 1  # recorded once more, stored as in eager calls
                elif problem and graph is not None and graph.rounded_otherwise:
                    self.exact, self.found[key] = True, 1  # recorded once more, bit by bit
                elif problem and graph is None and not recorded.light:
                    self._mark_unfit(key, problem, "")
                elif problem:
                    self.found[key] = Unfit(problem)
                    self._say(problem)
                return result
            if derivative is not None and not derivative.checked:
                result = run(args, kwargs)
                self._try_out(recorded, result)
                return result
            if not kwargs and recorded.due == math.inf and given.plain(args):
                self.last = Last(recorded, given.tensors, key[1])
            return recorded.run(given.tensors)
        except Failed:  # this call is made eagerly
            self.last = None
        except OtherLayout as problem:
            self.sizes_vary, self.last = True, None
            if self.fullgraph:  # it was one graph until now: no reason to stop a program that runs
                self.found[key] = Unfit(str(problem))
                self._warn(str(problem))
            else:
                self._mark_unfit(key, str(problem), "")
        except Stale as problem:
            self.found[key] = Unfit(str(problem))
            self._say(str(problem))
        finally:
            recorded.busy = False
        return self._as_it_is(args, kwargs)

    @staticmethod
    def _try_out(recorded: Recorded, result: Any) -> None:
        """Record the derivative before a caller asks for it, unless it would send messages that no other rank expects."""
        if recorded.derivative is not None and not getattr(recorded.program, "sends", False):
            recorded.derivative.try_out(tensors_in(result))

    def _run_with_node(self, derivative: Derivative, given: Arguments, args: tuple, kwargs: dict) -> Any:
        """Run the function eagerly with a node in front of its graph that records the derivative."""
        table = cut(given, [])
        with _running_eagerly():
            result = self.function(*replaced(args, table), **replaced(kwargs, table))
        take_histories(given, table, [], result)
        inside = {id(table.get(id(t), t)) for t in given.tensors}
        before = {id(t._storage) for t in given.tensors} | derivative.storages.keys()
        return attached(derivative, given, table, result, live_in(result, inside, before))

    # -- recording --------------------------------------------------------------------------------------------------
    def _record(self, given: Arguments, key: tuple, args: tuple, kwargs: dict, family: Any = None) -> Any:
        """Run the function and record it; `family` holds the state shared with recordings of other sizes."""
        entry = self.found.get(key)
        kinds = [
            [len(e) for k in alike.keys if type(e := self.found.get(k)) is list] for alike in self.patterns.values()
        ]
        mine = next((i for i, alike in enumerate(self.patterns.values()) if key in alike.keys), None)
        resized = type(entry) is not list and mine is not None and bool(kinds[mine])
        if not resized and sum(max(counts, default=0) for counts in kinds) >= self.limit:
            why = f"there are {self.limit} recordings already; the last one was because {(self.causes or ['of new arguments'])[-1]}"
            changed = entry[-1].guard.changed if type(entry) is list else None
            if type(entry) is list and entry[-1].calls >= _WORTH:
                entry.pop()  # the one that was not used for longest: it was worth its while
            elif changed is None:
                return self._run_unwatched(why, key, args, kwargs)
            else:
                return self._run_unreachable(given, key, args, kwargs, why, changed)
        started = time.perf_counter()
        reach = self._reach_or_why(given) if family is None else family.reach
        if isinstance(reach, str):
            return self._run_unreachable(given, key, args, kwargs, reach)
        recorder = self._recorder(reach, given) if family is None else on_gpu.observer(family)
        recorder.codes, recorder.graph.exact = self._codes(), self.exact
        asked = self.options.get("options") or {}
        recorder.graph.recomputes = bool(asked.get("recompute"))
        recorder.graph.layouts = asked.get("layouts") if self.layouts else False
        watched = self._watched_or_why(recorder, reach, given, key, args, kwargs, self.function)
        if isinstance(watched, str):
            return self._run_unwatched(watched, key, args, kwargs)
        prepared, table, result = watched
        if not recorder.problems and self._runs_new_code(reach, key):
            return replaced(result, prepared.outside)
        try:
            if recorder.passing:
                raise Changes(recorder.passing)
            recorded = prepared.finish(result)
            if recorded.derivative is not None and holds_numbers(recorder.graph):
                self.keeps_numbers = False
                raise NotRecordable("its derivative depends on a number that is read from a tensor")
        except Changes as problem:  # it may be the last time: state that is made once
            self.tries += 1
            if self.tries >= _TRIES:
                self._mark_unfit(key, str(problem), recorder.place)
            return replaced(result, prepared.outside)
        except Exception as problem:
            if isinstance(problem, NotRecordable):
                self._mark_unfit(key, str(problem), recorder.place)
            else:  # an error of the compiler: the function's own result counts, and a warning reports the error
                self.found[key] = Unfit(f"compiling it failed with {type(problem).__name__}: {problem}")
                self._say(self.found[key].why)
            return replaced(result, prepared.outside)
        recorded.seconds = time.perf_counter() - started
        self.seconds += recorded.seconds
        self.found[key] = [*(entry if type(entry) is list else ()), recorded]
        if type(entry) is Waiting and family is None:
            entry.sizes.made += 1
        if recorded.derivative is None:
            outside, prepared.outside = prepared.outside, {}  # nothing of this call is held longer than by its caller
            return replaced(result, outside)
        return attached(recorded.derivative, given, table, result, prepared.live)

    def _recorder(self, reach: Reach, given: Arguments) -> StepRecorder:
        """Return the recorder of a call: an observer for CUDA graphs if a tensor is on a GPU, else a recorder of native calls."""
        if any(t.device is not cpu for t in [*given.tensors, *(t for _, t in reach.tensors.values())]):
            return on_gpu.observer()
        recorder = StepRecorder()
        recorder.restarts, recorder.keeps_numbers = not self.sizes_vary, self.keeps_numbers
        return recorder

    def _runs_new_code(self, reach: Reach, key: tuple) -> bool:
        """Return whether a recorded call ran code whose state is not guarded. That code is followed in the next call, for a few tries."""
        new = reach.unforeseen()
        if not new:
            self.observer.expected.clear()
            return False
        self.unforeseen += 1
        if self.unforeseen >= _TRIES:
            self._mark_unfit(key, f"it runs new code again and again: {new[0].co_name} ({new[0].co_filename})", "")
        return True

    def _watched_or_why(self, *given: Any) -> tuple[Prepared, dict[int, Tensor], Any] | str:
        """Return the result of `_run_watched`, or the reason why the function was not run: an empty string while another thread is recording."""
        try:
            return self._run_watched(*given)
        except Busy:
            return ""
        except _NotPrepared as problem:
            return str(problem)

    def _run_watched(
        self, recorder: StepRecorder, reach: Reach, given: Arguments, key: tuple, args: tuple, kwargs: dict, function: Callable,
        begin: Callable | None = None,
    ) -> tuple[Prepared, dict[int, Tensor], Any]:  # fmt: skip
        """Run `function` eagerly while `recorder` writes down its calls."""
        table = cut(given, recorder.problems)
        copies: list[tuple[Any, Any]] = []
        args, kwargs = replaced(args, table, copies), replaced(kwargs, table, copies)
        try:
            loose = "a gradient is another tensor" in self.causes
            prepare = Prepared if recorder.prepare is None else recorder.prepare
            prepared = prepare(reach, recorder, Arguments(args, kwargs) if table else given, loose)
        except NotRecordable as problem:
            raise _NotPrepared(*problem.args) from None
        if begin is not None:
            begin(recorder, prepared)
        reads = any(kept.outdated for kept in casts.cache.values())
        if reads or not self.observer.sees() or not _one_at_a_time.acquire(blocking=False):
            raise Busy
        cache, result = casts.cache, None
        try:
            recording.on, casts.cache, seed = True, {}, default_generator.state_bytes()
            watching = self.observer.watching(recorder.refuse) if recorder.observes else self.observer.dry()
            with allocator.sparing(), recorder.recording(), watching:
                result = function(*args, **kwargs)
        finally:
            prepared.casts, recording.on, casts.cache = list(casts.cache.values()), False, cache
            for kept in () if recorder.skips else prepared.casts:
                cache.setdefault((id(kept.leaf), kept.copy.dtype), kept)
            _one_at_a_time.release()
            originals = {id(alias): t for alias, t in zip(prepared.given.tensors, given.tensors)}
            write_back(copies, originals)
            prepared.outside = {**originals, **{id(copy): original for original, copy in copies}}
            prepared.copies = copies  # so that their numbers stay theirs
            take_histories(given, table, recorder.problems, result)
        if settings_key() != key[1]:
            recorder.problems.append("it changes settings")
        # what other threads draw meanwhile is not the function's
        mine = default_generator.user == threading.get_ident() and default_generator not in recorder.graph.draws
        if mine and default_generator.state_bytes() != seed:
            recorder.problems.append("it changes the state of the random number generator")
        return prepared, table, result


class _NotPrepared(NotRecordable):
    """Raised for arguments that cannot be recorded, where no statement of the function is the cause."""


def record_once(function: Callable, args: tuple, state: list[Tensor]) -> Recorded:
    """Record one call without guards, for programs that leave Python, where nothing can change. `state` lists the tensors that the
    function may read besides its arguments. Raises NotRecordable with every reason why it cannot be recorded."""
    reach, recorder = Reach(), StepRecorder()
    reach.tensors = {id(t): ("state", t) for t in state}
    recorder.graph.portable = True
    prepared = Prepared(reach, recorder, Arguments(args, {}))
    with _one_at_a_time:
        recording.on, cache, casts.cache = True, casts.cache, {}
        try:
            with recorder.recording():
                result = function(*args)
        finally:
            recording.on, casts.cache = False, cache
    if recorder.problems:
        raise NotRecordable("; ".join(dict.fromkeys(recorder.problems)))
    return prepared.finish(result)
