"""Formulas evaluated by the reductions that read them: the summed values are computed on the fly, not stored first.

Only if the loops of the reduction stay the same (all operands have the layout of the values, or are one element), so that sums are formed in
the same order."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from ..backends.compiled import reduce_kernel
from ..core.backend import backend_of
from ..core.device import device
from ..core.dtype import dtype
from ..core.tensor import Tensor, contiguous_strides
from ..expr.node import Expr, replace_arguments
from ..expr.simplify import simplify
from ..kernels.elementwise import passing
from ..kernels.geometry import plan_reduction
from ..kernels.reduction import ARG_COMBINES
from ..ops.machinery.plan import compiles
from ..ops.machinery.record import Op
from ..ops.machinery.reduction import Reduction, reduced_dims
from ..ops.machinery.watched import PrivateCall
from .conversions import Kernel, new_results
from .fusion import loop_in, passed
from .loops import Loop, Place, Read, as_value, rounded
from .patterns import Matches
from .program import Call, Program, Value

_POINTERS = 8
_LARGE = 1 << 24  # bytes of a value, of which a kernel of their own finds sums sooner than a library's product does


def fuse_into_reductions(program: Program) -> None:
    """Fuse formulas into the reductions that are their only readers."""
    matches = Matches(program)
    for i, call in matches:
        found = reduced(call)
        users = None if found is None else matches.only_pair(found.value.buffer)
        maker = None if users is None or users[1] != i else matches.calls[users[0]]
        loop = None if maker is None else _single(maker)
        if found is None or users is None or loop is None or not matches.unchanged(loop.read(), *users):
            continue
        both = _join_loop(loop, call, *found)
        if both is not None:
            matches.exchange(i, both, [users[0]])
    matches.finish()


def take_sums(program: Program) -> None:
    """Compute sums of a value (`Op.summed`) in the kernel that computes the value, on devices where one kernel does both."""
    matches = Matches(program)
    for i, call in matches:
        found = None if call.fixed or call.op.summed is None else new_results(call)
        if found is None or call.op.summed is None:
            continue
        name, operator, reduction = call.op.summed
        args = call.op.bind(call.args, call.kwargs)
        value, made = args[name], matches.maker(args[name].buffer)
        maker = None if made is None else matches.calls[made]
        along = maker is not None and (maker.op.rows is not None or loop_in(maker) is not None)
        if not along and value.nbytes < _LARGE:
            continue
        if backend_of(value.device).hides_latency and value.is_contiguous:
            outs, several = found
            kernel = Kernel(operator.op, value.device, several)
            others = [v.buffer for v in outs[:-1]]
            rest = Call(
                operator.op, kernel, tuple(args.values()), {}, outs[:-1], others, frozenset(), call.line, (call,)
            )
            matches.replace(i, [_sum(value, outs[-1], reduction.op.impl, call), rest], [])
    matches.finish()


def _sum(value: Value, out: Value, impl: Reduction, call: Call) -> Call:
    """Return a call that reduces a value over its first dimension."""
    compute, acc, _ = impl.rule(impl, value.dtype, None)
    root = impl.trace((value.dtype,), compute)
    kernel = FusedReduction(root, impl, (value.dtype,), (acc, out.dtype), tuple(value.shape), (0,), ["e"], value.device)
    op = Op(f"sum for {call.name}", "reduction", kernel.run, (), differentiable=False, impl=kernel, writes=("outs",))
    op.beside = call.op.beside
    return Call(op, kernel.run, (value,), {}, [out], [out.buffer], frozenset(), call.line, (call,))


class Reduced(NamedTuple):
    """Reduction of a call: operand, operator, dimensions, and the requested dtype (None for the default)."""

    value: Value
    impl: Reduction
    dims: tuple[int, ...]
    requested: dtype | None


def reduced(call: Call) -> Reduced | None:
    """Return a call as a reduction; None for other calls."""
    meaning = None if call.fixed or call.changes else _reduction_parts(call)
    if meaning is None:
        return None
    value, impl, dim, requested = meaning
    result = call.results
    # It may have made memory for its own use as well.
    plain = isinstance(value, Value) and isinstance(result, Value)
    if not plain or dim == () or result.buffer not in call.makes or value.device is not result.device:
        return None
    return Reduced(value, impl, reduced_dims(dim, len(value.shape)), requested)


def _reduction_parts(call: Call) -> tuple[Any, Reduction, Any, dtype | None] | None:
    """Return a reduction's operand, the reduction, its dimensions as they were given, and the dtype; None for other calls."""
    op, impl = call.op, call.op.impl
    if op.reduces is not None:
        bound = op.bind(call.args, call.kwargs)
        found = op.reduces(**bound)
        return None if found is None else (bound["input"], *found, None)
    if op.kind != "reduction" or not isinstance(impl, Reduction):
        return None
    if isinstance(call.function, PrivateCall):
        value, dim, _, requested = (*call.args, *(None, False, None)[len(call.args) - 1 :])[:4]
        return value, impl, dim, requested
    bound = op.bind(call.args, call.kwargs)
    return bound["input"], impl, bound["dim"], bound["dtype"]


def _single(call: Call) -> Loop | None:
    """Return the loop of a call that is a formula with one result, else None."""
    loop = loop_in(call)
    alone = loop is not None and len(loop.results) == 1 and len(call.makes) == 1 and not call.changes
    return loop if alone else None


def _join_loop(
    loop: Loop, call: Call, value: Value, impl: Reduction, dims: tuple[int, ...], requested: dtype | None
) -> Call | None:
    ((place, (root, d)),) = loop.results.items()
    places = [p for p, _ in loop.reads if isinstance(p, Place)]
    every = len(dims) == len(value.shape)  # then one element for all changes nothing about the loops
    same = all(p.strides == place.strides or (every and not any(p.strides)) for p in places)
    whole = place.start == value.start and value.dtype is d and loop.sizes == (_count(value),) and place.strides == (1,)
    if not same or not whole or tuple(value.strides) != contiguous_strides(value.shape) or len(places) > _POINTERS:
        return None
    compute, acc, out_dtype = impl.rule(impl, d, requested)
    dtypes = tuple(t for _, t in loop.reads)
    if out_dtype is not call.results.dtype or not compiles(loop.device, *dtypes, compute, acc):
        return None
    if any(t.is_complex for t in (compute, acc, out_dtype)):
        return None
    mapped_root = replace_arguments((impl.trace((d,), compute),), {0: rounded(root, d)})[0]
    kernel = FusedReduction(
        simplify(mapped_root, True), impl, dtypes, (acc, out_dtype), value.shape, dims, [_read(r) for r in loop.reads],
        loop.device,
    )  # fmt: skip
    parts = (*(p for part in loop.parts for p in (part.parts or (part,))), call)
    name = "+".join(dict.fromkeys(part.name for part in parts))
    op = Op(name, "reduction", kernel.run, (), differentiable=False, impl=kernel, writes=("outs",))
    args = tuple(as_value(p, loop.sizes, t, loop.device) if isinstance(p, Place) else p.value for p, t in loop.reads)
    return Call(op, kernel.run, args, {}, [call.results], [call.results.buffer], frozenset(), call.line, parts)


def _count(value: Value) -> int:
    count = 1
    for n in value.shape:
        count *= n
    return count


def _read(read: Read) -> str:
    """Return the letter for how an operand is read: "e" element by element, "o" one for all, or the letter of a number's type."""
    x, d = read
    return passing(d) if not isinstance(x, Place) else "e" if any(x.strides) else "o"


class FusedReduction:
    """A reduction of a formula: `run(outs, *inputs)`. Its kernel is compiled when it first runs."""

    def __init__(
        self, root: Expr, impl: Reduction, dtypes: tuple[dtype, ...], results: tuple[dtype, dtype], shape: Any,
        dims: tuple[int, ...], how: list[str], where: device,
    ):  # fmt: skip
        self.root, self.impl, self.dtypes, self.results = root, impl, dtypes, results
        self.shape, self.dims, self.how, self.where = shape, dims, how, where
        self.planned: tuple[Any, bytes] | None = None

    def run(self, outs: list[Tensor], *inputs: Any) -> None:
        if self.planned is None:
            self.planned = self._plan()
        fn, geometry = self.planned
        fn(geometry, *map(passed, (outs[0], *inputs)))

    def _plan(self) -> tuple[Any, bytes]:
        dense, still = contiguous_strides(self.shape), (0,) * len(self.shape)
        kept = contiguous_strides(tuple(1 if i in self.dims else n for i, n in enumerate(self.shape)))
        out = [0 if i in self.dims else s for i, s in enumerate(kept)]
        strides = [dense if h == "e" else still for h in self.how if h in "eo"]
        planned = plan_reduction(self.shape, [out, *strides], self.dims, self.impl.combine in ARG_COMBINES)
        steps = iter(planned.kinds)
        kinds = "".join(next(steps) if h in "eo" else h for h in self.how)
        acc, made = self.results
        fn = reduce_kernel(
            self.root, self.impl.combine, self.impl._final(), self.dtypes, made, acc, planned.kept_rank,
            planned.reduced_rank, planned.inner, kinds, self.where,
        )  # fmt: skip
        geometry = array("q", planned.geometry).tobytes()
        fixed = getattr(fn, "fixed", None)  # a launch prepared for its geometry
        return fn if fixed is None else fixed(geometry), geometry
