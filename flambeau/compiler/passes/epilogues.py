"""Matrix products and convolutions of a program, which run many times: operations that libraries apply while they write a result, instead of
in a separate pass over memory, and the code that is fastest for a shape."""

from __future__ import annotations

import math
from typing import Any

from ...backends.cpu import jit
from ...backends.cpu.onednn import sequence
from ...backends.cpu.onednn.conv import Described
from ...backends.cpu.onednn.direct import AddedProduct, DirectProduct
from ...backends.cpu.onednn.gemm import Product, as_primitive, described, takes_more
from ...backends.cpu.onednn.postops import CHANNEL, EACH, Step
from ...core.dtype import float32
from ...core.records import record
from ...core.tensor import contiguous_strides
from ...expr.node import Expr, arg, arguments, is_const
from ...graph.loops import Loop, Place
from ..record.planning import joined_call, loop_at
from ..record.relaid import relaid_of
from ..record.steps import Launch, Other, OtherCall, Ref, Same, StepGraph

_RESULT, _BIAS = 1, 4  # which arguments of a product or a convolution they are
_MOST = 1 + sequence.POINTERS
# Largest number of elements of an operand that is read in an epilogue: measured, larger ones take up to 5 % longer than a loop,
# because their tiles come from memory in an order that no processor prefetches.
_NEAR = 1 << 18
_ADDED = Step("accumulate")


def join_epilogues(graph: StepGraph, results: set[int]) -> None:
    """Let oneDNN apply the operations that follow a product or a convolution while the sums are in registers, if nothing else reads these:
    add a bias or a tensor of the result's size (a residual, an earlier gradient), multiply by such a tensor, by a number or by one number for
    each channel, apply leaky_relu. Sums may be rounded in another order. Small products of eager calls run code that needs no preparation for
    a shape and adds a bias afterwards; these stay."""
    plans: dict[Any, Any] = {}
    i = 0
    while i < len(graph.steps):
        step = graph.steps[i]
        told = _product_description(step) if isinstance(step, Launch) else None
        if told is None or not _join_loops(graph, results, i, told, plans):
            i += 1


def _product_description(step: Launch) -> Product | Described | None:
    """Return the description of a step that is a product or a convolution in float32, else None."""
    plan: Any = step.plan
    if type(plan) is DirectProduct:
        return described(plan)
    told = getattr(plan, "described", None)
    whole = told is not None and not plan.before and not plan.after and len(step.arguments) == _MOST
    return told if whole and (type(told) is Product or (type(told) is Described and told.kind == "forward")) else None


@record
class _Chain:
    """A product or a convolution at step `at` with the loops that follow it, up to step `last`: the operations on the sums, the tensors that
    these read, where the result goes, and the loops that are replaced."""

    at: int
    last: int
    out: Ref
    steps: tuple[Step, ...] = ()
    operands: tuple[Ref, ...] = ()
    loops: tuple[Launch, ...] = ()


def _join_loops(graph: StepGraph, results: set[int], i: int, told: Any, plans: dict[Any, Any]) -> bool:
    """Join the loops that follow step `i` with it, and return whether the joined step has moved down to the place of the last of them."""
    step = graph.steps[i]
    chains = [_Chain(i, i, step.arguments[_RESULT])]
    while not graph.portable and (longer := _extend_chain(graph, results, chains[-1], told)) is not None:
        chains.append(longer)
    for chain in reversed(chains):
        key = (step.plan.address, chain.steps, type(step.arguments[_BIAS]) is Ref)
        if key not in plans:
            plans[key] = _plan(step, chain, told), step.plan  # which is kept, because its address is part of the key
        plan = plans[key][0]
        made = None if plan is None else _launch(step, chain, plan)
        if made is not None and (relaid_of(graph, step) is None or relaid_of(graph, made) is not None):
            graph.steps[chain.last] = made
            gone = {id(s) for s in (step, *chain.loops)}
            graph.steps = [s for s in graph.steps if id(s) not in gone]
            graph.rounded_otherwise |= made.other is None
            return bool(chain.loops)
    return False


def _plan(step: Launch, chain: _Chain, told: Any) -> Any:
    """Return the plan that computes a chain; None if it is not worth it."""
    direct, biased = type(step.plan) is DirectProduct, type(step.arguments[_BIAS]) is Ref
    if any(s.operand == EACH or s == _ADDED for s in chain.steps) and _size(told) > _NEAR:
        return None
    if direct and chain.steps == (_ADDED,):
        return AddedProduct(step.plan)
    if not (takes_more(step.plan) and (chain.steps or biased) if direct else chain.steps):
        return None
    plan = (told if biased or type(told) is not Product else told._replace(bias=None)).followed(chain.steps)
    return None if plan is None or plan.before or plan.after or sequence.runner(False) is None else plan


def _launch(step: Launch, chain: _Chain, plan: Any) -> Launch:
    """Make one step that does what the product or convolution and the loops do."""
    address = step.address if type(plan) is AddedProduct else jit.address_of(sequence.runner(False))
    signature = jit.signatures[address]
    tensors = [a for a in step.arguments[_RESULT:] if type(a) is Ref]
    given = [chain.out, *tensors[1:], *chain.operands]
    other = None if _ADDED in chain.steps or not chain.loops else _replaced_calls(step, chain, given)
    names = "".join(f", {loop.name}" for loop in chain.loops)
    arguments = [plan.address, *given, *[None] * (len(signature) - 1 - len(given))]
    weight = step.weight + sum(loop.weight for loop in chain.loops)
    call = joined_call([step, *chain.loops])
    return Launch(f"{step.name}{names}", address, signature, arguments, plan, weight, other, call=call)


def _replaced_calls(step: Launch, chain: _Chain, given: list[Ref]) -> Other:
    """Return the calls that a joined step replaces: all loops work in place, on its result."""
    inside = {step.arguments[_RESULT], *(loop.arguments[1] for loop in chain.loops)}
    places = {ref: Same(position) for position, ref in enumerate(given, 1)}

    def same(value: Any) -> Any:
        return value if type(value) is not Ref else Same(_RESULT) if value in inside else places[value]

    calls = [OtherCall(step.address, step.signature, list(map(same, step.arguments)), step.plan)]
    calls += [OtherCall(s.address, s.signature, list(map(same, s.arguments))) for s in chain.loops]
    return Other(tuple(calls), ((_RESULT, 4 * _size(_product_description(step))),))


def _size(told: Any) -> int:
    """Return the number of elements of the result."""
    return math.prod(told.result.shape if type(told) is Product else told.tensors["y"][0])


# -- what follows ---------------------------------------------------------------------------------------------------------


def _extend_chain(graph: StepGraph, results: set[int], chain: _Chain, told: Any) -> _Chain | None:
    """Return the chain extended by the one loop that reads its result, or None if oneDNN cannot apply that loop's operations."""
    y, step = chain.out, graph.steps[chain.at]
    users = (k for k in range(chain.last + 1, len(graph.steps)) if _uses(graph.steps[k], y.buffer))
    j = next(users, None)
    loop = loop_at(graph.steps[j]) if j is not None and isinstance(graph.steps[j], Launch) else None
    if j is None or loop is None or len(loop.results) != 1:
        return None
    (place, (root, kind)), *_ = loop.results.items()
    out = Ref(*place[:2])
    alone = graph.buffers[y.buffer].source == "new" and y.buffer not in results and next(users, None) is None
    earlier = {r.buffer for r in step.refs()} - {step.arguments[_RESULT].buffer}
    if kind is not float32 or not (alone or out == y) or out.buffer in earlier:
        return None
    found = steps_of(root, loop, y, told)
    if not found:
        return None
    steps, operands = zip(*found)
    refs = [r for r in operands if r is not None]
    if out in refs:  # adds to what is there
        position = operands.index(out)
        if operands.count(out) > 1 or steps[position] != Step("add", (), EACH):
            return None
        steps = (*steps[:position], _ADDED, *steps[position + 1 :])
        refs.remove(out)
    taken = {r.buffer for r in chain.operands}
    if out.buffer in taken | {r.buffer for r in refs}:
        return None
    for k in range(chain.at + 1, j):
        s, read = graph.steps[k], earlier | taken if k > chain.last else earlier
        if s not in chain.loops and (not isinstance(s, Launch) or _touches(s, read, out.buffer)):
            return None
    tensors = sum(type(a) is Ref for a in step.arguments)
    if tensors + len(chain.operands) + len(refs) > sequence.POINTERS:
        return None
    return _Chain(chain.at, j, out, (*chain.steps, *steps), (*chain.operands, *refs), (*chain.loops, graph.steps[j]))


def _touches(step: Launch, read: set[int], written: int) -> bool:
    """Return whether a step changes one of the buffers `read`, or uses the buffer `written`."""
    return any(r.buffer in read for r in step.writes()) or _uses(step, written)


def _uses(step: Any, buffer: int) -> bool:
    return any(r.buffer == buffer for r in step.refs())


_Found = list[tuple[Step, Ref | None]]


def steps_of(root: Expr, loop: Loop, y: Ref, told: Any) -> _Found | None:
    """Return the formula of a loop as steps applied to y, each with its tensor; None if it has another form."""
    dense = contiguous_strides(loop.sizes)
    mine = [k for k, (p, d) in enumerate(loop.reads) if isinstance(p, Place) and p.buffer == y.buffer]
    shape, strides = (told.result.shape, told.result._strides) if type(told) is Product else told.tensors["y"]
    if (
        len(mine) != 1
        or loop.reads[mine[0]] != (Place(*y, dense), float32)
        or next(iter(loop.results)).strides != dense
    ):
        return None
    if math.prod(loop.sizes) != math.prod(shape) or sorted(strides)[0] != 1 or not _is_filled(shape, strides):
        return None
    symbol = arg(mine[0])
    channels = _channels(shape, strides, type(told) is Product)

    def operand(x: Expr) -> Any:
        """Return a number, or a tensor as (its relation to the result, its place); None for any other expression."""
        if x.op == "cast" and x.args[1] is float32:
            x = x.args[0]
        if is_const(x):
            return x.args[0] if type(x.args[0]) in (int, float) else None
        if x.op == "neg":
            value = operand(x.args[0])
            return -value if type(value) in (int, float) else None
        if x.op != "arg":
            return None
        place, kind = loop.reads[x.args[0]]
        if not isinstance(place, Place):
            return place.value if type(place.value) in (int, float) else None
        if kind is not float32:
            return None
        if place.strides == dense:
            return EACH, Ref(*place[:2])
        walked = tuple((n, s) for n, s in zip(loop.sizes, place.strides) if n > 1)
        return (CHANNEL, Ref(*place[:2])) if walked == channels else None

    def with_number(op: str, value: float, first: bool) -> Step | None:
        if op == "mul" or (op == "sub" and not first):
            return Step("linear", (value, 0.0)) if op == "mul" else Step("linear", (-1.0, value))
        if op in ("add", "sub"):
            return Step("linear", (1.0, value if op == "add" else -value))
        return Step("div", (value,)) if first else None

    def then(op: str, x: Expr, other: Expr, first: bool) -> _Found | None:
        """Return the steps for `x` followed by an operation with `other`; `first` says whether `x` is its left operand."""
        if op == "add" and other.op == "neg":
            op, other, first = "sub", other.args[0], True
        inner, value = visit(x), operand(other)
        if inner is None or value is None:
            return None
        if type(value) is not tuple:
            step = with_number(op, float(value), first)
            return None if step is None else [*inner, (step, None)]
        if op == "sub" and not first:
            inner, op = [*inner, (Step("linear", (-1.0, 0.0)), None)], "add"
        if op == "div" and not first:
            return None
        return [*inner, (Step(op, (), value[0]), value[1])]

    def visit(x: Expr) -> _Found | None:
        if x is symbol:
            return []
        if x.op == "cast":
            return visit(x.args[0]) if x.args[1] is float32 else None
        if x.op in ("add", "mul", "mul_alone", "sub", "div"):
            left, right = x.args
            op = x.op.removesuffix("_alone")
            both = [symbol.args[0] in arguments((side,)) for side in (left, right)]
            if all(both):
                return None
            return then(op, left, right, True) if both[0] else then(op, right, left, False)
        if x.op == "fma":
            return visit(x.args[0] * x.args[1] + x.args[2])
        if x.op in ("abs", "sqrt", "neg"):
            inner = visit(x.args[0])
            step = Step("linear", (-1.0, 0.0)) if x.op == "neg" else Step(x.op)
            return None if inner is None else [*inner, (step, None)]
        if x.op == "pow" and is_const(x.args[1], 2):
            inner = visit(x.args[0])
            return None if inner is None else [*inner, (Step("square"), None)]
        return leaky(x) if x.op == "where" else None

    def leaky(x: Expr) -> _Found | None:
        """Return the formula of leaky_relu: where(u > 0, u, u * slope)."""
        condition, u, low = x.args
        if condition.op != "gt" or condition.args[0] is not u or not is_const(condition.args[1], 0) or low.op != "mul":
            return None
        slopes = [b for a, b in (low.args, low.args[::-1]) if a is u]
        slope: Any = operand(slopes[0]) if slopes else None
        inner = visit(u)
        if inner is None or type(slope) not in (int, float) or slope == 0 or not math.isfinite(slope):
            return None
        return [*inner, (Step("leaky_relu", (float(slope),)), None)]

    return visit(root)


def _is_filled(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return whether elements are stored without gaps, in any order of dimensions."""
    step = 1
    for s, n in sorted((s, n) for s, n in zip(strides, shape) if n > 1):
        if s != step:
            return False
        step *= n
    return True


def _channels(shape: tuple[int, ...], strides: tuple[int, ...], columns: bool) -> tuple[tuple[int, int], ...]:
    """Return how a loop over a result in memory order walks over one number for each channel: (size, step) of its dimensions."""
    axis = len(shape) - 1 if columns else 1
    inner, step = shape[axis], strides[axis]
    sizes = (math.prod(shape) // (inner * step), 0), (inner, 1), (step, 0)
    return tuple((n, s) for n, s in sizes if n > 1)


def prefer_primitives(graph: StepGraph, results: set[int]) -> None:
    """Multiply by transposed matrices, as linear layers do, with oneDNN primitives made for their shape. Eager calls use code that needs no
    preparation, but copies such a matrix first, on one thread. Sums may be rounded in another order."""
    made: dict[Any, tuple] = {}
    for i, step in enumerate(graph.steps):
        if not isinstance(step, Launch) or type(step.plan) is not DirectProduct:
            continue
        key = step.plan.address, type(step.arguments[_BIAS]) is Ref
        if key not in made:
            made[key] = as_primitive(step.plan, key[1]), step.plan
        plan = made[key][0]
        runner = None if plan is None else sequence.runner(False)
        if plan is not None and runner is not None and not plan.before and not plan.after:
            address = jit.address_of(runner)
            arguments = [plan.address, *step.arguments[1:]]
            graph.steps[i] = Launch(step.name, address, jit.signatures[address], arguments, plan, step.weight)
            graph.rounded_otherwise = True
