"""Gradients of a tensor that was taken apart: parts are written to their places, and nothing is filled or added."""

from __future__ import annotations

import flambeau as fl
from tests.graph.helpers import launches, rewritten


def _apart(take, w, scale=1.0):  # noqa: ANN001, ANN202
    q, k, v = take(w)
    loss = (q * k * scale).float().sum() + (v * v * q).float().sum()
    return fl.autograd.grad(loss, w)[0]


def test_parts_that_fill_the_whole() -> None:
    fl.manual_seed(0)
    w = (fl.randn(4, 5, 12) * 2).round().to(fl.bfloat16)
    w[0, :2], w[1, 1] = 0.0, float("nan")  # zeros make gradients of either sign

    def selected(w):  # noqa: ANN001, ANN202
        p = w.unflatten(-1, (3, 4)).unsqueeze(0).transpose(0, -2).squeeze(-2)
        return p[0], p[1], p[2]

    for take in (
        lambda w: (w[..., :4], w[..., 4:8], w[..., 8:]),
        lambda w: (w[..., 8:], w[..., :4], w[..., 4:8]),
        lambda w: (w[:, 0], w[:, 1], w[:, 2:].sum(1)),
        selected,
    ):
        recorded, program = rewritten(lambda w: _apart(take, w, -1.0), w.clone().requires_grad_())
        assert any(call.op.places for call in recorded.calls)
        assert not any(call.op.places for call in program.calls), launches(program)


def test_parts_that_do_not_fill_it_or_overlap_are_added() -> None:
    w = fl.randn(4, 5, 12)
    for take in (
        lambda w: (w[..., :4], w[..., 4:8], w[..., 7:11]),
        lambda w: (w[..., :4], w[..., 4:8], w[..., 6:10]),
        lambda w: (w[..., ::3], w[..., 1::3], w[..., 2::3]),
    ):
        _, program = rewritten(lambda w: _apart(take, w), w.clone().requires_grad_())
        assert any(call.op.places for call in program.calls)
