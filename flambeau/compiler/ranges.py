"""Programs for a range of sizes.

When arguments of a kind come with a second size, the function is run *dry* at some sizes around it: its Python code runs, kernels do not, but
their calls are recorded. If these recordings differ in nothing but numbers, and each number is a polynomial of the size, one program serves
all sizes between the smallest and the largest of them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.compile_options import ConstraintViolationError
from ..core.device import cpu
from ..core.size import make_size
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor, contiguous_strides, is_contiguous_layout, new_tensor
from .known_function import Busy
from .record.comparison import TensorPrint
from .record.polynomials import Function, fitted
from .record.recorder import NotRecordable, StepRecorder
from .record.recording import Last, Recorded
from .record.resized import Facts, Resized
from .record.results import replaced, same_results
from .record.steps import Call, StepGraph
from .runtime.first_run import extent
from .runtime.program import Program
from .state.arguments import DYNAMIC, WEAK, Arguments
from .state.observer import NewCode
from .state.reach import Reach, Unreachable
from .state.restoring import put_back

if TYPE_CHECKING:
    from .function import CompiledFunction

_FURTHER = 16  # times the size that a range is extended to, where a program makes fewer bytes then than this:
_MOST_BYTES = 1 << 24
_FEWEST = 6  # sizes at which recordings must agree: two more than a polynomial has coefficients
_ATTEMPTS = 5  # that may fail, for arguments of one kind, each with twice the size
_REFUSALS = (RuntimeError, ValueError, IndexError, AssertionError)  # what functions say of sizes that they do not take
_RANGES = 6  # that are kept, for arguments of one kind
_FREE, _EARNED = 4, 16  # ranges that need not be earned, and native calls for each further one


class Line(NamedTuple):
    """Sizes and strides of arguments as linear functions of one size t, that of dimension `dimension` of tensor `tensor`: for each tensor the
    values at t = 0 and what they grow by."""

    tensor: int
    dimension: int
    shapes: tuple[tuple[tuple[int, int], ...], ...]
    strides: tuple[tuple[tuple[int, int], ...] | None, ...]  # None of contiguous tensors

    def at(self, i: int, t: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return shape and strides of tensor `i` at size `t`."""
        shape = tuple([a + b * t for a, b in self.shapes[i]])
        strides = self.strides[i]
        return shape, contiguous_strides(shape) if strides is None else tuple([a + b * t for a, b in strides])


def headers_in(key: Any) -> Iterator[tuple]:
    """Yield shapes and strides of the tensors of a key, in order."""
    if type(key) is not tuple:
        return
    if len(key) == 7 and isinstance(key[0], type) and issubclass(key[0], Tensor):
        yield key[1], key[2]
        return
    for part in key:
        yield from headers_in(part)


def new_sizes(before: Any, now: Any) -> str:
    """Describe the first size in which two keys of arguments differ; the keys differ in nothing else."""
    for i, (a, b) in enumerate(zip(before, now)):
        if a == b or type(a) is not tuple:
            continue
        if len(a) == 7 and isinstance(a[0], type) and issubclass(a[0], Tensor):
            return f"argument {i} has the shape {list(b[1])} instead of {list(a[1])}"
        return new_sizes(a, b)
    return "an argument has another shape"


def line_through(before: Any, now: Any) -> Line | None:
    """Return the line of sizes through those of two keys; None if they do not grow together."""
    first, second = list(headers_in(before)), list(headers_in(now))
    steps = [(abs(b - a), i, d) for i, (one, two) in enumerate(zip(first, second)) for d, (a, b) in enumerate(zip(one[0], two[0])) if a != b]  # fmt: skip
    if not steps:
        return None
    _, tensor, dimension = min(steps)
    start = first[tensor][0][dimension]
    step = second[tensor][0][dimension] - start

    def grown(a: int, b: int) -> tuple[int, int]:
        slope = Fraction(b - a, step)
        if slope.denominator != 1 or slope < 0:
            raise ValueError
        return a - int(slope) * start, int(slope)

    try:
        shapes = tuple(tuple(map(grown, a[0], b[0])) for a, b in zip(first, second))
        strides = tuple(
            None if is_contiguous_layout(*a) and is_contiguous_layout(*b) else tuple(map(grown, a[1], b[1]))
            for a, b in zip(first, second)
        )
    except ValueError:
        return None
    return Line(tensor, dimension, shapes, strides)


class Proof:
    """Sizes seen so far, and those at which a program was compared with the function. A size is compared when it comes a second time; until
    then its call runs eagerly."""

    def __init__(self) -> None:
        self.met: set[int] = set()
        self.compared: set[int] = set()

    def comes_again(self, t: int) -> bool:
        """Return whether a size has been seen before, and note it."""
        known = t in self.met
        self.met.add(t)
        return known


class Range(NamedTuple):
    """A program for the sizes of a line, the facts of the recordings that it was made from, by size, the state that they depend on, and the
    sizes at which it was compared: the function's own code may branch on any size."""

    line: Line
    program: Resized
    facts: dict[int, Facts]
    reach: Reach
    proof: Proof

    def trusts(self, t: int) -> bool:
        """Return whether the program may run for a size without a comparison with the function."""
        return self.program.recorded.checked and t in self.proof.compared

    def compare(self, tensors: list[Tensor], run: Callable[[], Any]) -> tuple[str, Any]:
        """Run the program and the function: return why they differ (or ""), and the function's result."""
        r = self.program.recorded
        graph = r.program.graph
        leaves = (
            r.grads or r.bumps or r.argument_bumps or r.drops_grads or graph.draws or graph.updates or r.program.sends
        )
        if not r.checked or leaves:
            return self.program.settle().check(tensors, lambda _: run())
        result = run()  # where a program only makes results, it may run besides the function
        same = same_results(r.run(tensors), result, lambda a, b: TensorPrint(a).matches(b))
        return "" if same else f"a result for a size of {self.program.size} came out differently", result

    def size(self, tensors: Any) -> int | None:
        """Return the size t of the line at which these tensors are, or None if they are not on the line."""
        line = self.line
        t = tensors[line.tensor].shape[line.dimension]
        for x, sizes, strides in zip(tensors, line.shapes, line.strides):
            if x.shape != tuple([a + b * t for a, b in sizes]) or x._contig is not (strides is None):
                return None
            if strides is not None and x._strides != tuple([a + b * t for a, b in strides]):
                return None
        return t


class LastOfMany(Last):
    """The last program for many sizes that was run, which is resized for calls that differ from the one before only in sizes."""

    __slots__ = ("range", "size", "others")

    def __init__(self, one: Range, tensors: list[Tensor], settings: tuple, recorded: list[tuple]):
        """`recorded` are keys that have recordings of their own."""
        super().__init__(one.program.recorded, tensors, settings)
        self.range, self.size = one, one.program.size
        self.others = {list(headers_in(key))[one.line.tensor][0][one.line.dimension] for key, _ in recorded}

    def takes(self, args: tuple) -> bool:
        line, program = self.range.line, self.range.program
        given = args[line.tensor]
        t = given.shape[line.dimension] if type(given) is Tensor and given.dim() > line.dimension else -1
        if not program.first <= t <= program.last or t in self.others or not self.range.trusts(t):
            return False
        if t != self.size:
            self.size = t
            for i, (_, _, d, where, inference) in enumerate(self.layouts):
                shape, strides = line.at(i, t)
                self.layouts[i] = make_size(shape), strides, d, where, inference
        if not super().takes(args) or program.recorded.busy:
            return False
        program.resize(t)
        return True


class Ranges:
    """Programs for ranges of sizes, for arguments of one kind."""

    def __init__(self) -> None:
        self.known: list[Range] = []
        self.made = 0
        self.why: list[str] = []  # why there is none for some sizes
        self.failed = 0  # the largest size of these

    def find(self, given: Arguments) -> tuple[Range, int] | None:
        """Return the program for arguments of these sizes in the current state, and the size."""
        for one in self.known:
            t = one.size(given.tensors)
            if t is not None and one.program.first <= t <= one.program.last and not one.program.recorded.fits(given):
                return one, t
        return None

    def make(self, call: DryCall, before: Any) -> tuple[Range, int] | None:
        """Make a program for a range that includes the sizes of a call; `before` is a key of other sizes."""
        served = sum(one.program.recorded.calls for one in self.known)
        earned = self.made < _FREE + served // _EARNED
        if len(self.why) >= _ATTEMPTS or not earned or not call.known.observer.sees():
            return None
        given = call.given
        fitting = (one for one in self.known if not one.program.recorded.fits(given))
        old = next((one for one in fitting if one.size(given.tensors) is not None), None)
        line = line_through(before, given.key) if old is None else old.line
        t = 0 if line is None else given.tensors[line.tensor].shape[line.dimension]
        if line is None or t < 2 * self.failed:
            return None
        try:
            why = call.objection()
            if why:
                raise NotRecordable(why)
            made = _fit_around(call, line, t, {}) if old is None else self._extend_range(call, old, t)
        except Busy:  # for now
            return None
        except (NotRecordable, Unreachable) as problem:
            self._note(str(problem), t)
            return None
        if old is not None and set(old.facts) <= set(made.facts):
            self.known.remove(old)
            made.program.recorded.calls = old.program.recorded.calls
            made.proof.met |= old.proof.met
        self.known = [made, *self.known][:_RANGES]
        self.made += 1
        return made, t

    @staticmethod
    def _extend_range(call: DryCall, old: Range, t: int) -> Range:
        """Return a program for a larger range, or one for a separate range around `t`."""
        call.reach = old.reach  # it is as it was: its guard says so
        try:
            return _fit_around(call, old.line, t, old.facts)
        except NotRecordable:
            return _fit_around(call, old.line, t, {})

    def forget(self, one: Range, why: str) -> None:
        """Drop a program whose results differed from the function's."""
        self.known.remove(one)
        self._note(why, one.program.size)

    def _note(self, why: str, t: int) -> None:
        self.why.append(why)
        self.failed = max(self.failed, t)


def _fit_around(call: DryCall, line: Line, t: int, known: dict[int, Facts]) -> Range:
    """Run the function dry around size t, as far as recordings have one form, and make one program of them."""
    recorded, facts = call.at(line, t)
    recordings, found = {t: recorded}, {size: one for size, one in known.items() if one.form == facts.form}
    found[t] = facts
    for size in _sizes(line, t, found, recorded.program.arena_size + sum(slot.size for slot in recorded.slots)):
        with contextlib.suppress(NotRecordable):
            recorded, here = call.at(line, size)
            if here.form == facts.form:
                found[size], recordings[size] = here, recorded
        if size > t and size not in recordings:
            break
    for sizes in _choices(sorted(found), t):
        functions = _fit_numbers(sizes, [found[s].numbers for s in sizes])
        if functions is not None:
            last = sizes[-1]
            recorded, facts = (recordings[last], found[last]) if last in recordings else call.at(line, last)
            program = Resized(recorded, facts, functions, sizes[0], last)
            return Range(line, program, {s: found[s].kept(facts) for s in sizes}, call.reach, Proof())
    raise NotRecordable(f"what it does for a size of {t} and for sizes around it is not the same")


def _choices(sizes: list[int], t: int) -> Iterator[list[int]]:
    """Yield sets of sizes that may share a program, each with t: all, those from t on, then fewer and fewer of the largest."""
    for chosen in (sizes, [s for s in sizes if s >= t], *(sizes[:-k] for k in range(1, len(sizes)))):
        if len(chosen) >= _FEWEST and t in chosen:
            yield chosen


def _fit_numbers(sizes: list[int], numbers: list[list]) -> list[Function] | None:
    """Return each number as a function of the size, or None if one of them is not such a function."""
    columns = [tuple(map(repr, column)) for column in zip(*numbers)]
    found: dict[tuple, Function] = {}
    for k, column in enumerate(columns):
        if column not in found:
            function = fitted(_spread(sizes), _spread([row[k] for row in numbers]))
            if function is None:
                return None
            found[column] = function
    return [found[column] for column in columns]


def _sizes(line: Line, t: int, known: dict[int, Facts], made: int) -> list[int]:
    """Return the sizes to run dry at, in order: some adjacent, to reveal what depends on remainders, and some far away."""
    factor = max(min(_FURTHER, _MOST_BYTES // max(made, 1)), 2)
    far = [2 * t + 1, factor * t + 3, -(-factor * t // 16) * 16 + 16]
    if len(known) == 1:
        lowest = max((-(-(2 - a) // b) for shape in line.shapes for a, b in shape if b), default=2)
        below = [s for s in (max(t // 4, lowest),) if s < t]
        return [*below, t + 1, t + 2, t + 3, 3 * t // 2 + 3, *far]
    return far if t == max(known) else [s for s in (t + 1,) if s not in known] + [max(known)]


def _spread(values: Any) -> list:
    """Reorder values so that the first four are far from each other: the polynomial is fitted to these."""
    count = len(values)
    chosen = list(dict.fromkeys((0, count // 3, 2 * count // 3, count - 1)))
    return [values[i] for i in (*chosen, *(i for i in range(count) if i not in chosen))]


class DryRecorder(StepRecorder):
    """Recorder of a call whose kernels do not run. Nothing may write to memory that existed before. The function's code and its lack of side
    effects are known; since it may behave otherwise at another size, each size is compared."""

    skips = 1
    observes = False

    def made(self, new: UntypedStorage) -> None:
        """Record a new storage with its requested size: that of the allocator's block is no polynomial of the size."""
        count = len(self.memory.buffers)
        super().made(new)
        for buffer in self.memory.buffers[count:]:
            buffer.size = new.size_bytes

    def filled(self, address: int, value: int, size: int) -> None:
        place = self.find(address)
        if place is None or self.memory.buffers[place.buffer].source == "state":
            raise NotRecordable("it fills memory that existed before")
        super().filled(address, value, size)

    def tested(self, address: int, size: int, error: Exception | None) -> None:
        """Clear the error number that a kernel would have written, since it has not run."""
        place = self.find(address)
        if place is not None and self.memory.buffers[place.buffer].source == "new":
            ctypes.memset(address, 0, size)
        super().tested(address, size, error)


class OtherSize(NotRecordable):
    """Raised where a function raises an error for another size."""


class DryCall:
    """A call of a function, which can be run dry with other sizes."""

    def __init__(self, known: CompiledFunction, given: Arguments, key: tuple, args: tuple, kwargs: dict):
        self.known, self.given, self.key, self.args, self.kwargs = known, given, key, args, kwargs

    def objection(self) -> str:
        """Return why arguments of this kind have no program for many sizes, or an empty string."""
        given, known = self.given, self.known.recordings()
        if not known or any(r.counted or r.switched or r.inputs or r.derivative is not None for r in known):
            return "it has side effects other than values in memory"
        if any(type(r.program) is not Program or _has_side_effects(r.program.graph) for r in known):
            return "operators that change its state, or send, are called through Python"
        if given.key[-1] or given.objects or not given.tensors:
            return "arguments share memory, or are objects"
        if sys.gettrace() is not None:
            return "a debugger follows the program"
        for t in given.tensors:
            if (
                type(t) is not Tensor
                or t.device is not cpu
                or t.is_sparse
                or t.grad_fn is not None
                or t.grad is not None
            ):
                return "an argument has a history or a gradient"
        return ""

    @functools.cached_property
    def reach(self) -> Reach:
        """Return the state that the function depends on."""
        return self.known._reach(self.given)

    def at(self, line: Line, t: int) -> tuple[Recorded, Facts]:
        """Run the function dry with the sizes of the line at t: return its recording and the facts of it."""
        if self.reach.caches:
            raise NotRecordable("it keeps results of a function by their arguments, as it would those of a dry run")
        table = {id(x): _like(x, *line.at(i, t)) for i, x in enumerate(self.given.tensors)}
        args, kwargs = replaced(self.args, table), replaced(self.kwargs, table)
        given = Arguments(args, kwargs)
        recorder = DryRecorder()
        recorder.codes = self.known._codes()
        recorder.graph.resizable, recorder.graph.layouts = True, False
        drawn = [g for r in self.known.recordings() for g in r.program.graph.draws]
        with put_back(self.reach, drawn):
            try:
                prepared, _, result = self.known._run_watched(
                    recorder, self.reach, given, self.key, args, kwargs, self.known.function
                )
            except (NotRecordable, Busy):
                raise
            except NewCode as problem:
                raise (OtherSize if problem.raises else NotRecordable)(str(problem)) from None
            except Exception as problem:  # of sizes that the function does not take
                kind = OtherSize if isinstance(problem, _REFUSALS) else NotRecordable
                raise kind(f"{type(problem).__name__} with another size: {problem}") from None
            recorded = prepared.finish(result)
            return recorded, Facts(recorded, given.tensors)


def refuse_constants(call: DryCall) -> None:
    """Raise an error if a size that was marked as dynamic is in fact a constant: the function fails for every other size tried. Sizes that
    depend on each other are not checked, nor functions that cannot be run dry."""
    tensors = call.given.tensors
    marked = [
        (i, d) for i, t in enumerate(tensors) if t.__dict__ for d in t.__dict__.get(DYNAMIC, set()) - t.__dict__.get(WEAK, set())
    ]  # fmt: skip
    sizes = {tensors[i].shape[d] for i, d in marked}
    free = call.known.options.get("dynamic") is True
    if free or len(sizes) != 1 or not all(t._contig for t in tensors) or call.objection():
        return
    (n,) = sizes
    shapes = tuple(
        tuple((0, 1) if (i, d) in marked else (size, 0) for d, size in enumerate(t.shape))
        for i, t in enumerate(tensors)
    )
    line, why = Line(*marked[0], shapes, (None,) * len(tensors)), ""
    for t in {n + 1, n - 1, 2 * n, n // 2, 3 * n, 8 * n} - {n, 0, 1}:
        try:
            call.at(line, t)
        except OtherSize as problem:
            why = str(problem)
        except (NotRecordable, Busy):
            return
        else:
            return
    names = inspect.signature(call.known.function).parameters
    given = [*zip(names, call.args), *call.kwargs.items()]
    spoken = [
        f"L[{next((repr(k) for k, v in given if v is tensors[i]), f'tensor {i}')}].size()[{d}]" for i, d in marked
    ]
    raise ConstraintViolationError(
        f"Constraints violated ({', '.join(spoken)})!\n  - You marked {spoken[0]} as dynamic but your code specialized it to be a constant"
        f" ({n}). If you're using mark_dynamic, either remove it or use maybe_mark_dynamic. {why}"
    )


def _has_side_effects(graph: StepGraph) -> bool:
    """Return whether steps that are called through Python do more than make new tensors."""
    held = {b.index for b in graph.buffers if b.source == "state"}
    calls = [s for s in graph.steps if isinstance(s, Call)]
    return any(c.sends or (c.changes and not held.isdisjoint(r.buffer for r in c.refs())) for c in calls)


def _like(t: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """Return an uninitialised tensor of another size with the other properties of `t`."""
    size = make_size(shape)
    contiguous = is_contiguous_layout(size, strides)
    made = new_tensor(UntypedStorage(0), size, strides, 0, t.dtype, t.device, contiguous)
    made._storage = UntypedStorage(extent(made))
    if t.requires_grad:
        made._ensure_autograd().requires_grad = True
    if t.__dict__:
        made.__dict__.update(t.__dict__)
    return made
