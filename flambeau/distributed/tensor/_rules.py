"""Sharding rules: in which ways the arguments and results of an operator may lie together, on one dimension of a mesh.

A rule gets the call and returns `Ways`. A way has an entry for each tensor among the arguments and for each result: an int (cut along
that dimension), None (whole on every rank) or a placement (values waiting for a sum). That everything is whole everywhere is always
allowed. Which rule an operator has follows from its record: from its kind, its formula, its batching rule, or `Op.sharding`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...core.device import device
from ...core.tensor import Tensor, contiguous_strides, empty_strided
from ...expr import arg, const
from ...ops.machinery.reduction import reduced_dims
from ...ops.machinery.record import Batched, Op
from ._utils import compute_local_shape
from .placement_types import Partial, _NormPartial

_META = device("meta")


@dataclass
class Ways:
    """What a rule allows. `free`: a way may be taken even if no argument lies so yet. `adapt(call, decision, args, kwargs)` changes the
    arguments that the parts are called with. `draws`: random numbers are drawn for the result."""

    ways: list[tuple] = field(default_factory=list)
    adapt: Callable | None = None
    free: bool = False
    draws: bool = False


Rule = Callable[[Any], "Ways | None"]
RULES: dict[str, Rule] = {}
MAKERS: dict[str, Callable[[Batched], Rule]] = {}


def rule(name: str) -> Callable[[Rule], Rule]:
    """Declare the rule that records call `name`."""

    def declare(fn: Rule) -> Rule:
        RULES[name] = fn
        return fn

    return declare


@functools.lru_cache(4096)
def rule_for(op: Op) -> Rule | None:
    """The rule of an operator; None where there is none, and all ranks compute with whole tensors."""
    declared = op.sharding
    if declared is not None:
        return declared if callable(declared) else RULES[declared]
    if op.kind in ("pointwise", "reduction", "view", "random"):
        return RULES[op.kind]
    if op.kind == "creation":
        return RULES["like"]
    batching = op.batching
    if isinstance(batching, (str, Batched)):
        form = Batched(batching) if isinstance(batching, str) else batching
        if form.form in MAKERS:
            return MAKERS[form.form](form)
    return None


def shapes(call: Any) -> list[tuple[int, ...]]:
    return [tuple(t.shape) for t in call.tensors]


# -- element by element -------------------------------------------------------------------------------------------------------------


def aligned(call: Any, result: tuple[int, ...]) -> list[tuple]:
    """The ways of tensors that broadcast to the shape of the result."""
    rank = len(result)
    ways = []
    for d in range(rank):
        ins = []
        for shape in shapes(call):
            own = d - (rank - len(shape))
            ins.append(own if own >= 0 and (shape[own] != 1 or result[d] == 1) else None)
        ways.append((tuple(ins), d))
    return ways


@rule("pointwise")
def pointwise(call: Any) -> Ways:
    ways = aligned(call, tuple(call.metas()[0].shape))
    for group, kinds in _linear_groups(call):
        for kind in kinds:
            ins = tuple(Partial(kind) if i in group else None for i in range(len(call.tensors)))
            ways.append((ins, Partial(kind)))
    return Ways(ways)


def _linear_groups(call: Any) -> list[tuple[frozenset, tuple[str, ...]]]:
    """Sets of tensors whose sums (of all of them together) pass through the operator: its formula is linear in them."""
    impl = call.op.impl
    if impl is None or not hasattr(impl, "operand_names"):
        return []
    places = {i: x.index for i, x in enumerate(call.args) if type(x).__name__ == "_Place"}
    params = tuple(call.kwargs.get(name, default) for name, default in impl.parameters)
    found = []
    candidates = [frozenset(places)] + [frozenset([i]) for i in places]
    for group in dict.fromkeys(candidates):
        if _is_linear(impl, group, len(impl.operand_names), params):
            tensors = frozenset(places[i] for i in group)
            found.append((tensors, ("sum", "avg")))
        elif len(group) == len(places) and _is_shift(impl, group, params):
            found.append((frozenset(places.values()), ("avg",)))
    return found


def _is_shift(impl: Any, group: frozenset, params: tuple) -> bool:
    return False


def _is_linear(impl: Any, group: frozenset, arity: int, params: tuple) -> bool:
    key = (impl, group, arity, tuple((type(p), p) for p in params))
    try:
        return _linear_formula(key)
    except TypeError:
        return False


@functools.lru_cache(4096)
def _linear_formula(key: tuple) -> bool:
    impl, group, arity, params = key
    values = [const(p) if kind in (int, float, complex) else p for kind, p in params]
    try:
        root = impl.evaluate([*(arg(i) for i in range(arity)), *values], None)
    except Exception:  # noqa: BLE001 - a formula that cannot be traced without a dtype is not known to be linear
        return False
    return _degree(root, group) == 1


def _degree(node: Any, group: frozenset) -> int | None:
    """0: the expression does not depend on the group; 1: it is linear in it; None: something else."""
    if node.op == "arg":
        return 1 if node.args[0] in group else 0
    if node.op == "const":
        return 0
    if node.op == "call":
        return 0 if all(_degree(a, group) == 0 for a in node.args[1:]) else None
    parts = [_degree(a, group) for a in node.args if hasattr(a, "op")]
    if None in parts:
        return None
    if node.op in ("neg", "cast"):
        return parts[0]
    if node.op in ("add", "sub"):
        return parts[0] if parts[0] == parts[1] else None
    if node.op == "mul":
        total = sum(parts)  # type: ignore[arg-type]
        return total if total <= 1 else None
    if node.op == "div":
        return parts[0] if parts[1] == 0 else None
    return 0 if not any(parts) else None


@rule("random")
def random(call: Any) -> Ways:
    """As if element by element; a part draws numbers of its own."""
    found = Ways(aligned(call, tuple(call.metas()[0].shape)))
    found.draws = True
    return found


@rule("like")
def like(call: Any) -> Ways:
    """A new tensor that only looks like the first argument: it lies as that does, sums excepted."""
    count = len(call.tensors)
    return Ways([((d, *(None,) * (count - 1)), d) for d in range(len(call.metas()[0].shape))])


@rule("same")
def same(call: Any) -> Ways:
    """Every element stays where it is: copies, conversions. Values waiting for a sum may go on waiting."""
    count = len(call.tensors)
    ways: list[tuple] = [((d,) * count, d) for d in range(call.tensors[0].ndim)]
    kinds = {p for t in call.tensors for p in t.placements if isinstance(p, Partial)}
    dtype = call.metas()[0].dtype
    if dtype.is_floating_point or dtype.is_complex or dtype is call.tensors[0].dtype:
        ways += [((p,) * count, p) for p in sorted(kinds, key=repr)]
    return Ways(ways)


MAKERS["same"] = lambda form: RULES["same"]


# -- reductions ---------------------------------------------------------------------------------------------------------------------

_COMBINED = {"sum": "sum", "prod": "product", "max": "max", "min": "min", "any": "max", "all": "min"}


@rule("reduction")
def reduction(call: Any) -> Ways | None:
    """Along a dimension that is cut, each rank reduces its part; what joins the parts is what joins elements."""
    impl = call.op.impl
    bound = dict(zip(("input", "dim", "keepdim"), call.args)) | call.kwargs
    dim, keepdim = bound.get("dim", bound.get("axis")), bound.get("keepdim", bound.get("keepdims", False))
    shape = tuple(call.tensors[0].shape)
    dims = reduced_dims(dim, len(shape), call.op.name)
    averages = impl.final is not None
    kind = _COMBINED.get(impl.combine)
    if averages:
        kind = "avg" if impl.combine == "sum" else None
    ways: list[tuple] = []
    for d in range(len(shape)):
        if d not in dims:
            ways.append(((d,), d if keepdim else d - sum(1 for r in dims if r < d)))
        elif kind is not None and (kind != "avg" or _even(call, d)):
            ways.append(((d,), Partial(kind)))
    if impl.combine == "sum" and impl.formula(arg(0)) is arg(0):
        ways += [((Partial(p),), Partial(p)) for p in ("sum", "avg")]
    elif kind in ("max", "min") and impl.formula(arg(0)) is arg(0):
        ways.append(((Partial(kind),), Partial(kind)))
    return Ways(ways)


def _even(call: Any, d: int) -> bool:
    """Whether all ranks have equally many elements along a dimension, so that the mean of their means is the mean."""
    t = call.tensors[0]
    parts = t._spec.num_shards_map[d]
    return t.shape[d] % parts == 0


# -- views ------------------------------------------------------------------------------------------------------------------------


@rule("view")
def view(call: Any) -> Ways | None:
    """Which dimensions a view keeps as they are is seen from the strides it makes: each dimension of the argument gets one of its own."""
    t = call.tensors[0]
    shape = tuple(t.shape)
    step, strides = 1, []
    for n in reversed(shape):
        strides.append(step)
        step *= 2 * n + 3
    marks = tuple(reversed(strides))
    args, kwargs = call.filled([empty_strided(shape, marks, t.dtype, _META)])
    try:
        found = call.face(*args, **kwargs)
    except RuntimeError:  # other elements than the strides of a whole tensor would show
        return None
    results = found if isinstance(found, (tuple, list)) else (found,)
    ways: list[tuple] = []
    for d, n in enumerate(shape):
        if n == 1:
            continue
        outs = []
        for out in results:
            places = [j for j, (m, s) in enumerate(zip(out.shape, out._strides)) if s == marks[d] and m == n]
            outs.append(places[0] if len(places) == 1 and _once(out, marks, d) else None)
        if None not in outs and outs:
            ways.append(((d,), tuple(outs)))
    return Ways(ways + waiting(call))


def _once(out: Tensor, marks: tuple[int, ...], d: int) -> bool:
    """Whether no other dimension of a view steps along dimension d too (a diagonal does)."""
    return not any(s > marks[d] and s % marks[d] == 0 and s not in marks for s in out._strides) or all(
        s in marks or s == 0 for s in out._strides
    )


def waiting(call: Any) -> list[tuple]:
    """Values waiting for a reduction go through what only moves elements."""
    kinds = {p for t in call.tensors for p in t.placements if isinstance(p, Partial)}
    return [((p,) * len(call.tensors), p) for p in sorted(kinds, key=repr)]
