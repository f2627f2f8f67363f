"""Sharding rules: which combinations of placements the arguments and results of an operator may have, on one dimension of a mesh.

A rule gets the call and returns `Ways`. A way has an entry for each tensor among the arguments and for each result: an int (sharded along
that dimension), None (replicated) or a placement (Partial). That all are replicated is always allowed. An operator's rule follows from its
record: from its kind, its formula, its batching rule, or `Op.sharding`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...core.dtype import float32
from ...expr import arg, const
from ...ops.machinery.record import Batched, Op
from .placement_types import Partial


class Place:
    """Position of a tensor among the arguments."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


@dataclass
class Ways:
    """Combinations that a rule allows. `free`: one may be used even if no argument has such a placement yet. `adapt(call, decision, args,
    kwargs)` changes the arguments for the parts; `compute`, with the same arguments, replaces the call. `draws`: random numbers are drawn.
    `exact`: the only combination, with the placements of all arguments and all results on the whole mesh."""

    ways: list[tuple] = field(default_factory=list)
    adapt: Callable | None = None
    free: bool = False
    draws: bool = False
    compute: Callable | None = None
    exact: tuple[list[tuple], list[tuple]] | None = None


Rule = Callable[[Any], "Ways | None"]
RULES: dict[str, Rule] = {}
MAKERS: dict[str, Callable[[Batched], Rule]] = {}
EQUATIONS: list[Callable[[str], Rule]] = []  # what makes the rule of a sum of products


def rule(name: str) -> Callable[[Rule], Rule]:
    """Declare the rule that records refer to as `name`."""

    def declare(fn: Rule) -> Rule:
        RULES[name] = fn
        return fn

    return declare


@functools.lru_cache(4096)
def rule_for(op: Op) -> Rule | None:
    """Return the sharding rule of an operator; None if it has none, so that all ranks compute with whole tensors."""
    declared = op.sharding
    if declared is not None:
        if callable(declared):
            return declared
        return EQUATIONS[0](declared) if "->" in declared else RULES[declared]
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
    """Return the combinations for tensors that broadcast to the shape of the result."""
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
        for before, after in kinds:
            ins = tuple(Partial(before) if i in group else None for i in range(len(call.tensors)))
            ways.append((ins, Partial(after)))
    return Ways(ways)


Kinds = tuple[tuple[str, str], ...]  # how values were to be reduced before the operator, and how after it


def _linear_groups(call: Any) -> list[tuple[frozenset, Kinds]]:
    """Return the sets of tensors in which the operator is linear together, so that partial sums pass through it."""
    impl = call.op.impl
    if impl is None or not hasattr(impl, "operand_names"):  # a copy of another tensor, or of one number on every rank
        waits = sorted({p.reduce_op for t in call.tensors for p in t.placements if type(p) is Partial})
        return [(frozenset(range(len(call.tensors))), tuple((kind, kind) for kind in waits))]
    places = {i: x.index for i, x in enumerate(call.args) if type(x) is Place}
    params = tuple(call.kwargs.get(name, default) for name, default in impl.parameters)
    found: list[tuple[frozenset, Kinds]] = []
    candidates = [frozenset(places)] + [frozenset([i]) for i in places]
    for group in dict.fromkeys(candidates):
        kinds = _passing(impl, group, len(impl.operand_names), params)
        if kinds:
            found.append((frozenset(places[i] for i in group), kinds))
    return found


def _passing(impl: Any, group: frozenset, arity: int, params: tuple) -> Kinds:
    """Return the pending reductions of these operands that may be done after the operator."""
    key = (impl, group, arity, tuple((type(p), p) for p in params))
    try:
        return _passing_formula(key)
    except TypeError:  # parameters that cannot be looked up
        return ()


@functools.lru_cache(4096)
def _passing_formula(key: tuple) -> Kinds:
    impl, group, arity, params = key
    values = [const(p) if kind in (int, float, complex) else p for kind, p in params]
    try:
        root = impl.evaluate([*(arg(i) for i in range(arity)), *values], float32)
    except Exception:  # noqa: BLE001 - a formula that cannot be traced without more dtypes is not known to be linear
        return ()
    if root.op in ("maximum", "minimum") and all(a.op == "arg" for a in root.args):
        return ((root.op[:3], root.op[:3]),)
    if root.op == "neg" and root.args[0].op == "arg":
        return ("sum", "sum"), ("avg", "avg"), ("max", "min"), ("min", "max")
    if _degree(root, group) == 1:
        return ("sum", "sum"), ("avg", "avg")
    return (("avg", "avg"), ("max", "max"), ("min", "min")) if _is_shift(root, group) else ()


def _is_shift(node: Any, group: frozenset) -> bool:
    """Return whether a replicated value is added to an operand of the group: then the largest stays the largest."""
    if node.op == "fma":
        return (
            all(_degree(a, group) == 0 for a in node.args[:2])
            and node.args[2].op == "arg"
            and node.args[2].args[0] in group
        )
    if node.op not in ("add", "sub"):
        return False
    left, right = (_degree(a, group) for a in node.args)
    moved = node.args[0] if right == 0 else node.args[1] if left == 0 and node.op == "add" else None
    return moved is not None and moved.op == "arg" and moved.args[0] in group


def _degree(node: Any, group: frozenset) -> int | None:
    """Return 0 if the expression does not depend on the group, 1 if it is linear in it, None otherwise."""
    if node.op == "arg":
        return 1 if node.args[0] in group else 0
    if node.op == "const":
        return 0
    if node.op == "call":
        return 0 if all(_degree(a, group) == 0 for a in node.args[1:]) else None
    degrees = [_degree(a, group) for a in node.args if hasattr(a, "op")]
    parts = [degree for degree in degrees if degree is not None]
    if len(parts) < len(degrees):
        return None
    if node.op in ("neg", "cast"):
        return parts[0]
    if node.op in ("add", "sub"):
        return parts[0] if parts[0] == parts[1] else None
    if node.op == "fma":
        product = parts[0] + parts[1]
        return product if product == parts[2] and product <= 1 else None
    if node.op == "mul":
        total = sum(parts)
        return total if total <= 1 else None
    if node.op == "div":
        return parts[0] if parts[1] == 0 else None
    return 0 if not any(parts) else None


@rule("random")
def random(call: Any) -> Ways:
    """Sharding rule of random operators: elementwise, with different numbers for each part."""
    found = Ways(aligned(call, tuple(call.metas()[0].shape)))
    found.draws = True
    return found


@rule("like")
def like(call: Any) -> Ways:
    """Rule of operators whose result has the first argument's shape only: its placements are the same, except Partial."""
    rest = (None,) * (len(call.tensors) - 1)
    unread = {p for p in call.tensors[0].placements if isinstance(p, Partial)}  # values that are not read
    ways: list[tuple] = [((d, *rest), d) for d in range(len(call.metas()[0].shape))]
    return Ways(ways + [((p, *rest), None) for p in sorted(unread, key=repr)])


@rule("empty")
def empty(call: Any) -> Ways:
    """Rule of operators that return a tensor of zeros or of no values, which may stay a partial sum."""
    found: Any = like(call)
    return Ways([(ins, ins[0] if isinstance(ins[0], Partial) and ins[0].linear else out) for ins, out in found.ways])


@rule("same")
def same(call: Any) -> Ways:
    """Rule of copies and conversions: every element stays where it is; partial values may stay partial."""
    count = len(call.tensors)
    ways: list[tuple] = [((d,) * count, d) for d in range(call.tensors[0].ndim)]
    kinds = {p for t in call.tensors for p in t.placements if isinstance(p, Partial)}
    dtype = call.metas()[0].dtype
    exact = dtype.is_floating_point or dtype.is_complex or dtype is call.tensors[0].dtype
    # Cutting off what is behind the point leaves the largest the largest.
    ordered = ("max", "min") if dtype.category == 1 else ()
    ways += [((p,) * count, p) for p in sorted(kinds, key=repr) if exact or p.reduce_op in ordered]
    return Ways(ways)


MAKERS["same"] = lambda form: RULES["same"]


def waiting(call: Any) -> list[tuple]:
    """Return the combinations in which partial values pass through an operator that only moves elements."""
    kinds = {p for t in call.tensors for p in t.placements if isinstance(p, Partial)}
    return [((p,) * len(call.tensors), p) for p in sorted(kinds, key=repr)]


@rule("whole")
def whole(call: Any) -> None:
    """Rule of operators whose result depends on all elements: replicate their arguments first."""
