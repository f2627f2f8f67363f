"""Attention and its gradients by cuDNN's fused kernels, for half-width floats.

Tensors are (batch, heads, rows, features) with adjacent features, and any other strides; key and value may have fewer heads, each for a
group. The statistics that the forward pass saves for the backward pass are one float32 per row: the logarithm of the sum of exponentials."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

from ...core.caching import remember
from ...core.raw_memory import first_address as _address
from .. import nvidia
from .cudnn_graph import BOOLEAN, DATA_TYPES, FLOAT, INT32, Descriptor, ExecutionPlan, OperationGraph

_LIMIT = 1024
_MAX, _SUM = 3, 0
_Q, _K, _V, _O, _STATS, _BIAS, _DO, _DQ, _DK, _DV, _ROWS, _DQ_SUM = range(1, 13)


class _Local(threading.local):
    def __init__(self) -> None:
        self.plans: dict[tuple[Any, ...], ExecutionPlan] = {}


_local = _Local()


def _planned(key: tuple[Any, ...], where: Any, build: Callable[[], OperationGraph]) -> ExecutionPlan:
    plan = _local.plans.get(key)
    if plan is None:
        nvidia.activate(where)
        plan = remember(_local.plans, key, build().plan(), _LIMIT)
    return plan


def _key(kind: str, tensors: list[Any], bias: Any, scale: float, causal: bool) -> tuple[Any, ...]:
    laid = tuple([(t.shape, t._strides) for t in tensors])
    return kind, laid, bias and (bias.shape, bias._strides), tensors[0].dtype, tensors[0].device, scale, causal


def forward(out: Any, stats: Any, q: Any, k: Any, v: Any, bias: Any, scale: float, causal: bool) -> None:
    """Compute out = softmax(q @ k.T * scale + bias) @ v, and the statistics of its rows."""
    plan = _planned(
        _key("forward", [q, k, v, out], bias, scale, causal),
        q.device,
        lambda: _forward_graph(out, q, k, v, bias, scale, causal),
    )
    places = {_Q: _address(q), _K: _address(k), _V: _address(v), _O: _address(out), _STATS: _address(stats)}
    if bias is not None:
        places[_BIAS] = _address(bias)
    plan.run(places)


def backward(
    grads: list[Any], g: Any, out: Any, stats: Any, q: Any, k: Any, v: Any, bias: Any, scale: float, causal: bool
) -> None:
    """Compute the gradients of q, k and v from g, that of the result."""
    dq, dk, dv = grads
    plan = _planned(
        _key("backward", [q, k, v, out, g, dq, dk, dv], bias, scale, causal),
        q.device,
        lambda: _backward_graph(grads, g, out, q, k, v, bias, scale, causal),
    )
    batch, heads, rows, features = q.shape
    row_sums = nvidia.workspace(4 * batch * heads * rows, q.device)
    dq_sum = nvidia.workspace(4 * batch * heads * rows * features, q.device)
    places = {
        _Q: _address(q), _K: _address(k), _V: _address(v), _O: _address(out), _STATS: _address(stats), _DO: _address(g),
        _DQ: _address(dq), _DK: _address(dk), _DV: _address(dv), _ROWS: row_sums.ptr, _DQ_SUM: dq_sum.ptr,
    }  # fmt: skip
    if bias is not None:
        places[_BIAS] = _address(bias)
    plan.run(places)


class _Attention:
    """Common description of both directions: the operands, and scores in float32 that exist only inside the kernel."""

    def __init__(self, q: Any, k: Any) -> None:
        self.graph = OperationGraph(q.device)
        self.kind = DATA_TYPES[q.dtype]
        batch, heads, rows, _ = q.shape
        self.sizes = (batch, heads, rows, k.shape[2])

    def given(self, t: Any, uid: int, transposed: bool = False) -> Descriptor:
        sizes, strides = list(t.shape), list(t._strides)
        if transposed:
            sizes[2:], strides[2:] = sizes[:1:-1], strides[:1:-1]
        return self.graph.tensor(sizes, strides, DATA_TYPES[t.dtype], uid)

    def scores(self, kind: int = FLOAT) -> Descriptor:
        b, h, s, t = self.sizes
        return self.graph.tensor(self.sizes, (h * s * t, s * t, t, 1), kind)

    def per_row(self, uid: int | None = None) -> Descriptor:
        b, h, s, _ = self.sizes
        return self.graph.tensor((b, h, s, 1), (h * s, s, 1, 1), FLOAT, uid)

    def masked(self, scores: Descriptor, bias: Any) -> Descriptor:
        if bias is None:
            return scores
        return self.graph.pointwise("add", self.scores(), scores, self.given(bias, _BIAS))

    def causal(self, scores: Descriptor) -> Descriptor:
        """Return the scores with minus infinity where the column is beyond the row."""
        pointwise = self.graph.pointwise
        row = pointwise("index", self.scores(INT32), scores, axis=2)
        column = pointwise("index", self.scores(INT32), scores, axis=3)
        seen = pointwise("ge", self.scores(BOOLEAN), row, column, compute=BOOLEAN)
        return pointwise("select", self.scores(), scores, self.graph.number(-math.inf), seen)


def _forward_graph(out: Any, q: Any, k: Any, v: Any, bias: Any, scale: float, causal: bool) -> OperationGraph:
    made = _Attention(q, k)
    graph = made.graph
    scores = graph.matmul(made.scores(), made.given(q, _Q), made.given(k, _K, True))
    scores = graph.pointwise("mul", made.scores(), scores, graph.number(scale))
    scores = made.masked(scores, bias)
    if causal:
        scores = made.causal(scores)
    largest = graph.reduction(_MAX, made.per_row(), scores)
    raised = graph.pointwise("exp", made.scores(), graph.pointwise("sub", made.scores(), scores, largest))
    total = graph.reduction(_SUM, made.per_row(), raised)
    graph.pointwise("add", made.per_row(_STATS), largest, graph.pointwise("log", made.per_row(), total))
    weights = graph.pointwise("div", made.scores(made.kind), raised, total)
    graph.matmul(made.given(out, _O), weights, made.given(v, _V))
    return graph


def _backward_graph(
    grads: list[Any], g: Any, out: Any, q: Any, k: Any, v: Any, bias: Any, scale: float, causal: bool
) -> OperationGraph:
    made = _Attention(q, k)
    graph, (batch, heads, rows, columns) = made.graph, made.sizes
    features = v.shape[3]
    query, key, value = made.given(q, _Q), made.given(k, _K, True), made.given(v, _V, True)
    change, stats, factor = made.given(g, _DO), made.per_row(_STATS), graph.number(scale)
    product_strides = (heads * rows * features, rows * features, heads * features, 1)
    product = graph.tensor((batch, heads, rows, features), product_strides, FLOAT)
    graph.pointwise("mul", product, change, made.given(out, _O))
    total = graph.reduction(_SUM, made.per_row(), product)
    total = graph.pointwise("mul", made.per_row(_ROWS), total, graph.number(1.0))

    scores = graph.matmul(made.scores(), query, key)
    scores = graph.pointwise("mul", made.scores(), scores, factor)
    scores = made.masked(scores, bias)
    scores = graph.pointwise("sub", made.scores(), scores, stats)
    if causal:
        scores = made.causal(scores)
    weights = graph.pointwise("exp", made.scores(), scores)

    turned_sizes = (batch, heads, columns, rows)
    turned_strides = (heads * rows * columns, rows * columns, 1, columns)

    def turned(x: Descriptor) -> Descriptor:
        return graph.reshape(graph.tensor(turned_sizes, turned_strides, made.kind), x)

    def summed(uid: int, t: Any, x: Descriptor, y: Descriptor) -> None:
        """Add the node of the gradient of t, x @ y, summed over groups of heads."""
        if t.shape[1] == heads:
            graph.matmul(made.given(t, uid), x, y)
            return
        wide = t.shape[3]
        whole = graph.tensor(
            (batch, heads, columns, wide), (heads * columns * wide, columns * wide, wide, 1), made.kind
        )
        graph.reduction(_SUM, made.given(t, uid), graph.matmul(whole, x, y))

    dq, dk, dv = grads
    summed(_DV, dv, turned(weights), change)
    slopes = graph.matmul(made.scores(), change, value)
    slopes = graph.pointwise("sub", made.scores(), slopes, total)
    slopes = graph.pointwise("mul", made.scores(), slopes, weights)
    slopes = graph.pointwise("mul", made.scores(), slopes, factor)
    summed(_DK, dk, turned(slopes), query)
    keys = graph.tensor(k.shape, k._strides, made.kind)
    graph.reshape(keys, key)
    wide = q.shape[3]
    accumulated = graph.tensor(q.shape, (heads * rows * wide, rows * wide, wide, 1), FLOAT, _DQ_SUM)
    graph.matmul(accumulated, slopes, keys)
    graph.pointwise("identity", made.given(dq, _DQ), accumulated)
    return graph
