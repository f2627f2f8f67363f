"""pad, unfold and fold, against PyTorch and against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

GENERATOR = np.random.default_rng(2)
SIGNALS = GENERATOR.standard_normal((2, 3, 6))
IMAGES = GENERATOR.standard_normal((2, 3, 5, 6))
VOLUMES = GENERATOR.standard_normal((1, 2, 4, 5, 3))

PADS = {
    "signal": (SIGNALS, (2, 3)),
    "signal cut": (SIGNALS, (-1, 2)),
    "signal cut on both sides": (SIGNALS, (-2, -1)),
    "one signal": (SIGNALS[0], (1, 2)),
    "image": (IMAGES, (1, 2, 3, 0)),
    "image cut": (IMAGES, (-1, 2, 1, -2)),
    "image of three dimensions": (IMAGES[0], (2, 1, 1, 1)),
    "volume": (VOLUMES, (1, 2, 2, 1, 3, 0)),
    "nothing": (IMAGES, (0, 0, 0, 0)),
}
MODES = ["constant", "reflect", "replicate", "circular"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PADS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_padding(matches, mode, name, dtype):
    array, widths = PADS[name]
    # Circular padding is one operator here, and several copies in PyTorch.
    matches(
        lambda t, F, x: F.pad(x, widths, mode), array, dtype=dtype, ignore=("grad_fn",) if mode == "circular" else ()
    )


@pytest.mark.parametrize("mode", MODES)
def test_padding_keeps_channels_last(matches, mode):
    matches(
        lambda t, F, x: F.pad(x, (1, 2, 2, 1), mode),
        IMAGES,
        channels_last=True,
        ignore=("grad_fn", "strides") if mode == "circular" else (),
    )


@pytest.mark.parametrize("mode", MODES)
def test_padding_of_other_dtypes(agrees, mode):
    setup = "F = torch.nn.functional\nx = torch.arange(12).reshape(1, 2, 6)"
    for expression in ("x", "x.bool()", "x.to(torch.complex64) * (1 + 2j)", "x.to(torch.uint8)", "x.to(torch.float16)"):
        agrees(f"F.pad({expression}, (2, 1), {mode!r})", setup)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["signal cut", "image", "image cut"])
def test_padding_twice_differentiable(differentiable_twice, mode, name):
    array, widths = PADS[name]
    differentiable_twice(lambda t, F, x: F.pad(x, widths, mode).square().sum(), array[:1, :1])


BLOCKS = {
    "2x3": {"kernel_size": (2, 3)},
    "dilated": {"kernel_size": 2, "dilation": (2, 3)},
    "padded": {"kernel_size": 3, "padding": (2, 1)},
    "strided": {"kernel_size": (2, 1), "stride": (3, 2), "padding": (1, 0)},
    "all": {"kernel_size": 2, "dilation": 2, "padding": 2, "stride": 2},
}


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_unfold_and_fold(matches, name, dtype):
    options = BLOCKS[name]
    matches(lambda t, F, x: F.unfold(x, **options), IMAGES, dtype=dtype)
    matches(lambda t, F, x: F.unfold(x, **options), IMAGES[0], dtype=dtype)
    matches(lambda t, F, x: F.fold(F.unfold(x, **options), (5, 6), **options), IMAGES, dtype=dtype)


@pytest.mark.parametrize("name", BLOCKS)
def test_fold_twice_differentiable(differentiable_twice, name):
    options = BLOCKS[name]
    differentiable_twice(
        lambda t, F, x: F.fold(F.unfold(x, **options), (5, 6), **options).square().sum(), IMAGES[:1, :1]
    )


SETUP = """
F = torch.nn.functional
x = torch.arange(24.).reshape(1, 1, 4, 6)
y = torch.arange(60.).reshape(1, 4, 15)
"""
VALUES_AND_ERRORS = """
F.pad(x, (1,))
F.pad(x, (1, 1) * 5)
F.pad(x, (1.5, 1))
F.pad(x, 1)
F.pad(x, (1, 1), 'foo')
F.pad(x, (1, 1), None)
F.pad(x, (1, 1, 1, 1), 'reflect', 1.0)
F.pad(x, (1, 1), 'reflect')
F.pad(x, (6, 1, 1, 1), 'reflect')
F.pad(x, (1, 1, 4, 1), 'reflect')
F.pad(x, (-3, -3, 0, 0), 'replicate')
F.pad(x, (7, 0, 0, 0), 'circular')
F.pad(x, (-3, -4, 0, 0), 'circular')
F.pad(x[:, :0], (1, 1, 1, 1), 'replicate')
F.pad(x[:0], (1, 1, 1, 1), 'replicate')
F.pad(x, ())
F.pad(x, (1, 1), value=2.5)
F.pad(x, (1, 1, 1, 1, 1, 1, 0, 1), value=-1)
F.unfold(x, 0)
F.unfold(x, 2, stride=0)
F.unfold(x, 2, dilation=0)
F.unfold(x, 2, padding=-1)
F.unfold(x, 20)
F.unfold(x, (2, 2, 2))
F.unfold(x.long(), 2)
F.unfold(x.bool(), 2)
F.unfold(x[0, 0], 2)
F.unfold(x.to(torch.complex64) * 1j, 2)
F.fold(y, (4, 6), 2)
F.fold(y, (4, 7), 2)
F.fold(y, (4, 6), 3)
F.fold(y, 1, 2)
F.fold(y[0, 0], (4, 6), 2)
F.fold(y.bool(), (4, 6), 2)
F.fold(y.to(torch.complex64) * 1j, (4, 6), 2)
"""


@pytest.mark.parametrize("expression", VALUES_AND_ERRORS.strip().splitlines())
def test_values_and_errors(agrees, expression):
    agrees(expression, SETUP)
