"""Shapes that change: nothing is planned twice, what is kept has bounds, and the quick ways give the same numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import flambeau as torch
from flambeau.backends.cpu import jit, onednn, threads
from flambeau.backends.cpu.onednn import conv, direct, gemm
from flambeau.backends.cpu.onednn import plan as plans
from flambeau.core import dtype as dtypes
from flambeau.kernels.library.blocked import CHUNK, blocks_from_rows, rows_from_blocks
from flambeau.nn import functional

needs_onednn = pytest.mark.skipif(not onednn.available(), reason="oneDNN is not installed")
needs_compiler = pytest.mark.skipif(not jit.available(), reason="llvmlite is not installed")


@pytest.fixture(autouse=True)
def forget():
    onednn.reset()
    yield
    onednn.reset()


@pytest.fixture
def made(monkeypatch):
    """What is made while a test runs: plans of primitives and direct products."""
    found: list = []
    for kind in (plans.PrimitivePlan, direct.DirectProduct):

        def init(self, *args, original=kind.__init__):
            original(self, *args)
            found.append(self)

        monkeypatch.setattr(kind, "__init__", init)
    return found


def train(n: int) -> None:
    """Products, a convolution, and their gradients, for a size."""
    x = torch.randn(n, 12, requires_grad=True)
    w = torch.randn(20, 12, requires_grad=True)
    functional.linear(x, w, torch.ones(20)).sum().backward()
    torch.bmm(torch.randn(2, n, 12), torch.randn(2, 12, n))
    picture = torch.randn(1, 8, n, 11, requires_grad=True)
    kernel = torch.randn(8, 8, 3, 3, requires_grad=True)
    functional.conv2d(picture, kernel, torch.ones(8), padding=1).mean().backward()


@needs_onednn
def test_a_second_pass_makes_no_new_plan(made):
    for n in range(10, 20):
        train(n)
    first = len(made)
    assert first >= 10 * 6
    for n in range(10, 20):
        train(n)
    assert len(made) == first


def test_pointwise_operators_trace_a_formula_once_for_all_sizes():
    calls = []

    @torch.ops.pointwise
    def noisy(x, y):
        calls.append(1)
        return x * y + 1

    traced = []
    for n in range(2, 12):
        np.testing.assert_array_equal(noisy(torch.ones(n, 3), torch.ones(3)).numpy(), np.full((n, 3), 2, np.float32))
        traced.append(len(calls))
    assert set(traced) == {traced[0]}  # by the first size, never again
    noisy(torch.ones(3, dtype=torch.float64), torch.ones(3))
    assert len(calls) == 2 * traced[0]


@needs_onednn
def test_caches_of_plans_have_bounds(monkeypatch):
    caches = [conv._plans.cache, gemm._plans.cache]
    for cache in caches:
        monkeypatch.setattr(cache, "half", 1 << 20)
    for n in range(10, 60):
        train(n)
        for cache in caches:
            held = [p for p in (*cache.young.values(), *cache.old.values()) if type(p) is plans.PrimitivePlan]
            assert sum(p.size for p in held) <= 2 << 20
            assert len(cache.young) + len(cache.old) <= (2 << 20) // plans.KEY_SIZE


def test_an_entry_larger_than_a_cache_is_still_found():
    cache = plans.PlanCache(10)
    assert cache.find("large", lambda: "entry", 1000) == "entry"
    assert cache.young["large"] == "entry"


def _product(m: int, k: int, n: int, left: bool, right: bool, bias: bool) -> None:
    generator = np.random.default_rng(m * k + n)
    a, b = (generator.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    c = generator.standard_normal(n).astype(np.float32) if bias else None
    x, y = (
        torch.from_numpy(v.T.copy()).t() if turned else torch.from_numpy(v) for v, turned in ((a, left), (b, right))
    )
    out = torch.full((m, n), float("nan"))
    assert onednn.try_matmul(out, x, y, None if c is None else torch.from_numpy(c))
    exact = a.astype(np.float64) @ b + (0 if c is None else c)
    np.testing.assert_allclose(out.numpy(), exact, rtol=0, atol=1e-6 * k + 1e-5)


@needs_onednn
@needs_compiler
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 5, 7), (17, 31, 33), (70, 300, 40), (200, 64, 192), (8, 600, 90)])
def test_products_of_any_size(sizes, left, right, bias):
    _product(*sizes, left, right, bias)


@needs_onednn
@needs_compiler
def test_which_products_are_direct():
    """Decided by the operands alone, so that equal calls give equal bits whatever ran before."""

    def plan(m, k, n, turned=False, dtype=torch.float32):
        b = torch.ones(n, k, dtype=dtype).t() if turned else torch.ones(k, n, dtype=dtype)
        return type(gemm._make(torch.empty(m, n, dtype=dtype), torch.ones(m, k, dtype=dtype), b, None))

    assert plan(100, 64, 64) is direct.DirectProduct
    assert plan(100, 64, 64, turned=True) is direct.DirectProduct
    assert plan(100, 512, 64, turned=True) is plans.PrimitivePlan
    assert plan(1000, 500, 500) is plans.PrimitivePlan
    assert plan(100, 64, 64, dtype=torch.bfloat16) in (plans.PrimitivePlan, type(None))


@needs_onednn
@needs_compiler
def test_equal_products_give_equal_bits_before_and_after_others():
    x, w = torch.randn(37, 129), torch.randn(55, 129)
    first = functional.linear(x, w)
    for n in range(5, 15):
        train(n)
    assert torch.equal(functional.linear(x, w), first)
    onednn.reset()
    assert torch.equal(functional.linear(x, w), first)


@needs_onednn
@needs_compiler
def test_small_direct_products_leave_the_number_of_threads_as_it_was():
    count = threads.get_num_threads()
    try:
        threads.set_num_threads(2)
        torch.randn(8, 8) @ torch.randn(8, 8)
        library = threads.library()
        assert library is None or library.omp_get_max_threads() == 2
    finally:
        threads.set_num_threads(count)


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize("shape", [(1, 8, 5), (2, 16, CHUNK), (3, 24, CHUNK + 3), (2, 20, 7), (1, 3, 2 * CHUNK + 1)])
@pytest.mark.parametrize("how", ["compiled", "interpreted"])
def test_turning_between_rows_and_blocks(shape, block, how):
    if how == "compiled" and not jit.available():
        pytest.skip("llvmlite is not installed")
    batch, channels, positions = shape
    if how == "interpreted" and positions > CHUNK:
        positions = CHUNK + 3
    x = np.random.default_rng(0).standard_normal((batch, channels, positions)).astype(np.float32)
    filled = -(-channels // block) * block
    padded = np.zeros((batch, filled, positions), np.float32)
    padded[:, :channels] = x
    blocked = np.ascontiguousarray(padded.reshape(batch, filled // block, block, positions).swapaxes(2, 3))
    numbers = (batch, channels, positions, channels * positions, positions)
    turn_back, turn = (rows_from_blocks, blocks_from_rows)
    if how == "interpreted":
        turn_back, turn = turn_back.interpret, turn.interpret
    back = np.full_like(x, np.nan)
    turn_back(back.reshape(-1), blocked.reshape(-1), *numbers, block=block)
    np.testing.assert_array_equal(back, x)
    if channels % block == 0:
        made = np.full_like(blocked, np.nan)
        turn(made.reshape(-1), x.reshape(-1), *numbers, block=block)
        np.testing.assert_array_equal(made, blocked)


@needs_onednn
@pytest.mark.parametrize("channels", [3, 8, 12, 16, 24])
@pytest.mark.parametrize("spatial", [(9,), (9, 11), (5, 4, 6)])
def test_convolutions_that_turn_blocks(channels, spatial):
    """Against float64, which no library of blocks computes."""
    dims = len(spatial)
    forward = (functional.conv1d, functional.conv2d, functional.conv3d)[dims - 1]
    results = []
    torch.manual_seed(0)
    values = torch.randn(2, channels, *spatial), torch.randn(channels, channels, *[3] * dims), torch.randn(channels)
    for dtype in (torch.float32, torch.float64):
        x, w, b = (v.clone().to(dtype).requires_grad_() for v in values)
        y = forward(x, w, b, padding=1)
        (y * y).mean().backward()
        results.append([y.detach(), x.grad, w.grad, b.grad])
        x.grad = None
        forward(x, w, b, padding=1).mean().backward()  # a gradient that is one number everywhere
        results[-1].append(x.grad)
    for near, exact in zip(*results):
        scale = max(1.0, float(exact.abs().max()))
        np.testing.assert_allclose(near.numpy(), exact.numpy(), rtol=0, atol=2e-5 * scale)


@needs_onednn
def test_memory_stays_bounded_over_many_shapes():
    """In a process of its own: hundreds of convolutions and batched products, caches of a few megabytes."""
    root = str(Path(torch.__file__).parent.parent)
    program = """
import flambeau as torch
from flambeau.backends.cpu.onednn import conv, gemm
from flambeau.nn import functional
torch.set_num_threads(1)
conv._plans.cache.half = gemm._plans.cache.half = 2 << 20
def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096
def use(i):
    functional.conv2d(torch.randn(1, 4, 8 + i % 40, 8 + i // 40), torch.randn(4, 4, 3, 3))
    torch.bmm(torch.randn(2, 8 + i % 40, 9 + i // 40), torch.randn(2, 9 + i // 40, 12))
    torch.randn(8 + i, 16) @ torch.randn(16, 24)
sizes = []
for i in range(1000):
    use(i)
    if i in (599, 999):
        sizes.append(resident())
print(sizes[1] - sizes[0])
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root, timeout=120)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 24 << 20, run.stdout


def test_dtype_of_pictures_is_float32():
    assert conv.FeatureMaps.of((2, 8, 4, 4), (128, 16, 4, 1), onednn.DATA_TYPES[dtypes.float32]) is not None
    assert conv.FeatureMaps.of((2, 8, 4, 4), (128, 16, 4, 1), onednn.DATA_TYPES[dtypes.bfloat16]) is None
    assert conv.FeatureMaps.of((2, 8, 4, 4), (128, 1, 32, 8), onednn.DATA_TYPES[dtypes.float32]) is None
