"""What libraries do on the way, instead of a pass over memory of its own."""

from __future__ import annotations

from ..backends.cpu import jit
from ..backends.cpu.onednn import sequence
from ..backends.cpu.onednn.direct import DirectProduct
from ..backends.cpu.onednn.gemm import with_its_bias
from .graph import Graph, Launch, Ref

_BIAS = 4  # which argument of a product it is


def join_biases(graph: Graph, results: set[int]) -> None:
    """Let oneDNN add biases while it multiplies, where a product is large: eager calls use code that needs no preparation for a shape,
    and adds them afterwards. Sums may be rounded in another order."""
    made: dict[int, tuple] = {}
    for i, step in enumerate(graph.steps):
        if (
            not isinstance(step, Launch)
            or type(step.plan) is not DirectProduct
            or type(step.arguments[_BIAS]) is not Ref
        ):
            continue
        if step.plan.address not in made:
            made[step.plan.address] = (with_its_bias(step.plan), step.plan)
        plan = made[step.plan.address][0]
        runner = None if plan is None else sequence.runner(False)
        if plan is not None and runner is not None and not plan.before and not plan.after:
            address = jit.address_of(runner)
            graph.steps[i] = Launch(
                step.name, address, jit.signatures[address], [plan.address, *step.arguments[1:]], plan, step.weight
            )
            graph.rounded_otherwise = True


__all__ = ["join_biases"]
