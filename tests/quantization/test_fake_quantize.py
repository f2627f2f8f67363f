"""Rounding to levels and back: values and gradients as PyTorch's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau


@pytest.fixture(scope="module")
def torch() -> Any:
    return judge("torch")


def _values(dtype: str) -> np.ndarray:
    x = (np.random.default_rng(0).standard_normal((4, 5, 6)) * 3).astype(dtype)
    x.flat[:4] = [np.nan, np.inf, -np.inf, 60000]
    return x


def _same(theirs: Any, ours: Any) -> None:
    a, b = theirs.detach().numpy(), ours.detach().numpy()
    assert a.dtype == b.dtype and a.shape == b.shape
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("form", ["numbers", "tensors", "channels", "float zero points"])
def test_values_and_gradients(torch: Any, dtype: str, form: str) -> None:
    results = []
    for library in (torch, flambeau):
        x = library.tensor(_values(dtype), requires_grad=True)
        if form == "numbers":
            y = library.fake_quantize_per_tensor_affine(x, 0.0173, 7, 0, 255)
        elif form == "tensors":
            zero_point = library.tensor([7], dtype=library.int32)
            y = library.fake_quantize_per_tensor_affine(x, library.tensor([0.0173]), zero_point, 0, 255)
        else:
            scale = library.tensor(np.linspace(0.01, 0.05, 5).astype(np.float32))
            zero_point = library.tensor([0, 3, 7, 100, 255], dtype=library.int32)
            zero_point = zero_point if form == "channels" else zero_point.float() + 0.3
            y = library.fake_quantize_per_channel_affine(x, scale, zero_point, 1, 0, 255)
        y.sum().backward()
        results.append((y, x.grad))
    for theirs, ours in zip(*results):
        _same(theirs, ours)


@pytest.mark.parametrize("zero_point", [3.5, 2.5, -10.0, 300.0])
def test_learned_scales(torch: Any, zero_point: float) -> None:
    results = []
    for library in (torch, flambeau):
        rng = np.random.default_rng(1)
        x = library.tensor((rng.standard_normal((4, 5)) * 3).astype(np.float32), requires_grad=True)
        g = library.tensor(rng.standard_normal((4, 5)).astype(np.float32))
        scale = library.tensor([0.0173], requires_grad=True)
        zero = library.tensor([zero_point], requires_grad=True)
        y = library._fake_quantize_learnable_per_tensor_affine(x, scale, zero, 0, 255, 0.3)
        y.backward(g)
        scales, zeros = scale.detach().expand(5).clone(), zero.detach().expand(5).clone()
        scales.requires_grad_(), zeros.requires_grad_()
        z = library._fake_quantize_learnable_per_channel_affine(x.detach(), scales, zeros, 1, 0, 255, 0.3)
        z.backward(g)
        results.append((y, x.grad, z, scale.grad, zero.grad, scales.grad, zeros.grad))
    for theirs, ours in zip(*results):
        np.testing.assert_allclose(theirs.detach().numpy(), ours.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_moving_averages(torch: Any) -> None:
    cases = itertools.product((False, True), (False, True), ((0, 255), (-128, 127)), (1.0, 1e-7, 0.0))
    for by_row, symmetric, (low, high), size in cases:
        results = []
        for library in (torch, flambeau):
            rng = np.random.default_rng(5)
            start = library.tensor([]) if by_row else library.tensor(float("inf"))
            kept = [start, -start.clone(), library.tensor([1.0]), library.tensor([0], dtype=library.int32)]
            on = library.tensor([1])
            for _ in range(2):
                x = library.tensor((rng.standard_normal((4, 5)) * size).astype(np.float32))
                y = library.fused_moving_avg_obs_fake_quant(x, on, on, *kept, 0.1, low, high, 0, by_row, symmetric)
            results.append((y, *kept))
        for theirs, ours in zip(*results):
            _same(theirs, ours)


def test_backward_does_not_mind_an_observer_that_moved_on() -> None:
    fake = flambeau.ao.quantization.FakeQuantize()
    x = flambeau.randn(4, requires_grad=True)
    y = fake(x)
    fake(x * 3)  # changes scale and zero point in place
    y.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize(
    "call",
    [
        "torch.fake_quantize_per_tensor_affine(x, 0.1, 300, 0, 255)",
        "torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 25, 5)",
        "torch.fake_quantize_per_tensor_affine(x.int(), 0.1, 3, 0, 255)",
        "torch.fake_quantize_per_channel_affine(x, torch.tensor([0.1]), torch.tensor([3]), 0, 0, 255)",
        "torch.fake_quantize_per_channel_affine(x, torch.tensor([0.1]), torch.tensor([3]).int(), 0, 0, 255)",
        "torch.fake_quantize_per_channel_affine(x, torch.tensor([0.1] * 10), torch.tensor([300] * 10).int(), 0, 0, 255)",
        "torch.fake_quantize_per_channel_affine(x, torch.tensor([0.1] * 10).double(), torch.tensor([3] * 10).int(), 0, 0, 255)",
    ],
)
def test_errors(torch: Any, call: str) -> None:
    messages = []
    for library in (torch, flambeau):
        with pytest.raises((RuntimeError, NotImplementedError)) as caught:
            eval(call, {"torch": library, "x": library.arange(10.0)})
        messages.append((caught.type, str(caught.value)))
    assert messages[0] == messages[1]
