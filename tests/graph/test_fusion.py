"""Fusion: fewer calls, the same bits."""

from __future__ import annotations

import random

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.ops import pointwise
from tests.graph.helpers import launches, rewritten

F = nn.functional


@pytest.fixture(autouse=True)
def _seed() -> None:
    fl.manual_seed(0)


def test_a_chain_becomes_one_call() -> None:
    _, program = rewritten(lambda x: (x * 2 + 1).tanh().abs() - x, fl.randn(3, 5))
    assert launches(program) == ["mul+add+tanh+abs+sub"]


def test_a_users_formula_fuses_by_its_kind() -> None:
    @pointwise
    def swish(x, beta):  # noqa: ANN001, ANN202
        return x * fl.sigmoid(beta * x)

    _, program = rewritten(lambda x: swish(x + 1, 1.5) * 2, fl.randn(4, 4))
    assert len(launches(program)) == 1


def test_a_value_that_is_returned_is_stored_too() -> None:
    _, program = rewritten(lambda x: (x.exp(), x.exp().neg() + 1), fl.randn(7))
    assert len(launches(program)) == 1 and len(program.calls[0].results) == 2


def test_rows_and_columns_are_broadcast() -> None:
    def f(x, row, column):  # noqa: ANN001, ANN202
        y = (x + row) * column
        return y.view(2, 3, 8) * 2 + y.reshape(2, 3, 8)

    _, program = rewritten(f, fl.randn(6, 8), fl.randn(8), fl.randn(6, 1))
    assert len(launches(program)) == 1


def test_views_are_read_through() -> None:
    _, program = rewritten(lambda x: (x.t() * 2).t() + x[:, :], fl.randn(4, 6))
    assert len(launches(program)) == 1


def test_channels_last() -> None:
    x = fl.randn(2, 3, 4, 5).to(memory_format=fl.channels_last)
    recorded, program = rewritten(lambda x: F.relu(x + 1) * x, x)
    assert len(launches(program)) == 1 and program.calls[0].results[0].shape == (120,)


def test_halves_are_rounded_where_memory_would_round_them() -> None:
    def f(x, y):  # noqa: ANN001, ANN202
        h = x.to(fl.bfloat16) * y.to(fl.bfloat16)
        return (h + x).to(fl.float16).float() * 3 + h

    _, program = rewritten(f, fl.randn(33), fl.randn(33))
    assert len(launches(program)) == 1


def test_in_place_updates() -> None:
    def f(x, y):  # noqa: ANN001, ANN202
        y = y.clone()
        y += x
        y *= 2
        y[1:].sub_(x[:-1])
        x.add_(y)
        return y

    recorded, program = rewritten(f, fl.randn(8, 4), fl.randn(8, 4))
    assert len(launches(program)) < len(launches(recorded))


def test_nothing_moves_past_a_write_to_what_it_reads() -> None:
    def f(x, y):  # noqa: ANN001, ANN202
        a = x * 2
        b = fl.cumsum(a, 0)
        x.mul_(3)  # after this x is another
        return a + x, b + a

    rewritten(f, fl.randn(5, 3), fl.randn(5, 3))


def test_a_shifted_read_is_not_joined() -> None:
    def f(x):  # noqa: ANN001, ANN202
        y = x * 2
        return y[1:] + y[:-1]

    _, program = rewritten(f, fl.randn(9))
    assert len(launches(program)) == 2


def test_a_transposed_read_is_not_joined() -> None:
    def f(x):  # noqa: ANN001, ANN202
        y = x * 2
        return y + y.t()

    _, program = rewritten(f, fl.randn(40, 40))
    assert len(launches(program)) == 2


def test_nan_and_infinities() -> None:
    x = fl.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e38, -1e-45])
    rewritten(lambda x: (x * 0 + F.relu(x)).clamp(min=-1) / x, x)


def test_a_training_step() -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(16), nn.Linear(16, 3))
    optimizer = fl.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x, y):  # noqa: ANN001, ANN202
        optimizer.zero_grad()
        with fl.autocast("cpu", dtype=fl.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = fl.randn(4, 6), fl.randint(0, 3, (4,))
    step(x, y)
    states = [*model.parameters(), *(t for s in optimizer.state.values() for t in s.values())]
    recorded, program = rewritten(step, x, y, states=states)
    assert len(launches(program)) < len(launches(recorded))


def test_a_residual_block() -> None:
    conv, norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

    def f(x):  # noqa: ANN001, ANN202
        return F.relu(norm(conv(x)) + x) * 2

    states = [*conv.parameters(), *norm.parameters(), *norm.buffers()]
    rewritten(f, fl.randn(2, 3, 8, 8), states=states)


_UNARY = (
    lambda a: a.exp().clamp(max=100),
    lambda a: a.tanh(),
    lambda a: a * 1.5 + 0.5,
    lambda a: F.relu(a),
    lambda a: -a,
)
_BINARY = (lambda a, b: a + b, lambda a, b: a * b, lambda a, b: fl.where(a > b, a, b), lambda a, b: fl.maximum(a, b))


def _random_program(seed: int) -> None:
    chosen = random.Random(seed)
    shape = chosen.choice([(4, 6), (2, 3, 4), (24,), (6, 4)])
    steps = [(chosen.random(), [chosen.random() for _ in range(4)]) for _ in range(18)]

    def f(*given):  # noqa: ANN002, ANN202
        alive = list(given)

        def pick(u):  # noqa: ANN001, ANN202
            return alive[int(u * len(alive))]

        def shaped(a):  # noqa: ANN001, ANN202
            return a if a.shape == shape else a.reshape(shape)

        for kind, (p, q, r, _) in steps:
            a, b = pick(p), shaped(pick(q))
            if kind < 0.3:
                alive.append(_UNARY[int(r * len(_UNARY))](a))
            elif kind < 0.55:
                alive.append(_BINARY[int(r * len(_BINARY))](shaped(a), b))
            elif kind < 0.65:
                alive.append(a.to(fl.bfloat16 if r < 0.5 else fl.float32))
            elif kind < 0.75 and a.is_floating_point():
                a.mul_(0.5) if r < 0.5 else a.view(-1)[1:].add_(1)
            elif kind < 0.8:
                alive.append(a.reshape(-1))
            elif kind < 0.85:
                alive.append(shaped(a).flip(0))
            elif kind < 0.9:
                alive.append(shaped(a).sum(0, keepdim=True) + shaped(a))
            elif kind < 0.95:
                shaped(a).copy_(b)
            else:
                alive.append(shaped(a).cumsum(0))
        return alive[len(given) :][-4:]

    rewritten(f, *(fl.randn(shape) for _ in range(3)))


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + 20):
        _random_program(seed)


def test_what_a_derivative_needs_is_copied_before_it_is_overwritten() -> None:
    w = nn.Parameter(fl.randn(6))

    def f(x):  # noqa: ANN001, ANN202
        z = x * w
        z += 1
        z.mul_(w)
        z.div_(z.detach() + 2)
        return fl.autograd.grad((z * z).sum(), w)[0]

    rewritten(f, fl.randn(4, 6), states=[w])


@pytest.mark.parametrize(
    "shape, order, count",
    [
        ((4, 3, 2, 5), (0, 2, 1, 3), 1),  # heads of attention
        ((4, 3, 5), (1, 0, 2), 1),
        ((4, 3, 2, 5), (2, 0, 1, 3), 1),
        ((40, 30), (1, 0), 2),  # rows become columns: neighbours would be far apart
        ((4, 30, 20), (0, 2, 1), 2),
    ],
)
def test_dimensions_that_are_exchanged_are_walked_in_one_order(shape: tuple, order: tuple, count: int) -> None:
    def f(x):  # noqa: ANN001, ANN202
        return x * 2, x.view(shape).permute(order).contiguous() + 1

    _, program = rewritten(f, fl.randn(fl.Size(shape).numel()))
    assert len(launches(program)) == count
