"""Sharding rules: in which ways the arguments and results of an operator may lie together, on one dimension of a mesh.

A rule gets the call and returns `Ways`. A way has an entry for each tensor among the arguments and for each result: an int (cut along
that dimension), None (whole on every rank) or a placement (values waiting for a sum). That everything is whole everywhere is always
allowed. Which rule an operator has follows from its record: from its kind, its formula, its batching rule, or `Op.sharding`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...core.device import device
from ...core.dtype import float32
from ...core.tensor import Tensor, empty_strided
from ...expr import arg, const
from ...ops.machinery.record import Batched, Op
from ...ops.machinery.reduction import reduced_dims
from ._utils import compute_local_shape, compute_local_shape_and_global_offset
from .placement_types import Partial, Shard, _MaskPartial, _NormPartial, _StridedShard

_META = device("meta")


class Place:
    """Where a tensor stood among the arguments."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


@dataclass
class Ways:
    """What a rule allows. `free`: a way may be taken even if no argument lies so yet. `adapt(call, decision, args, kwargs)` changes the
    arguments that the parts are called with; `compute`, of the same arguments, replaces the call. `draws`: random numbers are drawn."""

    ways: list[tuple] = field(default_factory=list)
    adapt: Callable | None = None
    free: bool = False
    draws: bool = False
    compute: Callable | None = None


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
        if callable(declared):
            return declared
        return equation(declared) if "->" in declared else RULES[declared]
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
    if impl is None or not hasattr(impl, "operand_names"):  # a copy, of all that there is
        copies = len(call.tensors) == 2
        return [(frozenset((0, 1)), ("sum", "avg"))] if copies else []
    places = {i: x.index for i, x in enumerate(call.args) if type(x) is Place}
    params = tuple(call.kwargs.get(name, default) for name, default in impl.parameters)
    found: list[tuple[frozenset, tuple[str, ...]]] = []
    candidates = [frozenset(places)] + [frozenset([i]) for i in places]
    for group in dict.fromkeys(candidates):
        kinds = _passing(impl, group, len(impl.operand_names), params)
        if kinds:
            found.append((frozenset(places[i] for i in group), kinds))
    return found


def _passing(impl: Any, group: frozenset, arity: int, params: tuple) -> tuple[str, ...]:
    """Which reductions of these operands may wait until after the operator."""
    key = (impl, group, arity, tuple((type(p), p) for p in params))
    try:
        return _passing_formula(key)
    except TypeError:  # parameters that cannot be looked up
        return ()


@functools.lru_cache(4096)
def _passing_formula(key: tuple) -> tuple[str, ...]:
    impl, group, arity, params = key
    values = [const(p) if kind in (int, float, complex) else p for kind, p in params]
    try:
        root = impl.evaluate([*(arg(i) for i in range(arity)), *values], float32)
    except Exception:  # noqa: BLE001 - a formula that cannot be traced without more dtypes is not known to be linear
        return ()
    if root.op in ("maximum", "minimum") and all(a.op == "arg" and a.args[0] in group for a in root.args):
        return (root.op[:3],)
    if _degree(root, group) == 1:
        return ("sum", "avg")
    return ("avg", "max", "min") if _is_shift(root, group) else ()


def _is_shift(node: Any, group: frozenset) -> bool:
    """Whether something that all ranks have is added to an operand of the group: then the largest stays the largest."""
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
    if node.op == "fma":
        product = parts[0] + parts[1]  # type: ignore[operator]
        return product if product == parts[2] and product <= 1 else None
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
    kind = _COMBINED.get(impl.combine)
    joined: Any = None if kind is None else Partial(kind)
    final = None if impl.final is None else impl.final(arg(0), arg(1))
    if final is not None:
        kind, joined = None, None
        if final is arg(0) / arg(1):
            kind, joined = "avg", Partial("avg")
        elif final.op == "sqrt" and final.args[0] is arg(0):
            joined = _NormPartial(2)
    ways: list[tuple] = []
    for d in range(len(shape)):
        if d not in dims:
            ways.append(((d,), d if keepdim else d - sum(1 for r in dims if r < d)))
        elif (
            joined is not None and (kind != "avg" or _even(call, d)) and (kind not in ("max", "min") or _full(call, d))
        ):
            ways.append(((d,), joined))
    if impl.combine == "sum" and impl.formula(arg(0)) is arg(0) and (final is None or kind == "avg"):
        ways += [((Partial(p),), Partial(p)) for p in ("sum", "avg")]
    elif kind in ("max", "min") and impl.formula(arg(0)) is arg(0):
        ways.append(((Partial(kind),), Partial(kind)))
    return Ways(ways)


def _full(call: Any, d: int) -> bool:
    """Whether every rank has an element along a dimension: there is no largest of none."""
    t = call.tensors[0]
    parts = t._spec.num_shards_map[d]
    return -(-t.shape[d] // parts) * (parts - 1) < t.shape[d]


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
            outs.append(places[0] if len(places) == 1 else None)
        if None not in outs and outs:
            ways.append(((d,), tuple(outs)))
    return Ways(ways + waiting(call))


def waiting(call: Any) -> list[tuple]:
    """Values waiting for a reduction go through what only moves elements."""
    kinds = {p for t in call.tensors for p in t.placements if isinstance(p, Partial)}
    return [((p,) * len(call.tensors), p) for p in sorted(kinds, key=repr)]


@rule("reshape")
def reshape(call: Any) -> Ways:
    """Dimensions are joined and cut in groups; parts of the first of a group are parts of the first it becomes, where they are equal."""
    t = call.tensors[0]
    shape, result = tuple(t.shape), tuple(call.metas()[0].shape)
    ways: list[tuple] = []
    parts = t._spec.num_shards_map
    for ins, outs in _groups(shape, result):
        ins = [d for d in ins if shape[d] != 1]
        outs = [d for d in outs if result[d] != 1]
        if ins and outs:
            same = len(ins) == len(outs) == 1
            n = parts[ins[0]]
            if same:
                ways.append(((ins[0],), outs[0]))
            elif Shard(ins[0]) in t.placements and shape[ins[0]] % n == 0 and result[outs[0]] % n == 0:
                ways.append(((Shard(ins[0]),), Shard(outs[0])))
            ways += _interleaved(t, shape, result, ins, outs)
    return Ways(ways + waiting(call), compute=_reshaped)


def _interleaved(t: Any, shape: tuple, result: tuple, ins: list[int], outs: list[int]) -> list[tuple]:
    """Dimensions that become one while a later one of them is cut: then each rank has pieces of the one; and the way back."""
    ways: list[tuple] = []
    if len(outs) == 1:
        before = shape[ins[0]]
        for d in ins[1:]:
            if Shard(d) in t.placements and shape[d] % t._spec.num_shards_map[d] == 0:
                ways.append(((Shard(d),), _StridedShard(outs[0], split_factor=before)))
            before *= shape[d]
    if len(ins) == 1:
        cuts = {p for p in t.placements if isinstance(p, _StridedShard) and p.dim == ins[0]}
        before = result[outs[0]]
        for d in outs[1:]:
            for p in cuts:
                if p.split_factor == before and result[d] % t._spec.num_shards_map[ins[0]] == 0:
                    ways.append(((p,), Shard(d)))
            before *= result[d]
    return ways


def _reshaped(call: Any, decision: Any, args: tuple, kwargs: dict[str, Any]) -> Tensor:
    return args[0].reshape(compute_local_shape(decision.metas[0].shape, call.mesh, decision.outputs[0]))


def _groups(shape: tuple[int, ...], result: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Dimensions of the argument and of the result that have the same elements together, as few as can be."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(shape) or j < len(result):
        ins, outs, left, right = [], [], 1, 1
        if i < len(shape):
            ins, left, i = [i], shape[i], i + 1
        if j < len(result):
            outs, right, j = [j], result[j], j + 1
        while left != right:
            if left < right and i < len(shape):
                ins.append(i)
                left, i = left * shape[i], i + 1
            elif j < len(result):
                outs.append(j)
                right, j = right * result[j], j + 1
            else:
                break
        groups.append((ins, outs))
    return groups


def sized(call: Any, decision: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The size that a part of the result has, in place of that of the whole."""
    size = compute_local_shape(decision.metas[0].shape, call.mesh, decision.outputs[0])
    return (args[0], size, *args[2:]), kwargs


@rule("expand")
def expand(call: Any) -> Ways | None:
    """A view to which the size of the result is given."""
    found = view(call)
    return None if found is None else Ways(found.ways, sized)


@rule("whole")
def whole(call: Any) -> None:
    """Parts cannot be worked on: what the operator does depends on where all elements lie."""


# -- operators that leave dimensions alone -----------------------------------------------------------------------------------------------


def along(form: Batched) -> Rule:
    """Operators that work along the dimensions which their arguments `dims` name: parts along any other can go on their own."""

    def ways(call: Any) -> Ways | None:
        bound = call.op.bind(call.args, call.kwargs)
        first = tuple(call.tensors[0].shape)
        result = tuple(call.metas()[0].shape)
        named: set[int] = set()
        for name in form.dims:
            value = bound.get(name)
            if value is None:
                return None
            for d in value if isinstance(value, (tuple, list)) else (value,):
                named.add(int(d) % max(len(first) + form.extra, 1))
        if form.extra or any(len(s) != len(first) for s in shapes(call)):
            return None
        kept = len(result) == len(first)
        found: list[tuple] = []
        for d, n in enumerate(first):
            if d in named or any(s[d] != n for s in shapes(call)):
                continue
            out = d if kept else d - sum(1 for r in named if r < d)
            if out < len(result) and result[out] == n:
                found.append(((d,) * len(call.tensors), out))
        return Ways(found)

    return ways


MAKERS["along"] = along


@rule("leading")
def leading(call: Any) -> Ways:
    """The last dimensions are worked on together (`inner` of them, or two); those before them can be cut."""
    bound = call.op.bind(call.args, call.kwargs)
    inner = bound.get("inner", 2)
    rank = call.tensors[0].ndim
    return Ways([((d, *(None,) * (len(call.tensors) - 1)), d) for d in range(rank - inner)])


@rule("batch")
def batch(call: Any) -> Ways:
    """Samples of the first argument are on their own."""
    return Ways([((0, *(None,) * (len(call.tensors) - 1)), 0)])


def fronted(form: Batched) -> Rule:
    return RULES["leading"]


MAKERS["fronted"] = fronted


def folded(form: Batched) -> Rule:
    """Images of a batch are on their own."""

    def ways(call: Any) -> Ways | None:
        count = call.tensors[0].shape[0] if call.tensors[0].ndim else 0
        if form.shape is not None or any(not s or s[0] != count for s in shapes(call)):
            return None
        if any(not m.shape or m.shape[0] != count for m in call.metas()):
            return None
        return Ways([((0,) * len(call.tensors), 0)])

    return ways


MAKERS["folded"] = folded


def elementwise_loss(form: Batched) -> Rule:
    """A loss of each element, joined as the argument `reduction` says."""

    def ways(call: Any) -> Ways | None:
        reduction = call.op.bind(call.args, call.kwargs).get("reduction", "mean")
        shape = tuple(call.tensors[0].shape)
        if any(s != shape for s in shapes(call)):
            return None
        joined: dict[str, Any] = {"sum": Partial(), "mean": Partial("avg")}
        found = []
        for d in range(len(shape)):
            if reduction != "mean" or _even(call, d):
                found.append(((d,) * len(call.tensors), joined.get(reduction, d)))
        return Ways(found)

    return ways


MAKERS["loss"] = elementwise_loss


@rule("statistics")
def statistics(call: Any) -> Ways:
    """Variances and the like: along dimensions that are not reduced."""
    arguments = call.args[1]
    shape = tuple(call.tensors[0].shape)
    dims = reduced_dims(arguments.dim, len(shape))
    kept = [d for d in range(len(shape)) if d not in dims]
    return Ways([((d,), d if arguments.keepdim else kept.index(d)) for d in kept])


@rule("cat")
def cat(call: Any) -> Ways:
    """Joined along one dimension; the others can be cut."""
    bound = call.op.bind(call.args, call.kwargs)
    rank = max(len(s) for s in shapes(call))
    new = len(call.metas()[0].shape) - rank  # a new dimension, in stack
    dim = int(bound["dim"]) % (rank + new)
    ways: list[tuple] = []
    for d in range(rank):
        if d != dim or new:
            ins = tuple(d if len(s) == rank else None for s in shapes(call))
            ways.append((ins, d + new if new and d >= dim else d))
    kinds = {p for t in call.tensors for p in t.placements if isinstance(p, Partial)}
    return Ways(ways + [((p,) * len(call.tensors), p) for p in sorted(kinds, key=repr)])


@rule("index_select")
def index_select(call: Any) -> Ways:
    bound = call.op.bind(call.args, call.kwargs)
    rank = call.tensors[0].ndim
    dim = int(bound["dim"]) % max(rank, 1)
    ways: list[tuple] = [((d, None), d) for d in range(rank) if d != dim]
    if call.tensors[1].ndim == 1:
        ways.append(((None, 0), dim))
    return Ways(ways + [((p, None), p) for p in call.tensors[0].placements if isinstance(p, Partial)])


@rule("embedding")
def embedding(call: Any) -> Ways:
    """Parts of the indices, parts of each row, or parts of the table: then each rank looks up what it has."""
    weight, indices = call.tensors
    ways: list[tuple] = [((None, d), d) for d in range(indices.ndim)]
    ways.append(((1, None), indices.ndim))
    ways.append(((0, None), _MaskPartial(offset_shape=weight.shape, offset_dim=0)))
    return Ways(ways, compute=_looked_up)


def _looked_up(call: Any, decision: Any, args: tuple, kwargs: dict[str, Any]) -> Tensor:
    if not any(isinstance(p, _MaskPartial) for p in decision.outputs[0]):
        return call.face(*args, **kwargs)
    weight, indices, padding, *rest = args
    rows, offset = compute_local_shape_and_global_offset(call.tensors[0].shape, call.mesh, decision.inputs[0])
    own = indices - offset[0]
    missing = (own < 0) | (own >= rows[0])
    if not rows[0]:
        return weight.new_zeros((*indices.shape, weight.shape[1])) + weight.sum()
    padding = padding - offset[0] if padding >= 0 and 0 <= padding - offset[0] < rows[0] else -1
    found = call.face(weight, own.masked_fill(missing, 0), padding, *rest, **kwargs)
    return found.masked_fill(missing.unsqueeze(-1), 0)


# -- products -------------------------------------------------------------------------------------------------------------------------


@functools.cache
def equation(text: str) -> Rule:
    """The rule of a sum of products, as einsum writes it: operands whose letters begin with + are added to it."""
    left, right = text.split("->")
    terms = left.split(",")

    def ways(call: Any) -> Ways:
        bound = list(call.op.bind(call.args, call.kwargs).values())
        operands: list[tuple[str, bool]] = []
        for value, term in zip(bound, terms):
            if type(value) is Place:
                rank = call.tensors[value.index].ndim
                operands.append((_letters(term.lstrip("+"), rank), term.startswith("+")))
        out = _letters(right, len(call.metas()[0].shape))
        sizes = [tuple(t.shape) for t in call.tensors]
        found: list[tuple] = []
        for letter in dict.fromkeys("".join(names for names, _ in operands)):
            summed = letter not in out
            ins: list[Any] = []
            for (names, added), shape in zip(operands, sizes):
                if letter in names:
                    d = names.index(letter)
                    ins.append(d if shape[d] != 1 or not added else None)
                else:
                    ins.append(Partial() if added and summed else None)
            found.append((tuple(ins), Partial() if summed else out.index(letter)))
        for k, (_, added) in enumerate(operands):
            if not added:
                waits = tuple(Partial() if i == k or a else None for i, (_, a) in enumerate(operands))
                found.append((waits, Partial()))
        return Ways(found, free=True)

    return ways


def _letters(term: str, rank: int) -> str:
    """The letters of all dimensions; those that ... stands for are numbered from the last."""
    if "..." not in term:
        return term[-rank:] if rank else ""
    before, after = term.split("...")
    count = rank - len(before) - len(after)
    return before + "ABCDEFGHIJKLMNOP"[:count][::-1] + after


@rule("convolution")
def convolution(call: Any) -> Ways:
    """Images of the batch; without groups, channels of the result or of the argument."""
    bound = call.op.bind(call.args, call.kwargs)
    biased = len(call.tensors) == 3
    ways: list[tuple] = [((0, None, None)[: len(call.tensors)], 0)]
    if getattr(bound["window"], "groups", 1) == 1:
        ways.append(((None, 0, 0)[: len(call.tensors)], 1))
        ways.append(((1, 1, Partial()) if biased else (1, 1), Partial()))
    return Ways(ways)


@rule("attention")
def attention(call: Any) -> Ways:
    """Sequences of the batch, and heads."""
    rank = call.tensors[0].ndim
    ways: list[tuple] = []
    for d in range(rank - 2):
        ins = []
        for t in call.tensors:
            own = d - (rank - t.ndim)
            ins.append(own if own >= 0 and t.shape[own] != 1 else None)
        ways.append((tuple(ins), d))
    return Ways(ways)


@rule("loss")
def loss(call: Any) -> Ways:
    """Scores (N, C, ...) and classes (N, ...): samples are on their own; sums of losses wait for the sum."""
    bound = call.op.bind(call.args, call.kwargs)
    scores, classes = call.tensors[:2]
    rest = (None,) * (len(call.tensors) - 2)
    ways: list[tuple] = []
    for d in range(classes.ndim):
        own = d if d == 0 and scores.ndim > 1 else d + 1
        if bound["reduction"] == "none":
            ways.append(((own, d, *rest), d))
        elif bound["reduction"] == "sum":
            ways.append(((own, d, *rest), Partial()))
    of_parts = losses.of_parts
    if of_parts is None:
        return Ways(ways)
    axis = 0 if scores.ndim == 1 else 1
    if not any(p.is_shard(axis) for p in scores.placements):
        raise ValueError(f"loss_parallel: expected scores that are cut along their classes, got {scores.placements}")
    return Ways([((axis, None, *rest), None)], compute=of_parts)


class _Losses(threading.local):
    """What computes losses of scores whose classes are cut, inside `loss_parallel`."""

    of_parts: Callable | None = None


losses = _Losses()
