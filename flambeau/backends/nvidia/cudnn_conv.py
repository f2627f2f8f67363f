"""Convolutions and their gradients by cuDNN.

Operands are tensors (batch, channels, one to three sizes), weights (out channels, in channels / groups, sizes); padding is the same on
both sides of a dimension."""

from __future__ import annotations

import threading
from typing import Any

from ...core import dtype as dt
from ...core.aliases import Values
from ...core.raw_memory import first_address as _address
from ...core.settings import are_deterministic_algorithms_enabled, cudnn_switches
from .. import nvidia
from .cudnn_graph import DATA_TYPES, DOUBLE, FLOAT, Descriptor, ExecutionPlan, OperationGraph, Unsupported

_LIMIT = 4096
_OPERATIONS = {  # descriptor, and the attributes alpha, beta, convolution, and those of the tensors by role
    "forward": ("conv_forward", 700, 701, 702, {"w": 703, "x": 704, "y": 705}),
    "input": ("conv_input", 706, 707, 708, {"w": 709, "x": 710, "y": 711}),
    "weight": ("conv_weight", 712, 713, 714, {"w": 715, "x": 716, "y": 717}),
}
_UIDS = {"x": 1, "w": 2, "y": 3}
_BIAS = 4


class _Local(threading.local):
    def __init__(self) -> None:
        self.plans: dict[tuple[Any, ...], ExecutionPlan | None] = {}
        self.known: dict[tuple[Any, ...], ExecutionPlan] = {}


_local = _Local()


def _key(kind: str, x: Any, w: Any, y: Any, together: int, *geometry: Any) -> tuple[Any, ...]:
    """Return everything that a plan depends on; of the addresses only their common alignment, from `together`."""
    together &= 15
    switches = cudnn_switches
    return (
        kind, x.shape, w.shape, y.shape, x._strides, w._strides, y._strides, x.dtype, x.device, *geometry,
        together and together & -together, switches.allow_tf32, switches.benchmark, switches.deterministic,
        are_deterministic_algorithms_enabled(),
    )  # fmt: skip


def run_known(kind: str, x: Any, w: Any, y: Any, window: Values) -> bool:
    """Run the plan for these operands if `convolve` has handled such operands unchanged before; return whether it has."""
    a, b, c = _address(x), _address(w), _address(y)
    plan = _local.known.get(_key(kind, x, w, y, a | b | c, window))
    if plan is None:
        return False
    plan.run_at(a, b, c)
    return True


def keep(kind: str, x: Any, w: Any, y: Any, window: Values, plan: ExecutionPlan) -> None:
    """Cache the plan, so that `run_known` uses it for operands like these."""
    _local.known[_key(kind, x, w, y, _address(x) | _address(w) | _address(y), window)] = plan


def convolve(
    kind: str, x: Any, w: Any, y: Any, stride: tuple[int, ...], padding: Values, dilation: tuple[int, ...], last: bool
) -> ExecutionPlan:
    """Compute y from x and w ("forward"), x from y and w ("input": the gradient, or the transposed convolution), or w from x and y
    ("weight"). All are contiguous, or all with channels last."""
    addresses = {1: _address(x), 2: _address(w), 3: _address(y)}
    key = _key(kind, x, w, y, addresses[1] | addresses[2] | addresses[3], stride, padding, dilation, last)
    plan = _local.plans.get(key)
    if plan is None:
        nvidia.activate(x.device)
        graph = _described(kind, {"x": x, "w": w, "y": y}, stride, padding, dilation, last, key[-5] or 16)
        plan = _planned(graph, x.dtype, addresses)
        _keep_plan(key, plan)
    plan.run(addresses)
    return plan


def rounds(d: Any) -> bool:
    """Return whether convolutions of a dtype may use tensor cores."""
    return d is not dt.float64 and (d is not dt.float32 or cudnn_switches.allow_tf32)


def convolve_and_add(
    x: Any, w: Any, y: Any, bias: Any, stride: tuple[int, ...], padding: Values, dilation: tuple[int, ...]
) -> bool:
    """Compute y from x, w and a bias for each channel, all with channels last. Return False, having done nothing, if no engine does both."""
    addresses = {1: _address(x), 2: _address(w), 3: _address(y), _BIAS: _address(bias)}
    aligned = addresses[1] | addresses[2] | addresses[3]
    key = _key("with bias", x, w, y, aligned, stride, padding, dilation, _address(bias) & 15)
    if key not in _local.plans:
        nvidia.activate(x.device)
        tensors = {"x": x, "w": w, "y": y}
        try:
            graph = _described("forward", tensors, stride, padding, dilation, True, key[-5] or 16, bias)
            _keep_plan(key, _planned(graph, x.dtype, addresses))
        except Unsupported:
            _keep_plan(key, None)
    plan = _local.plans[key]
    if plan is not None:
        plan.run(addresses)
    return plan is not None


def _planned(graph: OperationGraph, d: Any, addresses: dict[int, int]) -> ExecutionPlan:
    deterministic = cudnn_switches.deterministic or are_deterministic_algorithms_enabled()
    trial = addresses if cudnn_switches.benchmark else None
    exact = d is dt.float32 and not cudnn_switches.allow_tf32
    return graph.plan(exact, deterministic, trial, cudnn_switches.benchmark_limit or 10)


def _keep_plan(key: Values, plan: ExecutionPlan | None) -> None:
    if len(_local.plans) >= _LIMIT:
        _local.plans.clear()
        _local.known.clear()
    _local.plans[key] = plan


def _described(
    kind: str,
    tensors: dict[str, Any],
    stride: tuple[int, ...],
    padding: Values,
    dilation: tuple[int, ...],
    last: bool,
    alignment: int,
    bias: Any = None,
) -> OperationGraph:
    double = tensors["x"].dtype is dt.float64
    compute = DOUBLE if double else FLOAT
    graph = OperationGraph(tensors["x"].device, compute)
    spatial = len(stride)
    if spatial == 1:  # as images of one row
        stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
        spatial = 2
    window = (
        (100, "data", compute), (101, "convolution", 1), (102, "int64", dilation), (103, "int64", stride), (104, "int64", padding),
        (105, "int64", padding), (106, "int64", spatial),
    )  # fmt: skip
    name, alpha, beta, window_attribute, roles = _OPERATIONS[kind]
    number = "double" if double else "float"
    how = Descriptor("convolution", *window)
    attributes: list[Any] = [(window_attribute, "descriptor", how), (alpha, number, 1.0), (beta, number, 0.0)]
    for role, t in tensors.items():
        sizes = t.shape if len(t.shape) > 3 else (*t.shape[:2], 1, t.shape[2])
        described = graph.tensor(sizes, _dense(sizes, last), DATA_TYPES[t.dtype], _UIDS[role], alignment)
        if role == "y" and bias is not None:
            result, described = described, graph.tensor(sizes, _dense(sizes, last), compute)
        attributes.append((roles[role], "descriptor", described))
    graph.add(name, *attributes)
    if bias is not None:
        sizes = (1, bias.shape[0], 1, 1)
        row = graph.tensor(sizes, _dense(sizes, last), DATA_TYPES[bias.dtype], _BIAS, bias.dtype.itemsize)
        graph.pointwise("add", result, described, row)
    return graph


def _dense(sizes: tuple[int, ...], last: bool) -> tuple[int, ...]:
    """Return the strides of a dense tensor; dimensions of one element get the step that they would have if there were more: the library
    distinguishes formats by them."""
    strides, step = [0] * len(sizes), 1
    for i in (1, *reversed(range(2, len(sizes))), 0) if last else reversed(range(len(sizes))):
        strides[i] = step
        step *= sizes[i]
    return tuple(strides)
