"""Concatenations and changes of layout: whoever makes a part stores it where it ends up, with the bits of the calls one by one."""

from __future__ import annotations

import random
from typing import Any

import pytest

import flambeau as fl
from tests.graph.helpers import launches, rewritten


def _rotated(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x.chunk(2, -1)
    return fl.cat([a * cos - b * sin, b * cos + a * sin], -1)


def test_rotary_positions_are_one_kernel() -> None:
    def f(x, cos, sin):  # noqa: ANN001, ANN202
        return _rotated(x.transpose(1, 2), cos, sin).to(fl.bfloat16)

    given = fl.randn(2, 5, 3, 8).to(fl.bfloat16), fl.randn(5, 4), fl.randn(5, 4)
    _, program = rewritten(f, *given)
    assert len(launches(program)) == 1, launches(program)


def test_their_gradient_is_stored_in_the_layout_of_the_product_that_reads_it() -> None:
    def f(x, cos, sin, w):  # noqa: ANN001, ANN202
        y = _rotated(x.transpose(1, 2), cos, sin).to(fl.bfloat16)
        (g,) = fl.autograd.grad(y, x, w)
        return g.reshape(10, 24)

    x = fl.randn(2, 5, 3, 8).to(fl.bfloat16).requires_grad_()
    _, program = rewritten(f, x, fl.randn(5, 4), fl.randn(5, 4), fl.randn(2, 3, 5, 8).to(fl.bfloat16))
    assert len(launches(program)) <= 2, launches(program)


def test_a_joined_tensor_that_others_read_stays() -> None:
    def f(x, y):  # noqa: ANN001, ANN202
        joined = fl.cat([x.exp(), y * 2], 1)
        return joined, joined.t().contiguous(), joined.to(fl.bfloat16)

    rewritten(f, fl.randn(4, 6), fl.randn(4, 3))


def test_what_is_joined_may_be_written_to_afterwards() -> None:
    def f(x, y):  # noqa: ANN001, ANN202
        joined = fl.stack([x + 1, y * x], 1)
        moved = joined.permute(2, 0, 1).contiguous()
        joined.mul_(3)
        moved[0].add_(joined.sum())
        return moved

    rewritten(f, fl.randn(4, 6), fl.randn(4, 6))


def test_parts_that_lie_in_gaps_of_each_other_are_told_from_overlapping_ones() -> None:
    def f(x):  # noqa: ANN001, ANN202
        out = fl.zeros(4, 8)
        out[:, :4] = x * 2
        out[:, 4:] = x + 1
        out[:, 2:6] = x - 1
        out[1:3, :4] = x[:2] * 5
        return out

    rewritten(f, fl.randn(4, 4))


def _random_program(seed: int) -> Any:
    choose = random.Random(seed)
    moves = [choose.randrange(1 << 30) for _ in range(8)]

    def f(*given: Any) -> Any:
        values = list(given)
        for move in moves:
            x, y = values[move % len(values)], values[move // 5 % len(values)]
            what, dim = move // 11 % 7, move // 13 % 3
            if what == 0:
                values.append(fl.cat([x * 2, y + x], dim).narrow(dim, 2, 4))
            elif what == 1:
                values.append(fl.stack([x.exp(), y, x - y, y], dim).permute(0, 2, 1, 3).contiguous()[:, 1].contiguous())
            elif what == 2:
                values.append(x.transpose(0, dim).contiguous() + y)
            elif what == 3:
                values.append((x.to(fl.bfloat16).float() * y).transpose(1, 2).contiguous())
            elif what == 4:
                a, b = x.chunk(2, dim)
                values.append(fl.cat([a - b, b * a], dim).transpose(0, 1).to(fl.bfloat16).float())
            elif what == 5:
                y.add_(x.transpose(0, 1) * 0.5)
            else:
                values.append(fl.stack([x, y], 0).permute(1, 2, 0, 3).reshape(4, 4, 2, 4).sum(2) * x)
        return tuple(values[2:])

    return f


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed: int) -> None:
    fl.manual_seed(seed)
    rewritten(_random_program(seed), *(fl.randn(4, 4, 4) for _ in range(2)))
