"""What is kept for a derivative is found again from what is there anyway, where that stays as it was."""

from __future__ import annotations

import flambeau as fl
from flambeau import nn
from tests.graph.helpers import launches, rewritten

F = nn.functional


def _loss(x, y, **options):  # noqa: ANN001, ANN003, ANN202
    loss = F.cross_entropy(x.float(), y, **options)
    return loss, fl.autograd.grad(loss.sum(), x)[0]


def test_a_loss_keeps_no_probabilities() -> None:
    fl.manual_seed(0)
    scores = (fl.randn(5, 70) * 3).to(fl.bfloat16).requires_grad_()
    targets = fl.randint(0, 70, (5,))
    weight = fl.rand(70)
    targets[2] = 3
    for options in (
        {},
        {"reduction": "none"},
        {"ignore_index": 3},
        {"label_smoothing": 0.1},
        {"weight": weight, "label_smoothing": 0.2},
    ):
        states = [weight] if "weight" in options else []
        recorded, program = rewritten(lambda x, y: _loss(x, y, **options), scores, targets, states=states, near=1e-6)
        assert "cross_entropy_indices" in launches(recorded)
        assert {"cross_entropy_unrecorded", "cross_entropy_gradient"} <= set(launches(program)), launches(program)
        assert "convert" not in launches(program)
        kept = {b for call in program.calls for b in call.makes}
        assert sum(recorded.buffers[b].size >= 5 * 70 * 4 for b in kept) == 0  # nothing as large as float32 scores


def test_of_planes() -> None:
    scores, targets = fl.randn(2, 6, 3, 4).requires_grad_(), fl.randint(0, 6, (2, 3, 4))
    _, program = rewritten(_loss, scores, targets, near=1e-6)
    assert "cross_entropy_gradient" in launches(program)


def test_scores_that_are_changed_are_not_read_again() -> None:
    targets = fl.randint(0, 7, (5,))

    def f(x, y):  # noqa: ANN001, ANN202
        scores = x * 2
        loss = F.cross_entropy(scores, y)
        with fl.no_grad():
            scores.zero_()
        return loss, fl.autograd.grad(loss, x)[0], scores

    _, program = rewritten(f, fl.randn(5, 7).requires_grad_(), targets)
    assert "cross_entropy_backward" in launches(program)
