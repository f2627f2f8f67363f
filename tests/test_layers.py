"""Imports point downwards only: a module may import its own room and those below, never one above."""

from __future__ import annotations

import pytest

from tests import import_graph

# Every package, floor by floor, lowest first. Rooms of one floor may import each other; the floors below may not know of those above.
FLOORS = [
    {"core"},
    {"expr"},
    {"kernels"},
    {"backends"},
    {"ops"},
    {"backends.nvidia.operators"},
    {"autograd"},
    {"graph"},
    {"compat", "multiprocessing"},
    {
        "amp", "compiler", "distributed", "export", "fx", "library", "nn", "optim", "serialization", "utils",
    },  # may only shrink: rooms that belong on floors of their own
    {
        "_C", "_dynamo", "_higher_order_ops", "_inductor", "_library", "ao", "cpp", "cpu", "cuda", "distributions", "func", "horovod", "jit", "masked", "onnx",
        "profiler", "quantization", "serve", "signal", "sparse", "startup", "vision",
        "testing",
    },
]  # fmt: skip


def test_every_package_has_a_floor() -> None:
    packages = {name for name in import_graph.rooms() if not (import_graph.ROOT / f"{name}.py").exists()}
    assert packages == set().union(*FLOORS)


@pytest.mark.parametrize("floor", range(len(FLOORS)))
def test_no_floor_knows_of_those_above(floor: int) -> None:
    above = set().union(*FLOORS[floor + 1 :])
    wrong = [
        str(each)
        for room in FLOORS[floor]
        for other, found in import_graph.edges()[room].items()
        if other in above
        for each in found
    ]
    assert not wrong
