"""Kernels of pooling, resizing, padding, folding, sampling and normalisation, interpreted: there every index is checked
against its buffer, and every result against the compiled kernel's."""

from __future__ import annotations

import inspect
import sys

import numpy as np
import pytest

import flambeau
from flambeau.kernels.loops import LoopKernel

F = flambeau.nn.functional
GENERATOR = np.random.default_rng(6)
IMAGES = GENERATOR.standard_normal((1, 2, 5, 4)).astype(np.float32)
VOLUMES = GENERATOR.standard_normal((1, 1, 3, 4, 3)).astype(np.float32)
SIGNALS = GENERATOR.standard_normal((2, 2, 6)).astype(np.float32)
GRID = flambeau.tensor(GENERATOR.uniform(-1.5, 1.5, (1, 2, 3, 2)).astype(np.float32))
GRID_3D = flambeau.tensor(GENERATOR.uniform(-1.5, 1.5, (1, 1, 2, 2, 3)).astype(np.float32))
PAIR = flambeau.tensor([0.5, 1.5])

CALLS = {
    "max 2x2": (IMAGES, lambda x: F.max_pool2d(x, 2)),
    "max 3x3": (IMAGES, lambda x: F.max_pool2d(x, 3, 2, 1)),
    "max ceil mode": (IMAGES, lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True)),
    "max of the whole": (IMAGES, lambda x: F.max_pool2d(x, (5, 4))),
    "max with indices": (IMAGES, lambda x: F.max_pool2d(x, 2, 1, return_indices=True)[0]),
    "max dilated": (IMAGES, lambda x: F.max_pool2d(x, 2, 1, 1, 2)),
    "max 3d": (VOLUMES, lambda x: F.max_pool3d(x, 2, 1, 1)),
    "adaptive max": (IMAGES, lambda x: F.adaptive_max_pool2d(x, (2, 3))),
    "unpool": (IMAGES, lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)),
    "average": (IMAGES, lambda x: F.avg_pool2d(x, 2)),
    "average padded": (IMAGES, lambda x: F.avg_pool2d(x, 3, 1, 1)),
    "average of many": (IMAGES, lambda x: F.avg_pool2d(x, (5, 4))),
    "average 3d": (VOLUMES, lambda x: F.avg_pool3d(x, 2, 1)),
    "adaptive average": (IMAGES, lambda x: F.adaptive_avg_pool2d(x, (3, 3))),
    "nearest twice": (IMAGES, lambda x: F.interpolate(x, scale_factor=2)),
    "nearest": (IMAGES, lambda x: F.interpolate(x, size=(3, 7))),
    "bilinear": (IMAGES, lambda x: F.interpolate(x, size=(8, 3), mode="bilinear")),
    "bicubic": (IMAGES, lambda x: F.interpolate(x, size=(3, 9), mode="bicubic")),
    "antialias": (IMAGES, lambda x: F.interpolate(x, size=2, mode="bilinear", antialias=True)),
    "linear": (SIGNALS, lambda x: F.interpolate(x, size=9, mode="linear")),
    "trilinear": (VOLUMES, lambda x: F.interpolate(x, scale_factor=1.5, mode="trilinear")),
    "reflect": (IMAGES, lambda x: F.pad(x, (2, 1, -1, 3), "reflect")),
    "replicate": (VOLUMES, lambda x: F.pad(x, (1, 2, 0, 1, 2, -1), "replicate")),
    "circular": (SIGNALS, lambda x: F.pad(x, (3, -1), "circular")),
    "unfold": (IMAGES, lambda x: F.unfold(x, (2, 3), 1, 1, (2, 1))),
    "fold": (IMAGES, lambda x: F.fold(F.unfold(x, 2, 2, 1, 2), (5, 4), 2, 2, 1, 2)),
    "sample": (IMAGES, lambda x: F.grid_sample(x, GRID, align_corners=False)),
    "sample reflected": (IMAGES, lambda x: F.grid_sample(x, GRID, "bicubic", "reflection", True)),
    "sample nearest": (IMAGES, lambda x: F.grid_sample(x, GRID, "nearest", "border", True)),
    "sample volumes": (VOLUMES, lambda x: F.grid_sample(x, GRID_3D, align_corners=True)),
    "batch norm": (IMAGES, lambda x: F.batch_norm(x, None, None, PAIR, PAIR, True)),
    "batch norm of columns": (SIGNALS[0], lambda x: F.batch_norm(x, None, None, training=True)),
    "batch norm by running": (IMAGES, lambda x: F.batch_norm(x, PAIR, PAIR, PAIR, None)),
    "group norm": (IMAGES, lambda x: F.group_norm(x, 2, PAIR, PAIR)),
}


def _interpret_kernels(monkeypatch) -> None:
    """Every kernel runs as the Python function it was written as."""
    for module in [m for name, m in sys.modules.items() if name.startswith("flambeau.")]:
        for name, value in list(vars(module).items()):
            if inspect.isfunction(value) and isinstance(getattr(value, "kernel", None), LoopKernel):
                monkeypatch.setattr(module, name, value.interpret)


def _results(call, array: np.ndarray, channels_last: bool) -> list[np.ndarray]:
    x = flambeau.tensor(array)
    if channels_last:
        x = x.contiguous(memory_format=flambeau.channels_last)
    x.requires_grad_()
    out = call(x)
    g = flambeau.arange(float(out.numel())).reshape(out.shape).sin()
    return [t.detach().numpy() for t in (out, *flambeau.autograd.grad(out, x, g))]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("channels_last", [False, True])
def test_interpreted_kernels_stay_inside_and_agree(monkeypatch, name, channels_last):
    array, call = CALLS[name]
    if channels_last and array.ndim != 4:
        pytest.skip("only images have this format")
    compiled = _results(call, array, channels_last)
    _interpret_kernels(monkeypatch)
    for ours, theirs in zip(_results(call, array, channels_last), compiled):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
