"""Matrix products of a program, which run many times, by the code that is fastest for their shape."""

from __future__ import annotations

from typing import Any

from ...backends.cpu import jit
from ...backends.cpu.onednn import sequence
from ...backends.cpu.onednn.direct import DirectProduct
from ...backends.cpu.onednn.gemm import as_primitive
from ..record.steps import Launch, Ref, StepGraph

_BIAS = 4  # which argument of a product it is


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
