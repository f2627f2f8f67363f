"""A recorded function: steps over buffers, in order.

A *buffer* is a piece of memory: an argument's, a parameter's, or one that the function made. A step is a native call (`Launch`), a
`Test` of a number that a kernel reports errors in, or a `Call` of an operator that does more than native calls."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from ...backends import compiled
from ...backends.cpu import jit
from ...core.records import record, replace
from ...expr.node import walk
from ...graph import program as operators
from ...graph.memory import Buffer, Ref, instances
from ...graph.program import Value

_FIRST = frozenset((0,))
_LONGEST = 200  # formulas that are shown
_LIBC = ctypes.CDLL(None)
MEMSET = ctypes.cast(_LIBC.memset, ctypes.c_void_p).value or 0
MEMCPY = ctypes.cast(_LIBC.memcpy, ctypes.c_void_p).value or 0


class Number(NamedTuple):
    """Reference to a number that is known only when the program runs: value `position` of update number `update`."""

    update: int
    position: int

    def __repr__(self) -> str:
        return f"number {self.update}.{self.position}"


class VaryingNumber(float):
    """Placeholder of a number that is not known yet, in a call that is only planned."""

    number: Number

    def __new__(cls, number: Number) -> VaryingNumber:
        made = super().__new__(cls, 1.0)
        made.number = number
        return made


class Same(NamedTuple):
    """Reference to an argument of the step beside which a call is stored."""

    position: int


class OtherCall(NamedTuple):
    """A native call that shares some arguments with a step."""

    address: int
    signature: str
    arguments: list[Any]
    plan: Any = None  # of oneDNN


class Other(NamedTuple):
    """The native calls that a step replaces, with equal results but for rounding. In the first run both are made; if they differ by more than
    that, these calls are used from then on. They use the memory of the step, or memory that existed before."""

    calls: tuple[OtherCall, ...]
    results: tuple[tuple[int, int], ...]  # positions of the step's arguments, and bytes
    flag: int | None = None  # where in the table that is its last argument the step reports infinities and nan


@record
class Launch:
    """Native call. Arguments are Refs, numbers, bytes, None, or an int for an address that never changes."""

    name: str
    address: int
    signature: str
    arguments: list[Any]
    plan: Any = None  # of oneDNN, kept alive
    weight: int = 1  # how many recorded calls it stands for
    other: Other | None = None
    # Steps in a row with the same first number run side by side: those of each second one in order.
    lane: tuple[int, int] | None = None
    call: operators.Call | None = None  # of the operator that it is a part of

    def refs(self) -> list[Ref]:
        return [a for a in self.arguments if type(a) is Ref]

    def exchanged(self, old: int, new: int) -> Launch:
        """Return the step with buffer `old` replaced by `new`."""
        given = [Ref(new, a.offset) if type(a) is Ref and a.buffer == old else a for a in self.arguments]
        return replace(self, arguments=given)

    def renamed(self, instead: dict[int, int], call: operators.Call) -> Launch:
        """Return the step as a part of another call, with buffers replaced as in `instead` (old to new)."""
        now = self
        for old in {r.buffer for r in self.refs()} & instead.keys():
            now = now.exchanged(old, instead[old])
        return replace(now, call=call)

    @property
    def written(self) -> frozenset[int] | None:
        """Return the positions of the arguments that are written to, or None if that is not known."""
        if self.plan is not None:
            return frozenset(range(1, 1 + self.plan.results))
        known = jit.facts.get(self.address)
        if known is not None:
            return known.written
        return _FIRST if self.address in (MEMSET, MEMCPY) else None

    def writes(self) -> list[Ref]:
        known = self.written
        return [a for i, a in enumerate(self.arguments) if type(a) is Ref and (known is None or i in known)]

    def reads(self) -> list[Ref]:
        """Return the references that the step may read, those that it writes included unless they are known to be results only."""
        known = self.written
        if known is None or not self.is_formula:
            return self.refs()
        return [a for i, a in enumerate(self.arguments) if type(a) is Ref and i not in known]

    @property
    def is_formula(self) -> bool:
        """Return whether the step is a loop over a formula, or a reduction of one: its results depend only on its operands and are written
        completely."""
        return self.is_loop or self.address in compiled.reductions

    @property
    def is_loop(self) -> bool:
        """Return whether the step is a loop over a formula."""
        return self.address in compiled.maps


def operands(step: Launch) -> tuple[list, list] | None:
    """Return the results and the operands of a loop over a formula, each as (a place with its strides in elements, or a number; bytes per
    element). None for other steps."""
    known = compiled.maps.get(step.address)
    if known is None:
        return None
    _, in_dtypes, out_dtypes, kinds, rank = known
    places = places_of(step, kinds, rank)
    widths = [d.itemsize for d in (*out_dtypes, *in_dtypes)]
    both = list(zip(places, widths))
    return both[: len(out_dtypes)], both[len(out_dtypes) :]


def places_of(step: Launch, kinds: str, rank: int) -> list[Any]:
    """Return the operands of a loop: places with their strides in elements, or numbers."""
    first, *rest = step.arguments
    count = sum(k in "cbs" for k in kinds)
    if type(first) is bytes:
        numbers = struct.unpack(f"{len(first) // 8}q", first)
        strides = iter([numbers[rank * (k + 1) : rank * (k + 2)] for k in range(count)])
    else:
        strides = iter([(1,) if k == "c" else (0,) for k in kinds if k in "cbs"])
    return [(a, next(strides)) if k in "cbs" else a for a, k in zip(rest, kinds)]


@record
class Test:
    """Check that the number at a place is zero; if not, an operator reports an error there, which the function raises when it runs eagerly."""

    name: str
    place: Ref
    size: int
    error: Exception | None = None  # where it does not depend on values
    call: operators.Call | None = None

    def refs(self) -> list[Ref]:
        return [self.place]


@record
class Call:
    """An operator that is called through Python: its arguments, and the buffers that it makes, in order. `changes` says whether it has other
    effects; `results` are its results if their layout may differ in another call, and `numbers` those that it has read from its arguments, if
    they must be equal in another call because its derivative uses them."""

    name: str
    function: Callable
    arguments: tuple
    keywords: dict
    makes: list[int] = []
    why: str = ""
    changes: bool = False
    results: list[Value] | None = None
    numbers: list[bytes] | None = None
    call: operators.Call | None = None

    @property
    def sends(self) -> str:
        """Return the kind of message that the step exchanges with other processes, or an empty string (see `Op.sends`)."""
        return "" if self.call is None else self.call.op.sends

    def refs(self) -> list[Ref]:
        found = [Ref(v.buffer, v.start) for v in instances((self.arguments, self.keywords), Value)]
        return [*found, *(Ref(b, 0) for b in self.makes)]


class Update(NamedTuple):
    """Numbers of an optimizer's update: `prologue(*scalars, *options)` returns new scalars, then numbers for the kernels."""

    prologue: Callable
    scalars: tuple[tuple[Ref, ...], ...]  # for each scalar, where every parameter has it
    dtypes: tuple
    options: dict[str, Any]  # as they were when it was recorded
    names: tuple[str, ...]  # of the options that are numbers
    parameters: frozenset[int]  # their ids


@record
class StepGraph:
    """Steps of one call of a function over their buffers, with everything that passes and the runtime need to know of them."""

    steps: list[Any] = []
    buffers: list[Buffer] = []
    updates: list[Update] = []
    generators: list[Any] = []  # whose engines native calls use
    draws: list[Any] = []  # all that random numbers come from
    exact: bool = False  # whether passes must keep every bit
    portable: bool = False  # whether all steps must be calls that a program without Python can make
    resizable: bool = False  # whether no step may be specialised to its sizes
    rounded_otherwise: bool = False  # whether a pass has changed the order of roundings
    # Whether feature maps may have another layout between steps; None: where that is expected to take less time.
    layouts: bool | None = False
    relaid: list[str] = []  # the operators whose steps use such a layout
    # Feature maps with channels last, by buffer: the recorded buffer, and the `FeatureMap`.
    maps: dict[int, tuple[int, Any]] = {}
    recomputes: bool = False  # whether long formulas, too, are computed again rather than kept
    # What is recomputed: the operator, and the bytes that are saved.
    recomputed: list[tuple[str, int]] = []

    def text(self) -> str:
        """Return the steps as text, one on each line."""
        return "\n".join(map(_line, self.steps))


def new_buffer(graph: StepGraph, size: int, source: str = "new") -> Ref:
    """Add a buffer of the function's own, or, by `source`, one in the memory that oneDNN's plans share, which is empty between steps."""
    graph.buffers.append(Buffer(len(graph.buffers), 0, size, source))
    return Ref(graph.buffers[-1].index, 0)


def effects(graph: StepGraph, steps: list[Any]) -> tuple[set[int], set[int]]:
    """Return the buffers that steps write, and all that they touch, without the memory that plans of oneDNN share."""
    touched = {b for step in steps for b in used(step) if b >= 0}
    written = {
        r.buffer
        for step in steps
        if not isinstance(step, Test)
        for r in (step.writes() if isinstance(step, Launch) else step.refs())
    }
    own = {b for b in touched if graph.buffers[b].source != "workspace"}
    return written & own, own


def used(step: Any) -> set[int]:
    """Return the buffers that a step reads or writes."""
    return {r.buffer for r in step.refs()}


def _line(step: Any) -> str:
    if isinstance(step, Test):
        return f"test {step.name}: {step.place!r} is zero"
    if not isinstance(step, Launch):
        held = ", ".join(map(repr, step.refs()))
        return f"call {step.name}({held})  # {step.why}"
    others = [a for a in step.arguments if not isinstance(a, (Ref, bytes)) and a is not None]
    if step.plan is not None:
        others = others[1:]  # the address of the plan's table says nothing to readers
    written = step.written or ()
    places = [(i, a) for i, a in enumerate(step.arguments) if type(a) is Ref]
    given = ", ".join(map(repr, [*(a for i, a in places if i not in written), *others]))
    made = ", ".join(repr(a) for i, a in places if i in written)
    return f"{made + ' = ' if made else ''}{step.name}({given}){_formula(step.address)}"


@functools.lru_cache(1024)
def _formula(address: int) -> str:
    """Return a loop's formula as a comment, with shared parts written out each time, or its length if that is too long to show."""
    known = compiled.maps.get(address)
    if known is None:
        return ""
    lengths: dict[int, int] = {}
    for x in walk(known[0]):
        lengths[id(x)] = 1 + sum(lengths[id(c)] for c in x.operands)
    if sum(lengths[id(root)] for root in known[0]) > _LONGEST:
        return f"  # a formula of {len(lengths)} operations"
    return "  # " + "; ".join(map(str, known[0]))[:160]
