"""Convolutions and their gradients by cuDNN.

Operands are tensors (batch, channels, one to three sizes), weights (out channels, in channels / groups, sizes); padding is the same on
both sides of a dimension."""

from __future__ import annotations

import threading
from typing import Any

from ...core import dtype as dt
from ...core.settings import are_deterministic_algorithms_enabled, cudnn_switches
from .. import nvidia
from .cudnn_graph import DATA_TYPES, DOUBLE, FLOAT, Descriptor, Graph, Plan

_LIMIT = 4096
_OPERATIONS = {  # descriptor, and the attributes alpha, beta, convolution, and those of the tensors by role
    "forward": ("conv_forward", 700, 701, 702, {"w": 703, "x": 704, "y": 705}),
    "input": ("conv_input", 706, 707, 708, {"w": 709, "x": 710, "y": 711}),
    "weight": ("conv_weight", 712, 713, 714, {"w": 715, "x": 716, "y": 717}),
}
_UIDS = {"x": 1, "w": 2, "y": 3}


class _Local(threading.local):
    def __init__(self) -> None:
        self.plans: dict[tuple, Plan] = {}


_local = _Local()


def convolve(kind: str, x: Any, w: Any, y: Any, stride: tuple, padding: tuple, dilation: tuple, last: bool) -> None:
    """y from x and w ("forward"), x from y and w ("input": the gradient, or the transposed convolution), or w from x and y
    ("weight"). All lie contiguously, or all with channels last."""
    tensors = {"x": x, "w": w, "y": y}
    addresses = {_UIDS[role]: t._storage.ptr + t._offset * t.dtype.itemsize for role, t in tensors.items()}
    alignment = 16
    for address in addresses.values():
        while address % alignment:
            alignment //= 2
    exact = x.dtype is dt.float32 and not cudnn_switches.allow_tf32
    deterministic = cudnn_switches.deterministic or are_deterministic_algorithms_enabled()
    key = (
        kind, x.shape, w.shape, y.shape, last, x.dtype, x.device, stride, padding, dilation,
        alignment, exact, deterministic, cudnn_switches.benchmark,
    )  # fmt: skip
    plan = _local.plans.get(key)
    if plan is None:
        nvidia.activate(x.device)
        graph = _described(kind, tensors, stride, padding, dilation, last, alignment)
        trial = addresses if cudnn_switches.benchmark else None
        plan = graph.plan(exact, deterministic, trial, cudnn_switches.benchmark_limit or 10)
        if len(_local.plans) >= _LIMIT:
            _local.plans.clear()
        _local.plans[key] = plan
    plan.run(addresses)


def _described(
    kind: str, tensors: dict, stride: tuple, padding: tuple, dilation: tuple, last: bool, alignment: int
) -> Graph:
    double = tensors["x"].dtype is dt.float64
    compute = DOUBLE if double else FLOAT
    graph = Graph(tensors["x"].device, compute)
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
    attributes: list = [(window_attribute, "descriptor", how), (alpha, number, 1.0), (beta, number, 0.0)]
    for role, t in tensors.items():
        sizes = t.shape if len(t.shape) > 3 else (*t.shape[:2], 1, t.shape[2])
        described = graph.tensor(sizes, _dense(sizes, last), DATA_TYPES[t.dtype], _UIDS[role], alignment)
        attributes.append((roles[role], "descriptor", described))
    graph.add(name, *attributes)
    return graph


def _dense(sizes: tuple[int, ...], last: bool) -> tuple[int, ...]:
    """The strides of a filled tensor; dimensions of one element get the step that they would have if there were more: the library
    tells formats apart by them."""
    strides, step = [0] * len(sizes), 1
    for i in (1, *reversed(range(2, len(sizes))), 0) if last else reversed(range(len(sizes))):
        strides[i] = step
        step *= sizes[i]
    return tuple(strides)
