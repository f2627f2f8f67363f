"""grid_sample and affine_grid, against PyTorch and against finite differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

GENERATOR = np.random.default_rng(3)
IMAGES = GENERATOR.standard_normal((2, 3, 5, 7))
VOLUMES = GENERATOR.standard_normal((2, 2, 3, 4, 5))
GRID = GENERATOR.uniform(-1.6, 1.6, (2, 4, 6, 2))
GRID_3D = GENERATOR.uniform(-1.6, 1.6, (2, 3, 2, 4, 3))

MODES = ["bilinear", "nearest", "bicubic"]
PADDINGS = ["zeros", "border", "reflection"]
COMBINATIONS = list(itertools.product(MODES, PADDINGS, [False, True]))


@pytest.mark.parametrize("mode, padding, align", COMBINATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_images(matches, mode, padding, align, dtype):
    matches(lambda t, F, x, g: F.grid_sample(x, g, mode, padding, align), IMAGES, GRID, dtype=dtype)


@pytest.mark.parametrize("mode, padding, align", [c for c in COMBINATIONS if c[0] != "bicubic"])
def test_volumes(matches, mode, padding, align):
    matches(lambda t, F, x, g: F.grid_sample(x, g, mode, padding, align), VOLUMES, GRID_3D)


@pytest.mark.parametrize("mode", MODES)
def test_channels_last(matches, mode):
    matches(
        lambda t, F, x, g: F.grid_sample(x, g, mode, align_corners=False),
        IMAGES,
        GRID,
        channels_last=True,
        ignore=("strides",),
    )


def test_more_points_than_one_block(matches):
    grid = GENERATOR.uniform(-1.2, 1.2, (2, 40, 31, 2))
    matches(lambda t, F, x, g: F.grid_sample(x, g, align_corners=True), IMAGES, grid)


@pytest.mark.parametrize("mode, padding, align", COMBINATIONS)
@pytest.mark.parametrize("size", [1, 2])
def test_tiny_images(matches, mode, padding, align, size):
    matches(lambda t, F, x, g: F.grid_sample(x, g, mode, padding, align), IMAGES[:, :, :size, :size], GRID)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", MODES)
def test_wild_coordinates_do_no_harm(matches, mode, padding):
    """nan, infinities and huge numbers in the grid: nothing outside the image is read."""
    grid = GRID.astype(np.float32).astype(np.float64)
    grid[0, 0, :6, 0] = [np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9]

    def call(t, F, x, g):
        return F.grid_sample(x.detach(), g.detach(), mode, padding, False).isfinite().long().sum() * 0

    matches(call, IMAGES, grid)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode, volumes", [*((m, False) for m in MODES), ("bilinear", True), ("nearest", True)])
def test_coordinates_that_are_no_numbers(matches, mode, volumes, padding):
    grid = (GRID_3D if volumes else GRID).astype(np.float32).astype(np.float64)
    grid[0, 0, ..., :2, 0] = [np.nan, np.inf]
    grid[1, 0, ..., :2, 1] = [-np.inf, np.nan]

    def call(t, F, x, g):
        return F.grid_sample(x.detach(), g.detach(), mode, padding, False)

    matches(call, VOLUMES if volumes else IMAGES, grid)


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_special_values_stay_local(matches, special):
    images = IMAGES.copy()
    images[:, :, 0, 0] = special  # where taps outside would look if they were not left out
    matches(lambda t, F, x, g: F.grid_sample(x, g.detach(), align_corners=False), images, np.abs(GRID))


@pytest.mark.parametrize("mode, padding, align", [c for c in COMBINATIONS if c[0] != "nearest"])
def test_second_derivatives(differentiable_twice, mode, padding, align):
    grid = GENERATOR.uniform(-1.3, 1.3, (1, 2, 2, 2))
    differentiable_twice(
        lambda t, F, x, g: F.grid_sample(x, g, mode, padding, align).square().sum(), IMAGES[:1, :2, :3, :3], grid
    )


def test_second_derivatives_of_volumes(differentiable_twice):
    grid = GENERATOR.uniform(-0.9, 0.9, (1, 1, 1, 2, 3))
    differentiable_twice(
        lambda t, F, x, g: F.grid_sample(x, g, align_corners=False).square().sum(), VOLUMES[:1, :1, :2, :2, :2], grid
    )


@pytest.mark.parametrize("align", [False, True])
def test_affine_grid(matches, align):
    for size in ((2, 3, 4, 5), (2, 1, 1, 3)):
        theta = GENERATOR.standard_normal((2, 2, 3))
        matches(lambda t, F, x, size=size: F.affine_grid(x, size, align), theta)
    theta = GENERATOR.standard_normal((2, 3, 4))
    matches(lambda t, F, x: F.affine_grid(x, (2, 1, 2, 3, 4), align), theta)


def test_identity_grid_returns_the_image(matches):
    theta = np.array([[[1.0, 0, 0], [0, 1, 0]]])

    def call(t, F, x, matrix):
        return F.grid_sample(x, F.affine_grid(matrix.detach(), (1, 3, 5, 7), False), align_corners=False)

    matches(call, IMAGES[:1], theta)


SETUP = """
F = torch.nn.functional
x = torch.arange(24.).reshape(1, 2, 3, 4)
g = torch.zeros(1, 2, 2, 2)
t = torch.zeros(1, 2, 3)
"""
ERRORS = """
F.grid_sample(x, g, 'foo')
F.grid_sample(x, g, padding_mode='foo')
F.grid_sample(x, g.double())
F.grid_sample(x, g[0])
F.grid_sample(x, torch.zeros(2, 2, 2, 2))
F.grid_sample(x, torch.zeros(1, 2, 2, 3))
F.grid_sample(x[:, :, :0], g)
F.grid_sample(x.long(), g.long())
F.grid_sample(x[:, :0], g)
F.grid_sample(x, g[:, :0])
torch.grid_sampler(x, g, 0, 0, False)
torch.grid_sampler_2d(x, g, 1, 1, True)
F.affine_grid(t, (1, 2, 3))
F.affine_grid(t[0], (1, 2, 3, 3))
F.affine_grid(t, (1, 2, 3, 3, 3))
F.affine_grid(t, (1, 2, 0, 3))
F.affine_grid(t.long(), (1, 2, 3, 3))
"""


@pytest.mark.parametrize("expression", ERRORS.strip().splitlines())
def test_errors(agrees, expression):
    agrees(expression, SETUP)
