"""interpolate in all its modes, against PyTorch and against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.ops.nn.band import Band
from flambeau.ops.nn.resize_bands import cubic_band, linear_band, nearest_band, smooth_band

GENERATOR = np.random.default_rng(1)
SIGNALS = GENERATOR.standard_normal((2, 3, 9))
IMAGES = GENERATOR.standard_normal((2, 3, 7, 9))
VOLUMES = GENERATOR.standard_normal((1, 2, 4, 5, 3))
INPUTS = {3: SIGNALS, 4: IMAGES, 5: VOLUMES}

MODES = {
    "nearest": (3, 4, 5),
    "nearest-exact": (3, 4, 5),
    "area": (3, 4, 5),
    "linear": (3,),
    "bilinear": (4,),
    "trilinear": (5,),
    "bicubic": (4,),
}
TARGETS = [
    {"size": 4}, {"size": 13}, {"size": 1}, {"scale_factor": 2}, {"scale_factor": 3}, {"scale_factor": 0.6},
    {"scale_factor": 1.7}, {"scale_factor": 1.7, "recompute_scale_factor": True}, {"scale_factor": 1.0},
]  # fmt: skip
PAIRS = [(mode, rank) for mode, ranks in MODES.items() for rank in ranks]


@pytest.mark.parametrize("mode, rank", PAIRS)
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_sizes_and_factors(matches, mode, rank, target):
    matches(lambda t, F, x: F.interpolate(x, mode=mode, **target), INPUTS[rank])


@pytest.mark.parametrize("mode, rank", [p for p in PAIRS if p[0] in ("linear", "bilinear", "trilinear", "bicubic")])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_aligned_corners(matches, mode, rank, target):
    matches(lambda t, F, x: F.interpolate(x, mode=mode, align_corners=True, **target), INPUTS[rank])


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_antialias(matches, mode, target):
    matches(lambda t, F, x: F.interpolate(x, mode=mode, antialias=True, **target), IMAGES)


@pytest.mark.parametrize("mode, rank", PAIRS)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_dtypes(matches, mode, rank, dtype):
    matches(lambda t, F, x: F.interpolate(x, scale_factor=1.6, mode=mode), INPUTS[rank], dtype=dtype)


@pytest.mark.parametrize("mode", [m for m, ranks in MODES.items() if 4 in ranks])
@pytest.mark.parametrize("target", [{"size": (5, 4)}, {"scale_factor": 2}, {"scale_factor": (0.5, 3.0)}], ids=str)
def test_channels_last(matches, mode, target):
    matches(lambda t, F, x: F.interpolate(x, mode=mode, **target), IMAGES, channels_last=True)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_bytes(matches, mode):
    pixels = GENERATOR.integers(0, 256, (1, 3, 6, 8)).astype(np.uint8)
    matches(lambda t, F, x: F.interpolate(x, size=(9, 5), mode=mode), pixels, dtype="uint8")


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("size", [3, 7, 100, 333])
def test_nearest_never_differs_by_a_pixel(same_outcome, mode, size):
    """The input that is nearest hangs on the last bit of a float32."""

    def scenario(t):
        line = t.arange(float(size)).reshape(1, 1, size)
        outs = (1, 5, 11, 64, 99, 257, 1000)
        results = [t.nn.functional.interpolate(line, size=n, mode=mode) for n in outs]
        results += [t.nn.functional.interpolate(line, scale_factor=f, mode=mode) for f in (0.3, 0.7, 1.3, 2.9, 3.14)]
        return [r.long().flatten().tolist() for r in results]

    same_outcome(scenario)


TWICE = {
    "nearest": lambda t, F, x: F.interpolate(x, size=(5, 3)),
    "bilinear": lambda t, F, x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "bicubic": lambda t, F, x: F.interpolate(x, size=(6, 2), mode="bicubic", align_corners=True),
    "antialias": lambda t, F, x: F.interpolate(x, size=2, mode="bicubic", antialias=True),
    "area": lambda t, F, x: F.interpolate(x, size=(2, 3), mode="area"),
}


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives(differentiable_twice, name):
    differentiable_twice(lambda t, F, x: TWICE[name](t, F, x).square().sum(), IMAGES[:1, :1, :4, :5])


BANDS = {
    "nearest": nearest_band(7, 12, None, False, True).band,
    "linear": linear_band(7, 14, False, None, np.float64).band,
    "cubic": cubic_band(7, 9, True, None, np.float64).band,
    "antialias": smooth_band(17, 5, False, None, "bicubic", np.float64).band,
    "average": Band(6, np.array([0, 1, 3]), np.array([2, 2, 3]), divisors=np.array([2.0, 2.0, 3.0])),
}


def _matrix(band: Band) -> np.ndarray:
    matrix = np.zeros((band.out, band.size))
    rows, columns, values = band._entries()
    np.add.at(matrix, (rows, columns), values)
    return matrix


@pytest.mark.parametrize("name", BANDS)
def test_transposed_bands_are_transposed_matrices(name):
    band = BANDS[name]
    np.testing.assert_allclose(_matrix(band.transposed), _matrix(band).T)
    np.testing.assert_allclose(_matrix(band.weighted), _matrix(band))
    if band.steps is not None:
        assert band.stepped.flat or band.stepped.count.min() == band.steps[2]


@pytest.mark.parametrize("name", ["nearest", "linear", "cubic", "antialias"])
def test_constants_stay_constant(name):
    """Interpolation weights add up to one."""
    np.testing.assert_allclose(_matrix(BANDS[name]).sum(1), 1)


def test_infinite_gradients_stay_where_they_belong():
    """A tap that an output does not have must not bring in 0 * inf."""
    x = flambeau.zeros(1, 1, 1, 9, requires_grad=True)
    out = flambeau.nn.functional.interpolate(x, size=(1, 4), mode="area")
    g = flambeau.tensor([[[[float("inf"), 1.0, 1.0, 1.0]]]])
    (grad,) = flambeau.autograd.grad(out, x, g)
    assert not grad.isnan().any()
    assert grad.isinf().sum().item() == 3


ERRORS = """
F.interpolate(x)
F.interpolate(x, 5, 2)
F.interpolate(x, (5, 5, 5))
F.interpolate(x, scale_factor=(2., 2., 2.))
F.interpolate(x, (2.5, 2))
F.interpolate(x, scale_factor='a')
F.interpolate(x, 0)
F.interpolate(x, -1)
F.interpolate(x, scale_factor=0.01)
F.interpolate(x, 5, mode='foo')
F.interpolate(x, 5, mode='linear')
F.interpolate(x, 5, mode='lanczos')
F.interpolate(x, 5, align_corners=True)
F.interpolate(x, 5, antialias=True)
F.interpolate(x, 5, recompute_scale_factor=True)
F.interpolate(x[0, 0], 5)
F.interpolate(x.long(), 5)
F.interpolate(x.long(), 5, mode='bilinear')
F.interpolate(torch.zeros(2, 0, 4, 4), 2)
F.interpolate(torch.zeros(0, 2, 4, 4), 2)
F.interpolate(torch.zeros(2, 2, 0, 4), 2)
F.upsample(x, 3)
F.upsample_nearest(x, scale_factor=2)
F.upsample_bilinear(x, scale_factor=2)
"""


@pytest.mark.parametrize("expression", ERRORS.strip().splitlines())
def test_errors_and_old_names(agrees, expression):
    agrees(expression, "F = torch.nn.functional\nx = torch.arange(32.).reshape(1, 2, 4, 4)")
