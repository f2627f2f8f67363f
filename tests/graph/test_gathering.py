"""Many small tensors in one call: the same bits, and nothing moves past what it depends on."""

from __future__ import annotations

import flambeau as fl
from tests.graph.helpers import launches, rewritten


def test_the_same_formula_over_many_tensors() -> None:
    fl.manual_seed(0)
    given = [fl.randn(n, 3) for n in range(1, 7)]
    scale = fl.tensor(0.5)

    def f(*xs):  # noqa: ANN002, ANN202
        for x in xs[1:]:
            x.mul_(xs[0])
        return [x.to(fl.bfloat16) for x in xs[1:]]

    _, program = rewritten(f, scale, *given)
    assert len(launches(program)) == 1 and len(program.calls[0].results) == 12


def test_copies_of_weights_are_made_before_the_first_is_needed() -> None:
    fl.manual_seed(0)
    weights = [fl.randn(4, 4) for _ in range(4)]

    def f(x):  # noqa: ANN001, ANN202
        for w in weights:
            x = x @ w.to(fl.bfloat16)
        return x

    _, program = rewritten(f, fl.randn(2, 4).to(fl.bfloat16), states=weights)
    assert launches(program) == ["convert of a list", "mm", "mm", "mm", "mm"]


def test_conversions_of_gradients_wait_for_the_last() -> None:
    fl.manual_seed(0)
    weights = [fl.randn(4, 4).to(fl.bfloat16) for _ in range(4)]

    def f(x):  # noqa: ANN001, ANN202
        wide = []
        for w in weights:
            x = x @ w
            wide.append(x.float())
        return wide

    _, program = rewritten(f, fl.randn(2, 4).to(fl.bfloat16), states=weights)
    assert launches(program) == ["mm", "mm", "mm", "mm", "convert of a list"]


def test_a_write_in_between_keeps_calls_apart() -> None:
    fl.manual_seed(0)

    def f(x, y):  # noqa: ANN001, ANN202
        a = x * 2.5
        b = fl.cumsum(a, 0)
        y.copy_(b)
        c = y * 2.5
        y.cumsum_(0)
        return a, c, y * 2.5

    rewritten(f, fl.randn(5, 3), fl.randn(5, 3))


def test_norms_of_many_tensors_are_one_call() -> None:
    fl.manual_seed(0)
    tensors = [fl.randn(*shape) for shape in ((3, 4), (70,), (1,), (2, 3, 5))]
    tensors[1][3] = float("inf")

    def norms(*given):  # noqa: ANN002, ANN202
        return [t.norm() for t in given], [t.abs().amax() for t in given], [t.norm(1) for t in given]

    recorded, program = rewritten(norms, *tensors, near=1e-6)
    names = launches(program)
    assert sum(name.endswith("norm_of_order of a list") for name in names) == 2 < len(launches(recorded))
    assert "norm_of_order" not in names
