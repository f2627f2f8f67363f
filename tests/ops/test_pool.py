"""Pooling and unpooling, against PyTorch and against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.standard_normal((2, 3, 11, 13))
VOLUMES = GENERATOR.standard_normal((2, 2, 5, 6, 7))
SIGNALS = GENERATOR.standard_normal((2, 3, 17))
SMALL_IMAGES = GENERATOR.permutation(60).reshape(1, 2, 5, 6).astype(float)
SMALL_VOLUMES = GENERATOR.permutation(48).reshape(1, 1, 3, 4, 4).astype(float)

CASES = {
    "max 2x2": (IMAGES, lambda t, F, x: F.max_pool2d(x, 2)),
    "max 3x3 stride 2 padded": (IMAGES, lambda t, F, x: F.max_pool2d(x, 3, 2, 1)),
    "max 3x2 stride 1": (IMAGES, lambda t, F, x: F.max_pool2d(x, (3, 2), 1, (1, 0))),
    "max 5x5 padded 2": (IMAGES, lambda t, F, x: F.max_pool2d(x, 5, 3, 2)),
    "max ceil mode": (IMAGES, lambda t, F, x: F.max_pool2d(x, 2, 3, 1, 1, True)),
    "max dilated": (IMAGES, lambda t, F, x: F.max_pool2d(x, 3, 2, 1, (2, 3))),
    "max large window": (IMAGES, lambda t, F, x: F.max_pool2d(x, (7, 9), 2, 3)),
    "max window larger than input": (IMAGES, lambda t, F, x: F.max_pool2d(x, (11, 13))),
    "max with indices": (IMAGES, lambda t, F, x: F.max_pool2d(x, 3, 2, 1, return_indices=True)),
    "max dilated with indices": (IMAGES, lambda t, F, x: F.max_pool2d(x, 2, 1, 0, 3, return_indices=True)),
    "max of one image": (IMAGES, lambda t, F, x: F.max_pool2d(x[0], 2)),
    "max 1d": (SIGNALS, lambda t, F, x: F.max_pool1d(x, 3, 2, 1, return_indices=True)),
    "max 3d": (VOLUMES, lambda t, F, x: F.max_pool3d(x, 2, return_indices=True)),
    "max 3d dilated padded": (VOLUMES, lambda t, F, x: F.max_pool3d(x, 2, 1, 1, 2)),
    "torch.max_pool2d": (IMAGES, lambda t, F, x: t.max_pool2d(x, 2)),
    "torch.max_pool1d_with_indices": (SIGNALS, lambda t, F, x: t.max_pool1d_with_indices(x, 2)),
    "adaptive max": (IMAGES, lambda t, F, x: F.adaptive_max_pool2d(x, (4, 5), return_indices=True)),
    "adaptive max keeps None": (IMAGES, lambda t, F, x: F.adaptive_max_pool2d(x, (None, 5))),
    "adaptive max grows": (IMAGES, lambda t, F, x: F.adaptive_max_pool2d(x, 20)),
    "adaptive max 1d": (SIGNALS, lambda t, F, x: t.adaptive_max_pool1d(x, 5)),
    "adaptive max 3d": (VOLUMES, lambda t, F, x: F.adaptive_max_pool3d(x, (2, 3, 4), True)),
    "average 2x2": (IMAGES, lambda t, F, x: F.avg_pool2d(x, 2)),
    "average 3x3 padded": (IMAGES, lambda t, F, x: F.avg_pool2d(x, 3, 1, 1)),
    "average without padding counted": (IMAGES, lambda t, F, x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
    "average ceil mode": (IMAGES, lambda t, F, x: F.avg_pool2d(x, 3, 2, 1, True)),
    "average with divisor": (IMAGES, lambda t, F, x: F.avg_pool2d(x, (2, 3), divisor_override=5)),
    "average large window": (IMAGES, lambda t, F, x: F.avg_pool2d(x, (9, 10), 1)),
    "average 1d": (SIGNALS, lambda t, F, x: F.avg_pool1d(x, 4, 2, 1)),
    "average 3d": (VOLUMES, lambda t, F, x: F.avg_pool3d(x, (2, 3, 2), 2, (1, 1, 0))),
    "average of one volume": (VOLUMES, lambda t, F, x: F.avg_pool3d(x[0], 2)),
    "adaptive average": (IMAGES, lambda t, F, x: F.adaptive_avg_pool2d(x, (4, 5))),
    "adaptive average to one": (IMAGES, lambda t, F, x: F.adaptive_avg_pool2d(x, 1)),
    "adaptive average grows": (IMAGES, lambda t, F, x: F.adaptive_avg_pool2d(x, (20, None))),
    "adaptive average 1d": (SIGNALS, lambda t, F, x: F.adaptive_avg_pool1d(x, 5)),
    "adaptive average 3d": (VOLUMES, lambda t, F, x: F.adaptive_avg_pool3d(x, (2, 3, 4))),
    "power average": (IMAGES, lambda t, F, x: F.lp_pool2d(x * x + 1, 2, 3, 2)),
    "power average 1d": (SIGNALS, lambda t, F, x: F.lp_pool1d(x * x + 1, 3, 2)),
    "power average 3d": (VOLUMES, lambda t, F, x: F.lp_pool3d(x * x + 1, 2, 2)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_values_and_gradients(matches, name, dtype):
    if dtype == "bfloat16" and name.startswith("power"):
        pytest.skip("several roundings to bfloat16, which the two libraries place differently")
    array, call = CASES[name]
    matches(call, array, dtype=dtype)


CHANNELS_LAST = [n for n, (a, _) in CASES.items() if a is IMAGES and "one image" not in n and "power" not in n]


@pytest.mark.parametrize("name", CHANNELS_LAST)
def test_channels_last(matches, name):
    array, call = CASES[name]
    # PyTorch restrides an average to one element afterwards, which shows only in these two.
    matches(call, array, channels_last=True, ignore=("strides", "grad_fn") if "to one" in name else ())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_maximum_of_padding_alone(matches, dtype):
    """Both elements of the only window lie outside: memory beside the image must not be read."""
    for dims, call in ((1, "max_pool1d"), (2, "max_pool2d"), (3, "max_pool3d")):
        array = np.ones((1, 1, *(1,) * dims)).astype("int64" if dtype == "int64" else "float64")
        matches(
            lambda t, F, x, call=call: getattr(F, call)(x, 2, None, 1, 2, return_indices=True)[0].detach(),
            array,
            dtype=dtype,
        )


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith(("max", "average")) and "divisor" not in n])
def test_integers(matches, name):
    array, call = CASES[name]
    matches(call, (array * 100).astype(np.int64), dtype="int64")


TWICE = {
    "max": (SMALL_IMAGES, lambda t, F, x: F.max_pool2d(x, 2)),
    "max overlapping": (SMALL_IMAGES, lambda t, F, x: F.max_pool2d(x, 3, 1, 1)),
    "max with indices": (SMALL_IMAGES, lambda t, F, x: F.max_pool2d(x, 2, 1, return_indices=True)[0]),
    "max 3d": (SMALL_VOLUMES, lambda t, F, x: F.max_pool3d(x, 2, 1)),
    "adaptive max": (SMALL_IMAGES, lambda t, F, x: F.adaptive_max_pool2d(x, 3)),
    "average": (SMALL_IMAGES, lambda t, F, x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
    "average 3d": (SMALL_VOLUMES, lambda t, F, x: F.avg_pool3d(x, 2, 1)),
    "adaptive average": (SMALL_IMAGES, lambda t, F, x: F.adaptive_avg_pool2d(x, (2, 4))),
    "unpool": (SMALL_IMAGES, lambda t, F, x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)),
}


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives(differentiable_twice, name):
    array, call = TWICE[name]
    differentiable_twice(lambda t, F, x: call(t, F, x).square().sum(), array / 10)


def test_channels_last_second_derivative(differentiable_twice):
    def call(t, F, x):
        return F.max_pool2d(x.contiguous(memory_format=t.channels_last), 2).square().sum()

    differentiable_twice(call, SMALL_IMAGES / 10)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling_restores_maxima(matches, dims):
    array = {1: SIGNALS, 2: IMAGES, 3: VOLUMES}[dims]

    def call(t, F, x):
        pool, unpool = getattr(F, f"max_pool{dims}d"), getattr(F, f"max_unpool{dims}d")
        values, indices = pool(x, 2, return_indices=True)
        return unpool(values, indices, 2, output_size=x.shape)

    matches(call, array)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fractional_windows_follow_the_samples(matches, dims, dtype):
    array = IMAGES if dims == 2 else VOLUMES
    samples = GENERATOR.random((2, array.shape[1], dims))

    def call(t, F, x, s):
        pool = getattr(F, f"fractional_max_pool{dims}d")
        return pool(x, 2, output_ratio=(0.5,) * dims, return_indices=True, _random_samples=s.detach())

    matches(call, array, samples, dtype=dtype)


def test_fractional_windows_are_random(same_outcome):
    def scenario(t):
        t.manual_seed(3)
        return t.nn.functional.fractional_max_pool2d(t.arange(100.0).reshape(1, 1, 10, 10), 2, output_size=4)

    same_outcome(scenario)


NAN_CASES = {
    "max": lambda t, F, x: F.max_pool2d(x, 2),
    "max with indices": lambda t, F, x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "adaptive max": lambda t, F, x: F.adaptive_max_pool2d(x, 3, return_indices=True),
    "average": lambda t, F, x: F.avg_pool2d(x, 3, 1, 1),
    "average backward": lambda t, F, x: F.avg_pool2d(x, 2),
}


@pytest.mark.parametrize("name", NAN_CASES)
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("channels_last", [False, True])
def test_special_values_stay_in_their_windows(matches, name, special, channels_last):
    array = IMAGES.copy()
    array[0, 1, 3, 4] = array[1, 2, 10, 12] = array[0, 0, 0, :] = special
    matches(NAN_CASES[name], array, channels_last=channels_last)


ERRORS = """
F.max_pool2d(x, 0)
F.max_pool2d(x, (2, 2, 2))
F.max_pool2d(x, 2.5)
F.max_pool2d(x, 2, 0)
F.max_pool2d(x, 2, padding=2)
F.max_pool2d(x, 2, padding=-1)
F.max_pool2d(x, 2, dilation=0)
F.max_pool2d(x, 20)
F.max_pool2d(x[0, 0], 2)
F.max_pool2d(x.bool(), 2)
F.max_pool2d(torch.zeros(2, 0, 4, 4), 2)
F.max_pool2d(torch.zeros(0, 2, 4, 4), 2)
F.max_pool1d(x[0], 2, padding=2)
F.max_pool1d(x, 2)
F.max_pool3d(x[0, 0], 2)
F.avg_pool2d(x, 0)
F.avg_pool2d(x, 2, divisor_override=0)
F.avg_pool2d(x.int(), 2)
F.avg_pool1d(x, 2)
F.avg_pool1d(x[0], (2, 2))
F.avg_pool3d(x[0, 0], 2)
F.adaptive_avg_pool2d(x, (2, 2, 2))
F.adaptive_avg_pool2d(x, -1)
F.adaptive_avg_pool2d(x, 0)
F.adaptive_avg_pool2d(x[0, 0], 2)
F.adaptive_avg_pool2d(x.long(), 2)
F.adaptive_max_pool2d(x, -1)
F.adaptive_max_pool2d(x.long(), 2)
F.adaptive_max_pool3d(x[0, 0], 2)
F.fractional_max_pool2d(x, 2)
F.fractional_max_pool2d(x, 9, output_size=4)
F.max_unpool2d(x, x, 2)
F.max_unpool2d(x, torch.full(x.shape, 10000), 2)
F.max_unpool2d(x, torch.full(x.shape, -1), 2)
F.max_unpool2d(x, torch.zeros(1, dtype=torch.int64), 2)
F.max_unpool2d(x, torch.zeros(x.shape, dtype=torch.int64), 2, output_size=(1, 1))
"""


@pytest.mark.parametrize("expression", ERRORS.strip().splitlines())
def test_errors(agrees, expression):
    agrees(expression, "F = torch.nn.functional\nx = torch.arange(192.).reshape(1, 3, 8, 8)")


def test_bad_indices_do_not_reach_memory():
    values = flambeau.ones(1, 1, 2, 2)
    for bad in (-1, 2**40):
        with pytest.raises(RuntimeError, match="invalid max index"):
            flambeau.nn.functional.max_unpool2d(values, flambeau.full((1, 1, 2, 2), bad), 2)
