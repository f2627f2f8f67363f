"""Dispatch of a call on DTensors to a call on the parts of each rank.

The operator's rule (`_rules`) says which combinations of placements its arguments and results may have. For each dimension of the mesh the
cheapest is chosen, arguments are redistributed, and the operator runs on the parts. If a gradient is required, the graph of the parts is
kept behind one node: its backward pass runs that graph, and the placements of gradients follow from those of arguments and results."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

from ...core.caching import remember
from ...core.device import device
from ...core.graph import grad_mode, gradient_edge, unrecorded
from ...core.overrides import _made_by_operator
from ...core.tensor import Tensor, empty_strided, tensors_in
from ...ops.machinery.record import Op
from . import _compute_rules, _dtensor, _random, _rules, _view_rules  # noqa: F401 - rules are declared there
from ._dtensor_spec import DTensorSpec, TensorMeta, meta_of
from ._recorded import moved, spread_call, wrapped
from ._redistribute import Redistribute, redistribute_cost
from ._rules import Place
from .placement_types import Partial, Placement, Replicate, Shard, _is_shard_like, _StridedShard

_META = device("meta")
_REPLICATE = Replicate()
_MAX_DECISIONS = 4096


class _Switches(threading.local):
    """Switches of this thread: whether plain tensors among the arguments count as replicated, and who is notified of calls."""

    implicit = False
    watchers: tuple[Callable[[Call], None], ...] = ()


switches = _Switches()


class Call:
    """A call of an operator, with the DTensors extracted from its arguments."""

    def __init__(self, face: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        self.face = face
        self.op: Op = face.op
        self.tensors: list[Any] = []
        self.mesh = _mesh_of((args, kwargs))
        self.out = kwargs.get("out")
        self.args, self.kwargs = self._taken_out((args, {k: v for k, v in kwargs.items() if k != "out"}))
        self._metas: list[TensorMeta] | None = None

    def _taken_out(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            self.tensors.append(value if isinstance(value, _dtensor.DTensor) else self._everywhere(value))
            return Place(len(self.tensors) - 1)
        if type(value) is dict:
            return {k: self._taken_out(v) for k, v in value.items()}
        if type(value) in (list, tuple):
            return type(value)([self._taken_out(v) for v in value])
        return value

    def _everywhere(self, plain: Tensor) -> Any:
        """Return a plain tensor as a replicated DTensor, if it is a single number or was made by an operator; otherwise raise."""
        if plain.numel() != 1 and not switches.implicit and self.op.namespaces and not _made_by_operator():
            raise RuntimeError(
                f"aten.{self.op.name}.default: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor"
                " before calling distributed operators! Please see"
                " https://docs.pytorch.org/docs/main/distributed.tensor.html#mixed-tensor-and-dtensor-operations for more details."
            )
        return _dtensor.DTensor.from_local(plain, self.mesh, [_REPLICATE] * self.mesh.ndim)

    def filled(self, tensors: list[Any]) -> tuple[tuple, dict[str, Any]]:
        """Return the arguments with other tensors in place of the DTensors."""
        return _filled(self.args, tensors), _filled(self.kwargs, tensors)

    def __str__(self) -> str:
        args, kwargs = self.filled([t._spec for t in self.tensors])
        given = [*map(str, args), *(f"{k}: {v}" for k, v in kwargs.items())]
        return f"{self.name}({', '.join(given)}) on {self.mesh})"

    @property
    def name(self) -> str:
        """PyTorch's name of the operator."""
        return f"aten.{self.op.aten_name}.default"

    def key(self) -> tuple | None:
        """Return the key under which the decision about the call is looked up; None if it cannot be."""
        key = (self.face, tuple(t._spec for t in self.tensors), _frozen(self.args), _frozen(self.kwargs))
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def metas(self) -> list[TensorMeta]:
        """Return the metadata of the whole results."""
        if self._metas is None:
            self._metas = [meta_of(t.shape, t._strides, t.dtype) for t in tensors_in(self.headers())]
        return self._metas

    def headers(self) -> Any:
        """Return the whole results as meta tensors, computed by the operator's layout rule."""
        heads = [empty_strided(tuple(t.shape), t.stride(), t.dtype, _META) for t in self.tensors]
        args, kwargs = (_filled(_on_meta(part), heads) for part in (self.args, self.kwargs))
        return unrecorded(self.face, *args, **kwargs)


def _filled(value: Any, tensors: list[Any]) -> Any:
    if type(value) is Place:
        return tensors[value.index]
    if type(value) is dict:
        return {k: _filled(v, tensors) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)([_filled(v, tensors) for v in value])
    return value


def _on_meta(value: Any) -> Any:
    """Return an argument with devices replaced by "meta"."""
    if isinstance(value, device):
        return _META
    if type(value) is dict:
        return {k: _on_meta(v) for k, v in value.items()}
    return type(value)([_on_meta(v) for v in value]) if type(value) in (list, tuple) else value


def _frozen(value: Any) -> Any:
    if type(value) is Place:
        return value.index, Place
    if type(value) is dict:
        return tuple((k, _frozen(v)) for k, v in value.items())
    if type(value) in (list, tuple):
        return tuple([_frozen(v) for v in value])
    return type(value), value


def _mesh_of(value: Any) -> Any:
    found = None
    for t in _spread_in(value):
        if found is None:
            found = t.device_mesh
        elif found is not t.device_mesh and found != t.device_mesh:
            raise NotImplementedError(
                f"DTensor operations across different device meshes are not supported: got {found} and {t.device_mesh}. Redistribute"
                " them to one mesh first.\n\nSharding propagation failed"
            )
    return found


def _spread_in(value: Any) -> list[Any]:
    if isinstance(value, _dtensor.DTensor):
        return [value]
    if type(value) is dict:
        value = tuple(value.values())
    return [t for part in value for t in _spread_in(part)] if type(value) in (list, tuple) else []


# -- which way ----------------------------------------------------------------------------------------------------------------------


class Decision:
    """Decision about a call: placements of arguments and results, the whole results' shapes, and the arguments for the parts."""

    __slots__ = ("inputs", "outputs", "metas", "possible")

    def __init__(self, inputs: list[tuple], outputs: list[tuple], metas: list[TensorMeta], possible: Any) -> None:
        self.inputs, self.outputs, self.metas, self.possible = inputs, outputs, metas, possible

    def run(self, call: Call, parts: list[Tensor], spec: DTensorSpec | None) -> Any:
        """Call the operator with this rank's parts; `spec` is the placement of the result."""
        args, kwargs = call.filled(parts)
        if self.possible.adapt is not None:
            args, kwargs = self.possible.adapt(call, self, args, kwargs)
        if self.possible.compute is not None:
            return self.possible.compute(call, self, args, kwargs)
        if self.possible.draws:
            with _random.drawing(spec):
                return call.face(*args, **kwargs)
        return call.face(*args, **kwargs)


_decisions: dict[tuple, Decision] = {}
_uses = [0, 0]  # how often a decision was found again, and how often one was made


def dispatch(face: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Run a call that has a DTensor among its arguments."""
    call = Call(face, args, kwargs)
    if call.mesh is None:
        raise RuntimeError(f"{call.op.name}: none of the arguments is a DTensor")
    for tell in switches.watchers:
        tell(call)
    if call.out is not None:
        return _write_out(call)
    if call.mesh.get_coordinate() is None:
        return _outside(call)
    if call.op.sharding == "header":
        return _new_header(call)
    if call.op.in_place or next(iter(call.op.arguments), "") in call.op.writes:
        return _in_place(call)
    decision = None if call.op.writes else _decide(call)
    if decision is None:
        return _as_wholes(call)
    return _run(call, decision)


def _outside(call: Call) -> Any:
    """Handle the call on a rank outside of the mesh: return results without data, with the metadata that the others have."""
    if call.op.in_place or next(iter(call.op.arguments), "") in call.op.writes:
        return call.tensors[0]
    try:
        if not call.op.reads_values:
            call.metas()
    except NotImplementedError:  # what comes out depends on values, which this rank does not have
        return True if inspect.unwrap(call.op.function).__annotations__.get("return") == "bool" else None
    if call.op.reads_values:
        return None
    decision = _decide(call)
    everywhere = (_REPLICATE,) * call.mesh.ndim
    outputs = [everywhere] * len(call.metas()) if decision is None else decision.outputs
    like = call.tensors[0]._local_tensor

    def nothing(head: Tensor) -> Tensor:
        return like.new_empty(0, dtype=head.dtype) if head.shape else like.new_zeros((), dtype=head.dtype)

    return wrapped(call.headers(), call.mesh, outputs, call.metas(), nothing)


def forget_decisions() -> None:
    """Clear the cache of decisions about calls."""
    _decisions.clear()
    _uses[:] = 0, 0


def uses_of_decisions() -> tuple[int, int]:
    """Return the numbers of hits and misses of the cache of decisions since it was last cleared."""
    return _uses[0], _uses[1]


def _decide(call: Call, keep: bool = False) -> Decision | None:
    needs = grad_mode.enabled and any(t.requires_grad for t in call.tensors)
    key = call.key()
    if key is not None:
        key = (key, needs, keep, _compute_rules.losses.of_parts)
        found = _decisions.get(key)
        if found is not None:
            _uses[0] += 1
            return found
    rule = _rules.rule_for(call.op)
    if rule is None:
        return None
    try:
        possible = rule(call)
    except (NotImplementedError, ValueError):  # about what was asked for, not about how it is placed
        raise
    except Exception as problem:
        raise RuntimeError(f"{problem}\n\nSharding propagation failed for {call}") from problem
    if possible is None:
        return None
    decision: Decision | None
    if possible.exact is not None:
        decision = Decision(*possible.exact, call.metas(), possible)
    else:
        decision = _chosen(call, possible, needs, keep)
    if key is not None and decision is not None:
        _uses[1] += 1
        remember(_decisions, key, decision, _MAX_DECISIONS)
    return decision


def _chosen(call: Call, possible: Any, needs: bool, keep: bool) -> Decision | None:
    """Return the cheapest of the possible combinations, for each dimension of the mesh. With `keep`, the first argument keeps its
    placements, and the result gets the same."""
    mesh, tensors = call.mesh, call.tensors
    metas = call.metas()
    count = len(metas)
    inputs: list[list[Placement]] = [[] for _ in tensors]
    outputs: list[list[Placement]] = [[] for _ in range(count)]
    for i in range(mesh.ndim):
        now = [t.placements[i] for t in tensors]
        best, lowest = None, float("inf")
        for ins, outs in _candidates(possible, now, count, len(tensors)):
            if needs and any(isinstance(p, Partial) and not p.linear for p in outs):
                continue
            if keep and (ins[0] != now[0] or (outs and outs[0] != now[0])):
                continue
            cost = _cost(tensors, now, ins, i, mesh.size(i))
            if cost < lowest:
                best, lowest = (ins, outs), cost
        if best is None:
            return None
        for held, p in zip(inputs, best[0]):
            held.append(p)
        for held, p in zip(outputs, best[1]):
            held.append(p)
    return Decision([tuple(p) for p in inputs], [tuple(p) for p in outputs], metas, possible)


def _candidates(possible: Any, now: list[Placement], count: int, width: int) -> list[tuple[list, list]]:
    """Return the combinations for one mesh dimension: those that the rule allows, and all tensors replicated."""
    # First: what costs the same is no reason to cut.
    found: list[tuple[list, list]] = [([_REPLICATE] * width, [_REPLICATE] * count)]
    for ins, outs in possible.ways:
        cut = _cut_like(ins, now)
        if cut is None and not possible.free:
            continue
        made = [_placed(entry, cut) for entry in ins]
        results = list(outs) if isinstance(outs, (list, tuple)) else [outs] * count
        found.append((made, [_placed(entry, cut) for entry in results]))
    return found


def _cut_like(ins: Any, now: list[Placement]) -> Any:
    """Return the current sharding (`Shard`, or a _StridedShard with its factor) if an argument has the one that a combination asks for.
    Combinations without sharding (sums) are always possible."""
    wants = False
    for entry, placement in zip(ins, now):
        if type(entry) is int:
            wants = True
            if _is_shard_like(placement) and placement.dim == entry:
                return placement
    return None if wants else Shard(0)


def _placed(entry: Any, cut: Any) -> Placement:
    if type(entry) is int:
        return _StridedShard(entry, split_factor=cut.split_factor) if type(cut) is _StridedShard else Shard(entry)
    return _REPLICATE if entry is None else entry


def _cost(tensors: list[Any], now: list[Placement], ins: list[Placement], i: int, parts: int) -> float:
    total = 0.0
    for t, placement, wanted in zip(tensors, now, ins):
        if placement != wanted:
            if _is_shard_like(wanted) and t.shape[wanted.dim] < parts:
                return float("inf")
            # Parts may differ in size, and all ranks must decide alike: only the whole counts.
            nbytes = t.numel() * t.dtype.itemsize / t._spec.num_shards
            total += redistribute_cost(placement, wanted, nbytes, parts)
    return total


# -- running it -------------------------------------------------------------------------------------------------------------------


def _run(call: Call, decision: Decision) -> Any:
    locals_ = [moved(t, p) for t, p in zip(call.tensors, decision.inputs)]

    spec = DTensorSpec(call.mesh, decision.outputs[0], decision.metas[0]) if decision.outputs else None

    def compute(parts: list[Tensor]) -> Any:
        return decision.run(call, parts, spec)

    return spread_call(compute, call.mesh, call.tensors, locals_, decision.inputs, decision.outputs, decision.metas)


# -- calls of another form ------------------------------------------------------------------------------------------------------------


def _as_wholes(call: Call) -> Any:
    """Run a call without a rule on whole tensors, on every rank; the result is replicated."""
    everywhere = (_REPLICATE,) * call.mesh.ndim
    locals_ = [moved(t, everywhere) for t in call.tensors]

    def compute(parts: list[Tensor]) -> Any:
        args, kwargs = call.filled(parts)
        if call.op.kind == "random" or call.op.draws:
            with _random.drawing(None):
                return call.face(*args, **kwargs)
        result = call.face(*args, **kwargs)
        bound = call.op.bind(call.args, call.kwargs) if call.op.writes else {}
        for place in (bound[name] for name in call.op.writes):
            target = call.tensors[place.index] if type(place) is Place else None
            if target is not None and not target._spec.is_replicated():  # what was written to is a copy of it
                part = _dtensor._part_of(parts[place.index].detach(), call.mesh, target.placements)
                unrecorded(target._local_tensor.copy_, part)
        return result

    inputs = [everywhere] * len(locals_)

    class _All(list):
        def __getitem__(self, i: Any) -> Any:
            return everywhere

    outputs: Any = _All()
    if not (grad_mode.enabled and any(t.requires_grad for t in call.tensors)):
        return wrapped(compute(locals_), call.mesh, outputs, None)
    results: list = []

    def counted(parts: list[Tensor]) -> Any:
        found = compute(parts)
        results.extend(tensors_in(found))
        outputs.extend([everywhere] * len(results))
        return found

    return spread_call(counted, call.mesh, call.tensors, locals_, inputs, outputs, None)


def _in_place(call: Call) -> Any:
    """Run an in-place call: the first argument keeps its placements, the others are redistributed to fit."""
    target = call.tensors[0]
    if type(call.args[0]) is not Place or call.args[0].index != 0:
        raise RuntimeError(f"{call.op.name}: a plain tensor cannot be changed by a DTensor")
    if grad_mode.enabled and any(t.requires_grad for t in call.tensors) and not call.op.draws:
        return _in_place_recorded(call, target)
    before = call.tensors
    call.tensors = [t.detach() if t._autograd is not None else t for t in before]
    decision = _decide(call, keep=True)
    call.tensors = before
    if decision is None:
        rule = _rules.rule_for(call.op)
        plain = call.op.plain if rule is None else None
        if plain is not None and not call.op.draws and call.op.kind != "random":
            args, kwargs = call.filled(call.tensors)
            _take_values(target, plain.function(*args, **kwargs))
            return target
        if not target._spec.is_replicated() and rule is None:
            raise NotImplementedError(f"Operator {call.name} does not have a sharding strategy registered.")
        if not target._spec.is_replicated():
            raise RuntimeError(
                f"{call.name}: in-place operations that require placement changes are not supported. Attempted to change a tensor with"
                f" placements {target.placements}: redistribute it first, or use the form without underscore."
            )
        everywhere = target.placements
        draws = _rules.Ways(draws=call.op.kind == "random")
        decision = Decision([everywhere] * len(before), [everywhere], [target._spec.tensor_meta], draws)
    locals_ = [moved(t, p) for t, p in zip(call.tensors, decision.inputs)]
    locals_[0] = target._local_tensor
    unrecorded(decision.run, call, locals_, target._spec)
    return target


def _in_place_recorded(call: Call, target: Any) -> Any:
    if target.requires_grad and target.is_leaf:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    args, kwargs = call.filled(call.tensors)
    written = () if call.op.formula is None else call.op.formula(*args, **kwargs)[1]
    if written and not any(isinstance(w, Tensor) for w in written):  # nothing of the past is left
        target._autograd = None
        return _in_place(call)
    if written:
        result = written[0].expand(target.shape).to(target.dtype)
    elif call.op.plain is None:
        raise NotImplementedError(
            f"{call.op.name} on a DTensor whose history is recorded is not in Flambeau yet: use the form without underscore"
        )
    else:
        result = call.op.plain.function(*args, **kwargs)
    edge = gradient_edge(_take_values(target, result))
    if edge is not None:
        target._set_history(*edge)
    return target


def _new_header(call: Call) -> Any:
    """Run an in-place view: the argument gets the shape and data of the result of the out-of-place form."""
    target = call.tensors[0]
    if grad_mode.enabled and target.requires_grad and target.is_leaf:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    args, kwargs = call.filled(call.tensors)
    result: Any = call.op.plain and call.op.plain.function(*args, **kwargs)
    target._hold(result._local_tensor, result._spec)
    edge = gradient_edge(result) if result.requires_grad else None
    if edge is not None:
        target._set_history(*edge)
    return target


def _take_values(target: Any, result: Any) -> Any:
    """Copy the values of another tensor, redistributed to the target's placement, into the target; return them."""
    if result.shape != target.shape:
        raise RuntimeError(
            f"a result of shape {list(result.shape)} does not fit into a DTensor of shape {list(target.shape)}"
        )
    result = Redistribute.apply(result, target.device_mesh, target.placements, False, (None, None))
    unrecorded(target._local_tensor.copy_, result._local_tensor)
    return result


def _write_out(call: Call) -> Any:
    args, kwargs = call.filled(call.tensors)
    result = call.face(*args, **kwargs)
    outs = call.out if isinstance(call.out, (tuple, list)) else (call.out,)
    for out, found in zip(outs, result if isinstance(result, (tuple, list)) else (result,)):
        if not isinstance(out, _dtensor.DTensor):
            raise RuntimeError(f"{call.op.name}(): out= must be a DTensor where an argument is one")
        out.copy_(found)
    return call.out
