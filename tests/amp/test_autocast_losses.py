"""Cross entropy of half-precision scores under autocast: the numbers of float32 copies of them, without such copies."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau
from flambeau.graph.recorder import record

OPTIONS: list[dict[str, Any]] = [
    {},
    {"reduction": "none"},
    {"ignore_index": 2},
    {"weight": flambeau.linspace(0.1, 2.0, 6), "label_smoothing": 0.2},
]


def _loss(x, y, **options):  # noqa: ANN001, ANN003, ANN202
    with flambeau.autocast("cpu", dtype=flambeau.bfloat16):
        return flambeau.nn.functional.cross_entropy(x, y, **options)


def _given(shape: tuple[int, ...], kind: Any) -> tuple[Any, Any]:
    flambeau.manual_seed(0)
    scores = (flambeau.randn(shape) * 3).to(kind).requires_grad_()
    return scores, flambeau.randint(0, 6, (shape[0], *shape[2:]))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", [flambeau.bfloat16, flambeau.float16], ids=str)
@pytest.mark.parametrize("shape", [(5, 6), (2, 6, 3)])
def test_values_and_both_derivatives_are_those_of_float32(options, kind, shape):
    x, y = _given(shape, kind)
    found = []
    for scores in (x, x.float()):
        loss = _loss(scores, y, **options)
        (g,) = flambeau.autograd.grad(loss.sum() * 3, x, create_graph=True)
        found.append((loss, g, *flambeau.autograd.grad((g.float() ** 2).sum(), x)))
    for ours, theirs in zip(*found):
        assert ours.dtype is theirs.dtype
        eps = {flambeau.float32: 1e-6, flambeau.float16: 2e-3, flambeau.bfloat16: 1.6e-2}[ours.dtype]
        flambeau.testing.assert_close(ours, theirs, rtol=eps, atol=eps / 100)


def test_scores_may_be_overwritten_behind_the_loss():
    x, y = _given((5, 6), flambeau.bfloat16)
    found = []
    for overwrites in (False, True):
        scores = x * 1
        loss = _loss(scores, y)
        if overwrites:
            scores.detach().zero_()
        found += flambeau.autograd.grad(loss, x)
    assert flambeau.equal(*found)


def test_nothing_is_as_large_as_the_scores_in_float32():
    x, y = _given((40, 6), flambeau.bfloat16)

    def step(x, y):  # noqa: ANN001, ANN202
        loss = _loss(x * 1, y)
        return loss, flambeau.autograd.grad(loss, x)[0]

    program = record(step, x, y)
    assert max(program.buffers[b].size for call in program.calls for b in call.makes) < 40 * 6 * 4
