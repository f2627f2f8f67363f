"""Passes read calls of operators: what a call is, its record says, whoever has declared it."""

from __future__ import annotations

import flambeau
from flambeau import nn

from .helpers import SETTLED

F = nn.functional


def steps_of(function, *args):
    """The function compiled gives what it gives; the native calls that it is at last."""
    compiled = flambeau.compile(function)
    for _ in range(SETTLED):
        flambeau.testing.assert_close(compiled(*args), function(*args))
    (recorded,) = compiled._compiled.recordings()
    assert recorded.calls, compiled.explain()
    return recorded.program.graph.steps


@flambeau.ops.pointwise
def bent(x, slope):
    return where(x > 0, x, x * slope)  # noqa: F821 - a word of formulas


def test_a_users_operator_is_fused_by_its_kind():
    (step,) = steps_of(lambda x: (bent(x + 1, 0.25) * 2).sum(), flambeau.randn(5, 7))
    assert step.name == "add+bent+mul+sum" and step.weight == 4


def test_a_step_keeps_its_call():
    product, rest = steps_of(lambda x, w: (x @ w).relu() - 1, flambeau.randn(5, 7), flambeau.randn(7, 3))
    assert product.call.op.name == "mm" and [part.op.name for part in rest.call.parts] == ["relu", "sub"]


def test_parts_of_a_concatenation_are_stored_where_they_belong():
    steps = steps_of(lambda x, y: flambeau.cat([x * 2, y + 1], 1), flambeau.randn(4, 3), flambeau.randn(4, 5))
    assert [step.name for step in steps] == ["mul+internal._cat", "add+internal._cat"]


def test_gradients_of_attention_are_stored_where_they_are_copied_to():
    def attended(x):
        q, k, v = (part.view(2, 6, 2, 4).transpose(1, 2) for part in x.split(8, 2))
        F.scaled_dot_product_attention(q, k, v).sum().backward()
        return x.grad

    x = flambeau.randn(2, 6, 24)
    steps = steps_of(lambda x: attended(x.detach().requires_grad_()), x)
    assert not any("_cat" in step.name for step in steps), [step.name for step in steps]
