"""Conversions that are done where values are loaded or stored: the same bits, fewer calls."""

from __future__ import annotations

import flambeau as fl
from flambeau import nn
from tests.graph.helpers import launches, rewritten

F = nn.functional


def test_a_norm_stores_what_is_wanted_of_it() -> None:
    fl.manual_seed(0)
    norm = nn.LayerNorm(16)
    _, program = rewritten(lambda x: norm(x).to(fl.bfloat16), fl.randn(6, 16), states=list(norm.parameters()))
    assert launches(program) == ["layer_norm_rows"]


def test_its_result_is_kept_where_somebody_else_reads_it() -> None:
    norm = nn.LayerNorm(16)

    def f(x):  # noqa: ANN001, ANN202
        y = norm(x)
        return y.to(fl.bfloat16), y.sum()

    _, program = rewritten(f, fl.randn(6, 16), states=list(norm.parameters()))
    assert len(launches(program)) == 3


def test_a_loss_reads_what_scores_were_converted_from() -> None:
    fl.manual_seed(0)
    scores = fl.randn(5, 7).to(fl.bfloat16).requires_grad_()
    targets = fl.randint(0, 7, (5,))

    def f(x, y):  # noqa: ANN001, ANN202
        loss = F.cross_entropy(x.float(), y)
        return loss, fl.autograd.grad(loss, x)[0]

    recorded, program = rewritten(f, scores, targets)
    assert launches(recorded).count("convert") == 2 and "convert" not in launches(program)


def test_what_was_changed_since_it_was_converted_is_not_read() -> None:
    norm = nn.LayerNorm(16)

    def f(x):  # noqa: ANN001, ANN202
        wide = x.float()
        x.mul_(2)
        return norm(wide)

    rewritten(f, fl.randn(6, 16).to(fl.bfloat16), states=list(norm.parameters()))
