"""Reductions that compute what they reduce: the same bits, nothing stored in between."""

from __future__ import annotations

import pytest

import flambeau as fl
from tests.graph.helpers import launches, rewritten


@pytest.mark.parametrize("dim", [None, 0, 1, (0, 2), -1])
@pytest.mark.parametrize("how", ["sum", "mean", "amax"])
def test_a_formula_is_evaluated_by_the_reduction(dim, how) -> None:
    fl.manual_seed(0)

    def f(x, y):  # noqa: ANN001, ANN202
        d = ((x - y) ** 2 + 1).to(fl.bfloat16)
        return getattr(d, how)(*(() if dim is None else (dim,)))

    x, y = fl.randn(3, 4, 5), fl.randn(3, 4, 5)
    if how == "amax" and dim is None:
        dim = (0, 1, 2)
    _, program = rewritten(f, x, y)
    assert len(launches(program)) == 1


def test_what_somebody_else_reads_is_stored() -> None:
    def f(x):  # noqa: ANN001, ANN202
        y = x.exp() * 2
        return y, y.sum(0)

    _, program = rewritten(f, fl.randn(6, 4))
    assert len(launches(program)) == 2


def test_a_formula_does_not_move_past_a_write_to_what_it_reads() -> None:
    def f(x):  # noqa: ANN001, ANN202
        y = x * 2.5
        x.cumsum_(0)
        return y.sum(), x

    _, program = rewritten(f, fl.randn(6, 4))
    assert len(launches(program)) == 3


def test_rows_are_not_read_in_another_order() -> None:
    _, program = rewritten(lambda x, row: (x * row).sum(0), fl.randn(6, 4), fl.randn(4))
    assert len(launches(program)) == 2
