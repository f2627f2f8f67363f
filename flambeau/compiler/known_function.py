"""A function to be compiled, and what is known of it from its calls."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..backends.cpu import jit, native_call
from ..core import naming
from ..core.compile_options import Unsupported
from ..core.user_frames import user_frame
from ..nn.modules.module import Module
from .record.recording import Last, Recorded
from .sizes import FREE, UNUSED, Idling, Sizes
from .state.arguments import Arguments, marked
from .state.observer import Observer
from .state.reach import Reach, Unreachable

if TYPE_CHECKING:
    from .split.splitting import Split
    from .state.source import Source

counters, splitting = naming.late("compiler.state.counters"), naming.late("compiler.split.splitting")
_LIMIT = 8  # recordings for different arguments and states
_CAUSES = 64  # that are remembered
DEEPEST = 8  # parts of parts
_VALUES = 4  # values of a number among the arguments, after which the function is split at statements that read it
available = jit.available() and native_call.supported()


class Busy(Exception):
    """Raised when another thread is recording, or this call reads copies of parameters, made by autocast, that are outdated."""


class Unfit:
    """Arguments for which the function runs eagerly, and the reason."""

    def __init__(self, why: str):
        self.why = why


class Unsplit:
    """Arguments for which the function cannot be recorded: the next call finds the statements that are the cause. After the first call
    this is a guess, since an import, for example, happens only once."""

    def __init__(self, why: str, guess: bool = False):
        self.why, self.guess = why, guess


class KnownFunction:
    """A function and what is known from its calls: which recordings fit which arguments, which sizes and numbers vary, why it cannot be
    recorded, and the parts that it is split into."""

    def __init__(
        self, function: Callable, options: dict[str, Any], name: str = "", source: Source | None = None, depth: int = 0
    ):
        self.function, self.options = function, options
        self.source, self.depth = source, depth
        self.observer = Observer()  # what its calls have run
        self.warm = False  # whether what it does has been done before: by the function that it is a part of
        self.unforeseen = 0  # recordings that ran code which no call before had run
        self.name = name or getattr(function, "__qualname__", type(function).__name__)
        self.fullgraph = bool(options.get("fullgraph"))
        self.limit = options.get("recompile_limit") or _LIMIT
        self.found: dict[tuple, Any] = {}
        self.patterns: dict[tuple, Sizes] = {}  # keys that differ only in sizes
        self.idling = Idling()
        self.split: Split | None = None
        self._first: tuple = ()  # leading arguments of the split function
        self.causes: list[str] = []  # why there was another recording
        # why calls run eagerly
        self.reasons: list[str] = [] if available else ["kernels cannot be compiled here"]
        self.tries = 0
        # whether its code asks for gradients of intermediate values, or registers hooks on them
        self.differentiates = False
        self.values: dict[Any, set] = {}  # of numbers among the arguments, by their position or name
        self.varying: set[str] = set()  # parameters that are numbers and have had many values
        # whether numbers that a derivative holds may be compared: not after one has differed in a later call
        self.keeps_numbers = True
        self.sizes_vary = False  # whether the layout of an operator's results changed with a number that it reads
        self.exact = False  # whether passes must keep every bit
        self.layouts = True  # whether feature maps may have another layout than in eager calls
        self.given_up = "the backend says so" if options.get("run_as_it_is") else ""
        self.seconds = 0.0
        self.last: Last | None = None  # the recording that was run last, if its arguments were plain

    def _varies(self, args: tuple, kwargs: dict) -> bool:
        """Return whether numbers among the arguments vary so much that the function is better split at the statements that read them."""
        plain = {k: v for k, v in (*enumerate(args), *kwargs.items()) if type(v) in (int, float)}
        if not plain or self.fullgraph or self.depth >= DEEPEST or self.varying:
            return False
        for k, v in plain.items():
            self.values.setdefault(k, set()).add(v)
        found = (
            splitting.find(self.function, self.source) if any(len(v) >= _VALUES for v in self.values.values()) else ""
        )
        if isinstance(found, str):
            return False
        a = found[0].tree.args
        names = [p.arg for p in (*a.posonlyargs, *a.args)][len(found[1]) :]
        keywords = {p.arg for p in (*a.args, *a.kwonlyargs)}
        for k, v in self.values.items():
            if len(v) >= _VALUES and type(k) is int:
                self.varying.add(names[k] if k < len(names) else a.vararg.arg)
            elif len(v) >= _VALUES:
                self.varying.add(k if k in keywords else a.kwarg.arg)
        return True

    def _sizes(self, pattern: tuple) -> Sizes:
        """Return the record of recordings and calls for one kind of arguments, whatever their sizes."""
        return self.patterns.setdefault(pattern, Sizes(UNUSED if self.idling.rests else FREE))

    def _note_cause(self, why: str) -> None:
        self.causes.append(why)
        del self.causes[:-_CAUSES]

    def _run_first_sizes(self, args: tuple, kwargs: dict, first: tuple | None = None) -> Any:
        """Run eagerly because these sizes have not occurred before; if sizes never recur, drop the recordings. The `first` call of a
        kind, with this key, is observed."""
        if self.idling.one_more(sum(r.calls for r in self.recordings())):
            self.found = {k: e for k, e in self.found.items() if type(e) is Unfit}
            self.patterns.clear()
            self.last = None
            self._warn(
                "its arguments have other sizes in nearly every call, so that recordings of single sizes are not used"
            )
        return self._as_it_is(args, kwargs) if first is None else self._run_observed(first, args, kwargs)

    def note(self, kinds: list[tuple[tuple, tuple]], observer: Observer) -> None:
        """Record first calls: their keys, their patterns, and their observers."""
        self.observer = observer
        for key, pattern in kinds:
            try:
                self._sizes(pattern).add(key, self.found)
                self._expect_parts(key)
            except TypeError:  # an argument that cannot be hashed
                pass

    def _run_observed(self, key: tuple, args: tuple, kwargs: dict) -> Any:
        """Run the function eagerly, and observe the code that runs."""
        with self.observer.watching(noting=marked(Arguments(args, kwargs).tensors)):
            result = self.function(*args, **kwargs)
        self._expect_parts(key)
        return result

    def _expect_parts(self, key: tuple) -> None:
        """After a first call that cannot be recorded, let the next one find out whether that is always so, and where to split."""
        if (
            self.observer.refused
            and not self.fullgraph
            and self.depth < DEEPEST
            and type(self._found_source()) is tuple
        ):
            self.found[key] = Unsplit(self.observer.refused[0], guess=True)

    def recordings(self) -> list[Recorded]:
        """Return the recordings of this function, for one size and for many, without those of its parts."""
        ranged = [one.program.recorded for alike in self.patterns.values() for one in alike.ranged()]
        return [*(r for entry in self.found.values() if type(entry) is list for r in entry), *ranged]

    def parts(self) -> list[KnownFunction]:
        """Return the compiled functions into which this one is split."""
        return [] if self.split is None else [*self.split.parts, *(inner for _, inner in self.split.inner.values())]

    def _as_it_is(self, args: tuple, kwargs: dict) -> Any:
        return self.function(*args, **kwargs)

    def _run_by_parts(self, args: tuple, kwargs: dict) -> Any:
        assert self.split is not None
        if self._first and isinstance(self._first[0], Module) and not splitting.is_plain(self._first[0]):
            return self.function(*args, **kwargs)
        return self.split.function(*self._first, *args, **kwargs)

    def _run_unwatched(self, why: str, key: tuple, args: tuple, kwargs: dict) -> Any:
        """Run the function eagerly after it could not be recorded: for a lasting reason `why`, or while another thread records."""
        if why:
            self.found[key] = Unfit(why)
            self._say(why)
        return self.function(*args, **kwargs)

    def _run_eagerly(self, args: tuple, kwargs: dict, why: str) -> Any:
        self._say(why)
        return self.function(*args, **kwargs)

    def _say(self, why: str, what: str = "is not compiled, it runs as it is") -> None:
        if self.fullgraph and why not in self.reasons:
            self.reasons.append(why)
            raise Unsupported(f"compile(fullgraph=True): {self.name} cannot be one graph: {why}")
        self._warn(why, what)

    def _warn(self, why: str, what: str = "is not compiled, it runs as it is") -> None:
        """Keep a reason for `explain`, and warn of the first one."""
        if why not in self.reasons:
            self.reasons.append(why)
            if len(self.reasons) == 1 and not self.depth:
                file, _, line = user_frame().rpartition(":")
                warnings.warn_explicit(f"{self.name} {what}: {why}", UserWarning, file, int(line))

    def _mark_unfit(self, key: tuple, why: str, place: str) -> None:
        """Note that the function cannot be recorded for arguments of this kind: the next call splits it, if it can be split."""
        unsplit = "" if self.fullgraph or self.depth >= DEEPEST else self._found_source()
        if isinstance(unsplit, str):
            self.found[key] = Unfit(why)
            where = f" ({place})" if place else ""
            self._say(f"{why}{where}" + (f"; it cannot be split: {unsplit}" if unsplit else ""))
        else:
            self.found[key] = Unsplit(why)

    def _reach(self, given: Arguments) -> Reach:
        roots = [(self.name, self.function), *self._objects(given)]
        reach = Reach(self.observer)
        try:
            reach.explore(roots)
        finally:
            self.differentiates = self.differentiates or reach.differentiates()
        if self.tries or self.causes:  # something changes: it may be a number that is only counted
            counters.set_free(reach)
        return reach

    def _reach_or_why(self, given: Arguments) -> Reach | str:
        """Return the state that the function depends on, or why it cannot be known; user code never runs while the exception is handled."""
        try:
            return self._reach(given)
        except Unreachable as problem:
            return str(problem)

    def _codes(self) -> frozenset:
        code = getattr(getattr(self.function, "__func__", self.function), "__code__", None)
        return frozenset(() if code is None else (code,))

    def _found_source(self) -> tuple[Source, tuple] | str:
        """Return the source of the function and its leading arguments, or why it cannot be split."""
        if self.differentiates:  # all results of a part have one node as history: none is part of another's history
            return "it uses gradients of intermediate values"
        if self.observer.looks_at_frames:
            return "it inspects the frames of its callers"
        return splitting.find(self.function, self.source)

    @staticmethod
    def _objects(given: Arguments) -> list[tuple[str, Any]]:
        return [(f"argument {type(o).__name__}", o) for o in given.objects]
