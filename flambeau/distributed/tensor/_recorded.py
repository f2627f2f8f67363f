"""Autograd of calls on this rank's parts: their graph is kept behind one node in the graph of DTensors.

The node's backward pass runs the parts' graph. The placements of gradients follow from those of arguments and results: a rank that had the
whole argument and computed a part of the result has a term of a sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...autograd.engine import run_backward
from ...core.graph import RETRY_MESSAGE, GradientEdge, Node, grad_mode, gradient_edge, named_class
from ...core.return_types import NamedResult
from ...core.tensor import Tensor, tensors_in
from . import _dtensor
from ._dtensor_spec import DTensorSpec, TensorMeta, meta_of
from ._redistribute import redistribute_local_tensor
from .placement_types import Partial, Placement, Replicate

_REPLICATE = Replicate()


def moved(t: Any, placements: tuple[Placement, ...]) -> Tensor:
    """Return this rank's part of a tensor redistributed to these placements."""
    if t._spec.cuts == placements:
        return t._local_tensor
    return redistribute_local_tensor(t._local_tensor, t._spec, t._spec.with_placements(placements))


def spread_call(
    compute: Callable[[list[Tensor]], Any],
    mesh: Any,
    tensors: list[Any],
    locals_: list[Tensor],
    inputs: list[tuple],
    outputs: list[tuple],
    metas: list[TensorMeta] | None,
) -> Any:
    """Return the results of a function of each rank's parts, as DTensors with autograd history. For this call, `tensors` have the
    placements `inputs`, and the results have `outputs`."""
    if not (grad_mode.enabled and any(t.requires_grad for t in tensors)):
        result = compute([x._bare_alias() if x._autograd is not None else x for x in locals_])
        return wrapped(result, mesh, outputs, metas)
    starts: list[Any] = []
    parts = []
    for t, local in zip(tensors, locals_):
        part, start = local._bare_alias(), None
        if t.requires_grad:
            start = _Start()
            part._set_history(start, 0)
        parts.append(part)
        starts.append(start)
    result = compute(parts)
    found = tensors_in(result)
    edges = [gradient_edge(t) if t.requires_grad else None for t in found]
    spread = wrapped(result, mesh, outputs, metas)
    if any(edges):
        first = next(e for e in edges if e is not None)
        node = named_class(SpreadNode, first[0].name())(first[0].name(), _edges(tensors, starts))
        node.keep(mesh, starts, inputs, [t._spec for t in tensors], edges, outputs)
        for i, (t, edge) in enumerate(zip(tensors_in(spread), edges)):
            if edge is not None:
                t._set_history(node, i)
    return spread


def _edges(tensors: list[Any], starts: list[Any]) -> tuple:
    return tuple(gradient_edge(t) if start is not None else None for t, start in zip(tensors, starts))


def wrapped(
    result: Any, mesh: Any, outputs: list[tuple], metas: list[TensorMeta] | None, part: Callable | None = None
) -> Any:
    """Wrap results as DTensors; `part` returns this rank's part of one."""
    position = 0

    def wrap(value: Any) -> Any:
        nonlocal position
        if isinstance(value, Tensor):
            i, position = position, position + 1
            local = value._bare_alias() if part is None else part(value)
            meta = _meta_from(local, metas, i)
            return _dtensor.DTensor(local, DTensorSpec(mesh, outputs[i], meta, None, False), requires_grad=False)
        if isinstance(value, (tuple, list)):
            made = [wrap(v) for v in value]
            named = hasattr(value, "_fields") and not isinstance(value, NamedResult)
            return type(value)(*made) if named else type(value)(made)
        return value

    return wrap(result)


def _meta_from(local: Tensor, metas: list[TensorMeta] | None, i: int) -> TensorMeta:
    if metas is None:
        return meta_of(local.shape, local._strides, local.dtype)
    meta = metas[i]
    return meta if meta.dtype is local.dtype else meta_of(meta.shape, meta.stride, local.dtype)


class _Start(Node):
    """Node at which the graph of the parts begins; it holds no tensor."""

    label = "Start"
    edges = ()

    def __init__(self) -> None:
        super().__init__("Start", ())

    def apply(self, grads: list) -> tuple:
        return ()


class SpreadNode(Node):
    """Autograd node of an operator on DTensors: the graph of this rank's parts, and all placements."""

    def keep(
        self, mesh: Any, starts: list, inputs: list[tuple], specs: list[DTensorSpec], edges: list, outputs: list[tuple]
    ) -> None:
        self.mesh, self.inputs, self.specs = mesh, inputs, specs
        self.saved = (starts, edges)
        self.outputs = outputs
        self.output_count = len(edges)

    def release(self) -> None:
        self.saved = None

    def apply(self, grads: list) -> tuple:
        if self.saved is None:
            raise RuntimeError(RETRY_MESSAGE)
        starts, edges = self.saved
        roots: list[Any] = []
        given, tensors, begun = [], [], []
        recording = grad_mode.enabled
        waits = Partial()
        waiting = set() if recording else self._passing_sums(edges, grads)
        for i, (edge, g) in enumerate(zip(edges, grads)):
            if edge is None or g is None:
                continue
            lying = tuple(
                waits if along in waiting else _REPLICATE if p.is_partial() else p
                for along, p in enumerate(self.outputs[i])
            )
            spread = g if isinstance(g, _dtensor.DTensor) else _dtensor.DTensor.from_local(g, self.mesh, lying)
            if recording:
                spread = spread.redistribute(placements=lying)
            local = moved(spread, lying)
            if recording and spread.requires_grad:
                start = _Start()
                local = local._bare_alias()
                local._set_history(start, 0)
                tensors.append((spread, lying))
                begun.append(start)
            roots.append(GradientEdge(*edge))
            given.append(self._scaled(local, i))
        wanted: list[Any] = [s for s in starts if s is not None]
        if not roots or not wanted:
            return (None,) * len(starts)
        ends: list[Any] = [GradientEdge(s, 0) for s in wanted]
        found = iter(run_backward(roots, given, True, recording, ends, False))
        shares = [None if s is None else next(found) for s in starts]
        return self._as_spread(shares, starts, tensors, begun) if recording else self._plain(shares, waiting)

    def _passing_sums(self, edges: list, grads: list) -> set[int]:
        """Return the dimensions of the mesh on which gradients may stay partial sums: derivatives are linear, and all ranks do the same."""
        given = [g for edge, g in zip(edges, grads) if edge is not None and isinstance(g, _dtensor.DTensor)]
        found = set()
        for along in range(self.mesh.ndim):
            same = all(p[along].is_replicate() for p in (*self.inputs, *self.outputs))
            if same and given and all(g.placements[along] == Partial() for g in given):
                found.add(along)
        return found

    def _scaled(self, local: Tensor, i: int) -> Tensor:
        """Return the gradient divided by the number of ranks where the result is an average, or is replicated next to results that are
        not."""
        factor = 1
        for along, p in enumerate(self.outputs[i]):
            mixed = p.is_replicate() and any(not o[along].is_replicate() for o in self.outputs)
            if mixed or p.is_partial("avg"):
                factor *= self.mesh.size(along)
        return local if factor == 1 else local / factor

    def _lying(self, k: int, waiting: Any = ()) -> tuple[Placement, ...]:
        """Return the placements of the gradient of argument k: Partial on mesh dimensions where it was replicated but results are not."""
        found: list[Placement] = []
        for along, p in enumerate(self.inputs[k]):
            if along in waiting or (p.is_replicate() and any(not o[along].is_replicate() for o in self.outputs)):
                found.append(Partial())
            else:
                found.append(_REPLICATE if p.is_partial() else p)
        return tuple(found)

    def _share(self, k: int, local: Tensor, waiting: Any = ()) -> Any:
        for along, p in enumerate(self.inputs[k]):
            if p.is_partial("avg"):
                local = local * self.mesh.size(along)
        meta = self.specs[k].tensor_meta
        assert meta is not None
        spec = DTensorSpec(self.mesh, self._lying(k, waiting), TensorMeta(meta.shape, meta.stride, local.dtype))
        return _dtensor.DTensor(local._bare_alias(), spec, requires_grad=False)

    def _plain(self, shares: list, waiting: set[int]) -> tuple:
        return tuple(None if local is None else self._share(k, local, waiting) for k, local in enumerate(shares))

    def _as_spread(self, shares: list, starts: list, tensors: list, begun: list) -> tuple:
        """Return the gradients as DTensors with autograd history: they depend on the arguments and on the incoming gradients."""
        result: list[Any] = [None if local is None else self._share(k, local) for k, local in enumerate(shares)]
        edges = [None if s is None or not s.requires_grad else gradient_edge(s) for s in shares]
        if any(edges):
            above = tuple(gradient_edge(t) for t, _ in tensors)
            node = named_class(SpreadNode, self.label)(self.label, (*self.edges, *above))
            node.keep(
                self.mesh, [*starts, *begun], [*self.inputs, *(p for _, p in tensors)],
                [*self.specs, *(t._spec for t, _ in tensors)], edges, [self._lying(k) for k in range(len(shares))],
            )  # fmt: skip
            for k, (share, edge) in enumerate(zip(result, edges)):
                if edge is not None:
                    share._set_history(node, k)
        return tuple(result)
