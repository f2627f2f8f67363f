"""Norms and what is around them in one kernel: the numbers of the calls one by one, and nothing stored in between."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as fl
from flambeau.backends.cpu.device import CpuBackend
from flambeau.graph.row_kernels import FusedRows
from flambeau.ops.linalg import linear
from tests.graph.helpers import launches, rewritten

F = fl.nn.functional


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The pass is for GPUs; its loop nests run anywhere."""
    monkeypatch.setattr(CpuBackend, "hides_latency", True)
    yield


def _rows(program: Any) -> list[str]:
    return [call.op.name for call in program.calls if isinstance(call.op.impl, FusedRows)]


def test_a_residual_addition_a_norm_and_its_conversion_are_one_kernel() -> None:
    def f(x, y, w, b):  # noqa: ANN001, ANN202
        s = x + y
        return s, F.layer_norm(s, (48,), w, b).to(fl.bfloat16)

    given = fl.randn(3, 7, 48), fl.randn(3, 7, 48).to(fl.bfloat16), fl.randn(48), fl.randn(48)
    _, program = rewritten(f, *given, near=1e-2)
    assert len(launches(program)) == len(_rows(program)) == 1


def test_gradients_of_a_norm_are_added_in_its_kernel_and_columns_summed_up_beside() -> None:
    def f(x, y, w, b):  # noqa: ANN001, ANN202
        loss = (F.layer_norm(x, (32,), w, b) * y).sum() + (x * y).sum()
        return fl.autograd.grad(loss, (x, w, b))

    x, w, b = (t.requires_grad_() for t in (fl.randn(5, 9, 32), fl.randn(32), fl.randn(32)))
    _, program = rewritten(f, x, fl.randn(5, 9, 32), w, b, near=1e-4)
    (backward,) = [name for name in _rows(program) if "layer_norm_grads" in name]
    assert "add" in backward and f"columns of {backward}" in launches(program), launches(program)


def test_a_norm_of_the_users_own_is_seen_as_one() -> None:
    def f(x, w):  # noqa: ANN001, ANN202
        y = x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * w
        return y.detach(), *fl.autograd.grad((y * y).sum(), (x, w))

    given = fl.randn(6, 40).requires_grad_(), fl.randn(40).requires_grad_()
    _, program = rewritten(f, *given, near=1e-4)
    assert len(_rows(program)) == 2 and len(launches(program)) == 5, launches(program)


def test_who_makes_a_gradient_sums_it_up_for_the_bias(replace_kernel: Callable) -> None:

    def both(out: list[Any], g: Any, input: Any) -> None:
        out[0].copy_(g.mT @ input)
        out[1].copy_(g.sum(0))

    replace_kernel(linear.linear_grads.op, "cpu", both)
    layer = fl.nn.Linear(24, 16)

    def f(x, y):  # noqa: ANN001, ANN202
        loss = F.layer_norm(layer(x), (16,), y).square().sum()
        return fl.autograd.grad(loss, (layer.weight, layer.bias))

    given = fl.randn(30, 24), fl.randn(16)
    recorded, program = rewritten(f, *given, states=list(layer.parameters()), near=1e-4)
    assert any(call.op.summed for call in recorded.calls) and not any(call.op.summed for call in program.calls)
    assert any("linear_grads" in name for name in _rows(program)), launches(program)


def test_memory_that_changes_in_between_is_not_passed() -> None:
    def f(x, y):  # noqa: ANN001, ANN202
        total = x.sum(-1, keepdim=True)
        y.mul_(total)
        x.copy_(y.cumsum(0))
        late = x.sum(-1, keepdim=True)
        y.add_(late)
        return y * total + late, y.sum(0), x.t().contiguous().sum(0)

    rewritten(f, fl.randn(8, 16), fl.randn(8, 16), near=1e-4)


def test_sums_of_columns_are_read_when_they_are_complete() -> None:
    def f(x):  # noqa: ANN001, ANN202
        d = x - x.mean(-1, keepdim=True)
        return d * d.sum(0), d

    _, program = rewritten(f, fl.randn(9, 24), near=1e-4)
    assert _rows(program)


def test_operands_that_do_not_go_along_rows_are_left_alone() -> None:
    def f(x, t, p):  # noqa: ANN001, ANN202
        m = x.mean(-1, keepdim=True)
        return x - m, t.t() - m, x * p - m, (x.view(4, 3, 20) * p[:3]).sum(-1)

    rewritten(f, fl.randn(12, 20), fl.randn(20, 12), fl.randn(12, 20), near=1e-5)


def test_nan_and_infinities_stay_in_their_rows() -> None:
    x = fl.randn(6, 16)
    x[1, 3], x[2, 5], x[4, 0] = float("nan"), float("inf"), float("-inf")
    rewritten(lambda x, y: F.layer_norm(x + y, (16,)), x, fl.randn(6, 16), near=1e-5)


def _random_program(seed: int) -> Any:
    """A function of three matrices: additions, norms, sums of rows and columns, writes in place, in any order."""
    moves = [random.Random(seed).randrange(1 << 30) for _ in range(9)]

    def f(*given: Any) -> Any:
        values, rows, columns = list(given), [given[0].sum(-1, keepdim=True)], [given[1].sum(0)]
        for move in moves:
            x, y = values[move % len(values)], values[move // 7 % len(values)]
            r, c = rows[move // 11 % len(rows)], columns[move // 13 % len(columns)]
            what = move // 17 % 8
            if what == 0:
                values.append(x * 0.5 + y)
            elif what == 1:
                values.append(F.layer_norm(x, x.shape[-1:], c))
            elif what == 2:
                rows.append((x * y).mean(-1, keepdim=True))
            elif what == 3:
                columns.append((x - r).tanh().sum(0))
            elif what == 4:
                x.mul_(0.5).add_(r.tanh())
            elif what == 5:
                values.append((x * c.tanh()).to(fl.bfloat16).float())
            elif what == 6:
                rows.append(r.sigmoid() + x.sum(-1, keepdim=True) * 0.1)
            else:
                values.append(fl.where(x > r, y, c))
        return tuple(values[3:]) + tuple(rows) + tuple(columns)

    return f


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed: int) -> None:
    fl.manual_seed(seed)
    rewritten(_random_program(seed), *(fl.randn(7, 12) for _ in range(3)), near=2e-2)
