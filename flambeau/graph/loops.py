"""Calls as loops: formulas over the elements of an index space.

The operators' records declare which calls are loops, and what they compute: a pointwise operator's formula, or the formula that a primitive
declares (`Op.formula`: copies, conversions, fills). Nothing here knows an operator by name."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..core.device import device
from ..core.dtype import FLOAT8, dtype, opmath
from ..core.layout import expand_strides, has_internal_overlap
from ..core.records import record
from ..core.size import make_size
from ..core.storage import UntypedStorage
from ..core.tensor import Tensor
from ..expr.functions import ELEMENTARY
from ..expr.node import Expr, arg, cast, node
from ..kernels import geometry
from ..ops.machinery.calls import checked_operands, settle
from ..ops.machinery.formula import Pointwise
from ..ops.machinery.plan import Form, common_device, is_by_value
from ..ops.machinery.watched import PrivateCall
from .memory import mapped
from .program import NO_MEMORY, Call, Value

# Functions of many instructions. Two of them, one after the other, in one loop take longer than in two where a processor cannot begin with
# the next elements before it is nearly through with these (measured: 5 of them on 1e6 elements 4.4 ms in one loop, 2.1 ms in five).
LONG = frozenset((*ELEMENTARY, "atan2", "pow", "call"))


class Place(NamedTuple):
    """Elements of an operand in memory: the buffer, the first byte, and strides in elements over a loop's dimensions."""

    buffer: int
    start: int
    strides: tuple[int, ...]


class Number(NamedTuple):
    """An operand that is a number."""

    value: Any
    kind: type


Read = tuple["Place | Number", dtype]


@record
class Loop:
    """Formulas over the elements of one index space. `reads` are the operands that arg(0), arg(1), ... of the formulas stand for; `results`
    maps places to the values stored there. `sizes` are the dimensions, collapsed as far as all operands allow."""

    sizes: tuple[int, ...]
    reads: list[Read]
    results: dict[Place, tuple[Expr, dtype]]
    parts: tuple[Call, ...]
    device: device

    def read(self) -> set[int]:
        return {p.buffer for p, _ in self.reads if isinstance(p, Place)}

    def written(self) -> set[int]:
        return {p.buffer for p in self.results}

    def touches(self) -> set[int]:
        return self.read() | self.written()

    def renamed(self, instead: dict[int, int]) -> Loop:
        """Return the loop with buffers replaced as in `instead` (old to new)."""

        def other(p: Any) -> Any:
            return Place(instead[p.buffer], *p[1:]) if isinstance(p, Place) and p.buffer in instead else p

        reads = [(other(p), d) for p, d in self.reads]
        return Loop(self.sizes, reads, {other(p): v for p, v in self.results.items()}, self.parts, self.device)

    def split(self, cuts: list[int]) -> Loop:
        """Return the loop with its dimensions split at the given counts of inner elements."""
        sizes: list[int] = []
        steps: list[tuple[int, int]] = []  # of each new dimension: the old one, and how many of its elements a step is
        inner = math.prod(self.sizes)
        for d, n in enumerate(self.sizes):
            inner //= n
            inside = [c // inner for c in cuts if inner < c < inner * n and c % inner == 0]
            ends = sorted({1, n, *inside}, reverse=True)
            for big, small in zip(ends, ends[1:]):
                sizes.append(big // small)
                steps.append((d, small))
        return self.walked(sizes, steps) if sizes else self

    def cut(self, place: Place, points: set[int]) -> Loop | None:
        """Return the loop with each dimension split where its stride in the operand `place` reaches a point; None if that is impossible."""
        sizes: list[int] = []
        steps: list[tuple[int, int]] = []
        for d, (n, s) in enumerate(zip(self.sizes, place.strides)):
            ends = sorted({1, n, *(c // s for c in points if s and s < c < s * n and c % s == 0)}, reverse=True)
            if any(big % small for big, small in zip(ends, ends[1:])):
                return None
            sizes += [big // small for big, small in zip(ends, ends[1:])]
            steps += [(d, small) for small in ends[1:]]
        return self.walked(sizes, steps)

    def walked(self, sizes: list[int], steps: list[tuple[int, int]]) -> Loop:
        """Return the loop over new dimensions of these sizes. `steps` has the old dimension of each, and the elements of it in a step."""

        def moved(p: Any) -> Any:
            if not isinstance(p, Place):
                return p
            return Place(p.buffer, p.start, tuple(p.strides[d] * k for d, k in steps))

        return Loop(
            tuple(sizes), [(moved(p), d) for p, d in self.reads],
            {moved(p): value for p, value in self.results.items()}, self.parts, self.device,
        )  # fmt: skip

    def places(self) -> list[Place]:
        return [*(p for p, _ in self.reads if isinstance(p, Place)), *self.results]

    def inner_counts(self) -> list[int]:
        """Return the number of elements inside each dimension, innermost first: the points where another loop can be split."""
        counts, inner = [], 1
        for n in reversed(self.sizes):
            counts.append(inner)
            inner *= n
        return counts


def aligned(a: Loop, b: Loop) -> tuple[Loop, Loop] | None:
    """Return both loops over the same dimensions; None if they do not visit the same elements in the same order."""
    if a.sizes == b.sizes:
        return a, b
    if math.prod(a.sizes) != math.prod(b.sizes):
        return None
    cuts = sorted({*a.inner_counts(), *b.inner_counts()})
    if any(big % small for small, big in zip(cuts, cuts[1:])):
        return None
    return a.split(cuts), b.split(cuts)


def turned(a: Loop, b: Loop) -> tuple[Loop, Loop] | None:
    """Return both loops over the same dimensions in the order of the first, if a common operand shows which dimension is which, and elements
    adjacent in it are adjacent in all operands of the second; else None."""
    if math.prod(a.sizes) != math.prod(b.sizes):
        return None
    known = {p[:2]: p for p in a.places() if all(p.strides)}
    for p in b.places():
        q = known.get(p[:2])
        if q is None or not all(p.strides):
            continue
        points = {c for r, sizes in ((q, a.sizes), (p, b.sizes)) for s, n in zip(r.strides, sizes) for c in (s, s * n)}
        x, y = a.cut(q, points), b.cut(p, points)
        if x is None or y is None:
            continue
        first, second = (next(r for r in loop.places() if r[:2] == p[:2] and all(r.strides)) for loop in (x, y))
        where = {(s, n): d for d, (s, n) in enumerate(zip(second.strides, y.sizes))}
        order = [where.get((s, n)) for s, n in zip(first.strides, x.sizes)]
        found = [d for d in order if d is not None]
        if len(set(found)) == len(x.sizes) == len(y.sizes) and _is_adjacent_along(y, second):
            return x, y.walked([y.sizes[d] for d in found], [(d, 1) for d in found])
    return None


def _is_adjacent_along(loop: Loop, place: Place) -> bool:
    """Return whether elements that are adjacent in an operand are adjacent (or constant) in all operands."""
    inner = next((d for d, s in enumerate(place.strides) if s == 1), None)
    return inner is not None and all(r.strides[inner] in (0, 1) for r in loop.places())


def loop_of(call: Call) -> Loop | None:
    """Return a call as a loop over a formula; None if it computes anything else."""
    if call.fixed or call.op.draws or call.op.reads_values:
        return None
    meaning = _pointwise_parts(call)
    if meaning is None:
        return None
    impl, operands, params, out_dtype, target = meaning
    if len(call.makes) > 1 or (call.makes and call.changes):
        return None  # it does more than that
    if not isinstance(target, Value) or NO_MEMORY in (target.buffer, *(v.buffer for v in call.arguments())):
        return None
    if has_internal_overlap(target.shape, target.strides) or 0 in target.shape:
        return None
    form = _form(impl, operands, params, out_dtype, target, call.op.formula is not None)
    if form is None or form.dtype is not target.dtype:
        return None
    return _collapse_loop(call, target, form, _reads(impl, form, operands, params, target))


def conversion_of(call: Call) -> tuple[Value, Value] | None:
    """Return (input, result) of a call that only converts between floating-point dtypes, both dense in the same order; None for others."""
    meaning = None if call.fixed or call.changes or len(call.makes) != 1 else _pointwise_parts(call)
    loop = None if meaning is None else loop_of(call)
    if (
        meaning is None
        or loop is None
        or len(loop.reads) != 1
        or len(meaning[1]) != 1
        or loop.sizes != (math.prod(meaning[-1].shape),)
    ):
        return None
    (source,), target = meaning[1], meaning[-1]
    ((_, (root, _)),) = loop.results.items()
    plain = root is arg(0) or (root.op == "cast" and root.args[0] is arg(0))
    if not plain or not isinstance(source, Value) or source.shape != target.shape or source.strides != target.strides:
        return None
    return (source, target) if source.dtype.is_floating_point and target.dtype.is_floating_point else None


def _pointwise_parts(call: Call) -> tuple[Pointwise, tuple, tuple, dtype | None, Any] | None:
    """Return the pointwise operator of a call, its operands and parameters, the requested dtype, and the result; None for other calls."""
    op = call.op
    if op.formula is not None:
        bound = op.bind(call.args, call.kwargs)
        bound.pop("out", None)
        found = op.formula(**bound)
        target = (
            call.results if len(call.makes) == 1 and not call.changes else bound.get(op.writes[0] if op.writes else "")
        )
        return None if found is None or target is None else (*found, (), target.dtype, target)
    impl = op.impl
    if op.kind != "pointwise" or not isinstance(impl, Pointwise):
        return None
    if isinstance(call.function, PrivateCall):
        return impl, call.args, call.kwargs.get("params", ()), call.kwargs.get("out_dtype"), call.results
    bound = op.bind(call.args, call.kwargs)
    out = bound.pop("out", None)
    operands = tuple(bound[n] for n in impl.operand_names)
    params = tuple(bound[n] for n, _ in impl.parameters)
    target = out if out is not None else operands[0] if op.writes else call.results
    asked = target.dtype if isinstance(target, Value) and (out is not None or op.writes) else None
    return impl, operands, params, asked, target


def _form(
    impl: Pointwise, operands: tuple, params: tuple, out_dtype: dtype | None, target: Value, declared: bool
) -> Form | None:
    """Return dtypes and expression of a call, by the same rules as its plan. Operands of a formula that a primitive has `declared` are not
    checked: they may be numbers where those of the operator may not."""
    tensors = mapped(tuple(operands), Value, lambda v: v.over(UntypedStorage(0, v.device)))
    tensors = tensors if declared else checked_operands(impl, tensors)
    params = settle(impl, tuple(params))
    present = tuple(x for x in tensors if x is not None)
    if any(isinstance(x, Tensor) and (x.device is not target.device or is_by_value(x, target.device)) for x in present):
        return None
    where = target.device if present and common_device(present, target.device) is target.device else None
    form = impl._form(tensors, present, params, out_dtype, where)
    dtypes = (*form.in_dtypes, form.dtype, form.compute)
    if not form.is_native or "z" in form.passing or any(d.is_complex or d in FLOAT8 for d in dtypes):
        return None
    if impl.guard is not None and impl.guard(form.compute, tensors) is not None:
        return None
    return form


def _reads(impl: Pointwise, form: Form, operands: tuple, params: tuple, target: Value) -> list[Read]:
    """Return the operands that a formula's arguments stand for: places of tensors, or numbers, with their dtypes."""
    values = [*operands, *impl.runtime_params(settle(impl, tuple(params)))]
    dtypes = iter(form.in_dtypes)
    found: list[Read] = []
    for x, how in zip(values, form.passing):
        if how == "-":
            continue
        d = next(dtypes)
        if isinstance(x, Value):
            strides = expand_strides(x.shape, x.strides, target.shape)
            found.append((Place(x.buffer, x.start, tuple(strides)), d))
        else:
            found.append((Number(x, type(x)), d))
    return found


def _collapse_loop(call: Call, target: Value, form: Form, reads: list[Read]) -> Loop | None:
    """Return the loop of a call over as few dimensions as its operands allow."""
    out = Place(target.buffer, target.start, tuple(target.strides))
    return collapsed(call, target.shape, reads, {out: (form.roots[0], form.dtype)}, target.device)


def collapsed(
    call: Call, shape: Any, reads: list[Read], results: dict[Place, tuple[Expr, dtype]], where: device
) -> Loop | None:
    """Return a loop over as few dimensions as its operands allow, outermost first in the memory of the first result."""
    places = [*results, *[p for p, _ in reads if type(p) is Place]]
    _, sizes, strides, _ = geometry.plan(shape, [p.strides for p in places])
    moved = iter([Place(p.buffer, p.start, s) for p, s in zip(places, strides)])
    stored = {next(moved): value for value in results.values()}
    changed = [(next(moved) if type(p) is Place else p, d) for p, d in reads]
    written = {p.buffer for p in stored}
    if [p for p, _ in changed if type(p) is Place and p.buffer in written and p not in stored]:
        return None  # it reads other elements of the memory that it writes to
    return Loop(tuple(sizes), changed, stored, (call,), where)


def as_value(p: Place, sizes: tuple[int, ...], d: dtype, where: device) -> Value:
    return Value(p.buffer, p.start, make_size(sizes), p.strides, d, where)


def rounded(root: Expr, d: dtype) -> Expr:
    """Return a result as a reader of memory sees it: rounded to its dtype, and not contracted with a following addition."""
    alone = node("mul_alone", *root.args) if root.op == "mul" else root
    value = cast(alone, d)
    return value if opmath(d) is d else cast(value, opmath(d))
