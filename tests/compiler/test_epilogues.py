"""What oneDNN does with sums on the way: the same numbers as loops give, nan and infinities included, and only where nobody looks."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest

import flambeau
from flambeau import nn
from flambeau.backends.cpu import operands
from flambeau.backends.cpu.onednn import available, gemm
from flambeau.backends.cpu.onednn import conv as convolutions
from flambeau.backends.cpu.onednn.postops import CHANNEL, EACH, FUNCTIONS, OPERATIONS, Step

from .helpers import SETTLED

F = nn.functional
pytestmark = pytest.mark.skipif(not available(), reason="needs oneDNN")

SPECIAL = np.array(
    [math.nan, math.inf, -math.inf, 0, -0.0, 1e-40, -1e-40, 3e38, -3e38, 1e-8, -1e-8, 5, -5, 0.3, -0.3, 1e30],
    np.float32,
)


def plain(step: Step, x: np.ndarray, other: np.ndarray) -> np.ndarray:
    """What a step is to give."""
    first, second = (*map(np.float32, step.numbers), np.float32(0), np.float32(0))[:2]
    if step.kind in OPERATIONS:
        function = {"add": np.add, "mul": np.multiply, "div": np.divide, "sub": np.subtract}[step.kind]
        return function(x, other if step.operand else first)
    return {
        "accumulate": lambda: x + other, "linear": lambda: x * first + second, "leaky_relu": lambda: np.where(x > 0, x, x * first),
        "abs": lambda: np.abs(x), "sqrt": lambda: np.sqrt(x), "square": lambda: x * x,
    }[step.kind]()  # fmt: skip


STEPS = [
    *(Step(kind, (), operand) for kind in OPERATIONS for operand in (EACH, CHANNEL)), Step("div", (3.0,)), Step("abs"), Step("sqrt"),
    Step("square"), Step("linear", (0.3, 0.0)), Step("linear", (-1.0, 2.0)), Step("leaky_relu", (0.01,)), Step("leaky_relu", (-0.5,)),
    Step("accumulate"),
]  # fmt: skip


def check(given: np.ndarray, wanted: np.ndarray, about: object) -> None:
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(given, wanted, rtol=1e-6, atol=0, err_msg=str(about))


def follow_products() -> None:
    """Every step behind a product with one factor 1, whose results are the special numbers."""
    rows, columns = len(SPECIAL), 37
    a, b = np.zeros((rows, 8), np.float32), np.zeros((8, columns), np.float32)
    a[:, 0], b[0] = SPECIAL, 1
    a[:, 0] = np.where(np.isfinite(SPECIAL), SPECIAL, 0)
    bias = np.zeros(columns, np.float32)
    sums = np.repeat(a[:, :1], columns, 1)
    for value, column in ((math.nan, 3), (math.inf, 36), (-math.inf, 20)):
        bias[column] = value
        sums[:, column] += np.float32(value)
    described = gemm.Product(*(operands.Operand(t) for t in (np.empty((rows, columns), np.float32), a, b, bias)))
    for step in STEPS:
        other = np.linspace(-2, 2, columns, dtype=np.float32)
        other = other if step.operand == CHANNEL else np.tile(other, (rows, 1))
        out = np.array(other if step.kind == "accumulate" else np.zeros((rows, columns), np.float32))
        plan = described.followed([step])
        assert plan is not None, step
        extra = [other.ctypes.data] if step.operand else []
        plan.run(out.ctypes.data, a.ctypes.data, b.ctypes.data, bias.ctypes.data, *extra)
        with np.errstate(all="ignore"):
            check(out, plain(step, sums, other), step)


def follow_convolutions() -> None:
    for strides in ((18 * 16, 16, 4, 1), (18 * 16, 1, 72, 18)):  # channels first, and last
        shape = (1, 18, 4, 4)
        x = np.zeros(18 * 16, np.float32)
        seen = np.lib.stride_tricks.as_strided(x, shape, [4 * s for s in strides])
        seen[0, 0] = SPECIAL.reshape(4, 4)
        weight = np.zeros((18, 18, 1, 1), np.float32)
        weight[:, 0] = 1
        tensors = {"y": (shape, strides), "x": (shape, strides), "w": (weight.shape, (18, 1, 1, 1))}
        told = convolutions.Described("forward", tensors, flambeau.float32, operands.geometry(2, 1, 0, 1, 1))
        sums = np.repeat(seen[:, :1], 18, 1)
        sums = np.where(np.isfinite(sums), sums, sums)
        for step in STEPS:
            other = np.linspace(-2, 2, 18, dtype=np.float32)
            if step.operand != CHANNEL:
                other = np.linspace(-2, 2, 18 * 16, dtype=np.float32)
            plan = told.followed([step])
            if plan is None:
                assert step.operand == EACH or step.kind == "accumulate", step  # where results are laid out otherwise
                continue
            out = np.array(other if step.kind == "accumulate" else np.zeros(18 * 16, np.float32))
            extra = [other.ctypes.data] if step.operand else []
            plan.run(out.ctypes.data, x.ctypes.data, weight.ctypes.data, *extra)
            wide = other[None, :, None, None] if step.operand == CHANNEL else None
            if wide is None:
                wide = np.lib.stride_tricks.as_strided(other, shape, [4 * s for s in strides])
            with np.errstate(all="ignore"):
                # An infinity in one channel of x meets zeros of the weight: all sums of that place are nan, but for the first tap.
                check(
                    np.lib.stride_tricks.as_strided(out, shape, [4 * s for s in strides]), plain(step, sums, wide), (step, strides)
                )  # fmt: skip


@pytest.mark.parametrize("instructions", ["", "AVX2"])
def test_steps_keep_nan_and_infinities(instructions):
    """With the best instructions that there are, and as on lesser processors."""
    if not instructions:
        follow_products()
        follow_convolutions()
        return
    code = "from tests.compiler import test_epilogues as t; t.follow_products(); t.follow_convolutions()"
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "ONEDNN_MAX_CPU_ISA": instructions}, timeout=120
    )


# -- the pass ----------------------------------------------------------------------------------------------------------------


def run(function, *args, joined, times=SETTLED, limit=2e-6):
    """The function compiled gives what it gives; which steps it has at last."""
    compiled = flambeau.compile(function)
    for _ in range(times + 1):
        ours, theirs = compiled(*args), function(*args)
        flambeau.testing.assert_close(ours, theirs, rtol=limit, atol=limit, equal_nan=True)
    (recorded,) = compiled._compiled.recordings()
    assert recorded.calls, compiled.explain()
    names = [step.name for step in recorded.program.graph.steps]
    assert [n for n in names if ", " in n] == joined, names
    return recorded


layer = nn.Linear(96, 384)
X, R = flambeau.randn(200, 96), flambeau.randn(200, 384)
linear = "internal.linear_matrix"


@pytest.mark.parametrize(
    "function, joined",
    [
        (lambda x, r: layer(x) * 0.5, f"{linear}, mul"),
        (lambda x, r: layer(x) / 3 - 1, f"{linear}, div+sub"),
        (lambda x, r: 1 - layer(x), f"{linear}, rsub"),
        (lambda x, r: F.leaky_relu(layer(x), 0.2), f"{linear}, internal.leaky_relu"),
        (lambda x, r: layer(x) + r, f"{linear}, add"),
        (lambda x, r: r - layer(x), f"{linear}, sub"),
        (lambda x, r: layer(x) - r, f"{linear}, sub"),
        (lambda x, r: flambeau.add(r, layer(x), alpha=2), f"{linear}, add"),
        (lambda x, r: F.leaky_relu(layer(x)) * r + r, f"{linear}, internal.leaky_relu+mul+add"),
        (lambda x, r: layer(x) * layer.bias, f"{linear}, mul"),
        (lambda x, r: layer(x).mul_(3).add_(r), f"{linear}, mul_+add_"),
        (lambda x, r: (x @ layer.weight.t()).abs(), "mm, abs"),
        (lambda x, r: flambeau.bmm(x.view(4, 50, 96), x.view(4, 50, 96).mT) * 0.25, "bmm, mul"),
    ],
)
def test_what_follows_a_product(function, joined):
    with flambeau.no_grad():
        run(function, X, R, joined=[joined])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, r: F.relu(layer(x)),  # oneDNN's makes a number of nan
        lambda x, r: layer(x).clamp(-1, 1),
        lambda x, r: F.silu(layer(x)),  # slower than the loop
        lambda x, r: (y := layer(x), y * 2),  # somebody else reads it
        lambda x, r: (y := layer(x)) * y,
        lambda x, r: layer(x) * r[:, :1],
        lambda x, r: layer(x).view(2, 100, 384) + r.view(2, 100, 384).transpose(0, 1).contiguous().transpose(0, 1),
        lambda x, r: (layer(x).double() * 2).float(),
    ],
)
def test_what_stays_a_loop(function):
    with flambeau.no_grad():
        run(function, X, R, joined=[])


def test_nan_and_infinities_come_through():
    x = X.clone()
    x[0, 0], x[1, 0], x[2, 0], x[3] = math.nan, math.inf, -math.inf, 3e38
    with flambeau.no_grad():
        run(lambda x, r: F.leaky_relu(layer(x)) * r, x, R, joined=[f"{linear}, internal.leaky_relu+mul"])


def test_large_results_read_no_operand_on_the_way():
    """It takes longer than a loop does."""
    x, r = flambeau.randn(1000, 96), flambeau.randn(1000, 384)
    with flambeau.no_grad():
        run(lambda x, r: layer(x) + r, x, r, joined=[])
        run(lambda x: layer(x) * 0.5, x, joined=[f"{linear}, mul"])


def norm(channels, seed=0):
    flambeau.manual_seed(seed)
    made = nn.BatchNorm2d(channels)
    for t in (made.weight, made.bias, made.running_mean):
        nn.init.normal_(t)
    nn.init.uniform_(made.running_var, 0.5, 2)
    return made.eval()


@pytest.mark.parametrize("last", [False, True])
def test_norms_that_evaluate(last):
    """A loop of its own where something follows that a loop does anyway, else part of the convolution."""
    conv, bn, other = nn.Conv2d(16, 32, 3, 2, 1), norm(32), norm(32, 1)
    x = flambeau.randn(4, 16, 20, 20)
    x = x.contiguous(memory_format=flambeau.channels_last) if last else x
    r = flambeau.randn_like(conv(x).detach())
    norms, forward = "internal.normalised", "internal.conv_forward"
    with flambeau.no_grad():
        run(lambda x: bn(conv(x)), x, joined=[f"{forward}, {norms}"])
        run(lambda x: F.leaky_relu(bn(conv(x))), x, joined=[f"{forward}, {norms}+internal.leaky_relu"])
        run(lambda x, r: bn(conv(x)) + r, x, r, joined=[f"{forward}, {norms}+add"] if last else [])
        recorded = run(lambda x, r: F.relu(bn(conv(x)) + other(r)), x, r, joined=[])
    names = [step.name for step in recorded.program.graph.steps]
    assert [n for n in names if "by channels" not in n] == [forward, f"{norms}+add+relu"]


def test_norms_whose_statistics_are_kept():
    """The backward pass of a norm that evaluates reads what it has divided by."""
    conv, bn = nn.Conv2d(16, 32, 3, 2, 1), norm(32)

    def step(x):
        for p in (*conv.parameters(), *bn.parameters()):
            p.grad = None
        bn(conv(x)).square().sum().backward()
        return [p.grad for p in (*conv.parameters(), *bn.parameters())]

    run(step, flambeau.randn(4, 16, 20, 20), joined=[], limit=1e-4)


def test_gradients_are_added_to_by_the_product():
    models, steps = [], []
    for _ in range(2):
        flambeau.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 96), nn.Tanh(), nn.Linear(96, 32))
        for p in model.parameters():
            p.grad = flambeau.ones_like(p)
        models.append(model)

        def step(x, model=model):
            loss = model(x).square().mean()
            loss.backward()
            return loss

        steps.append(step)
    steps[1] = flambeau.compile(steps[1])
    for call in range(7):
        x = flambeau.randn(48, 64)
        for step in steps:
            step(x)
        for p, q in zip(*(m.parameters() for m in models)):
            flambeau.testing.assert_close(q.grad, p.grad, rtol=1e-5, atol=1e-6, msg=f"call {call}")
    (recorded,) = steps[1]._compiled.recordings()
    names = [step.name for step in recorded.program.graph.steps]
    assert recorded.calls >= 3 and names.count("mm, add_") == 2, names


def test_a_product_that_changes_its_own_input_stays():
    square = nn.Linear(200, 200)

    def function(x):
        with flambeau.no_grad():
            return (x * 1.0).add_(square(x)).sum(), x.add_(square(x)) is x

    x, y = flambeau.randn(400, 200), flambeau.empty(400, 200)
    y.copy_(x)
    compiled = flambeau.compile(function)
    for _ in range(6):
        ours, theirs = compiled(x), function(y)
        flambeau.testing.assert_close(ours[0], theirs[0], rtol=1e-5, atol=1e-3)
        flambeau.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)
        x.copy_(y)


def test_no_step_is_known_that_loses_nan():
    assert set(FUNCTIONS) == {"leaky_relu", "square", "abs", "sqrt", "linear"}
