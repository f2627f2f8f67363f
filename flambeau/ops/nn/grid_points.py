"""What grid_sample is made of: tables of points, and the sums over them, which are each other's derivatives.

With weights W (batch, tap, point), which element each tap names (`index`), x (batch, channel, element) and
g (batch, channel, point): sample_at sums W * x over taps, place_at puts W * g where it came from, dots_at sums g * x over
channels. Each is linear in both operands."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.dtype import opmath
from ...core.tensor import Tensor, empty, numel_of
from ...kernels.library import sample as kernels
from ..machinery.declare import internal
from ..machinery.memory import bare
from ..machinery.primitive import Saved
from ..shape.joining import stack

_TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}


class Points:
    """Where the points of a grid lie in planes: the tables of kernels.sample_points."""

    def __init__(self, input: Tensor, grid: Tensor, mode: str, padding: str, align: bool, with_slopes: bool):
        self.sizes = tuple(input.shape[2:])
        self.dims = len(self.sizes)
        self.size = numel_of(self.sizes)
        self.batch, self.channels = input.shape[:2]
        self.count = numel_of(grid.shape[1:-1])
        self.taps = _TAPS[mode] ** self.dims
        if self.size >= 2**31:
            raise RuntimeError("grid_sampler(): input planes of 2**31 or more elements are not supported")
        kept = opmath(input.dtype)
        shape = (self.batch, self.taps, self.count)
        self.index, self.weights = empty(shape, dt.int32), empty(shape, kept)
        self.slopes = empty((self.batch, self.dims, self.taps, self.count), kept) if with_slopes else None
        kernels.sample_points(
            self.index, self.weights, self.slopes, bare(grid), self.batch, self.count, *(1,) * (3 - self.dims), *self.sizes,
            dims=self.dims, mode=mode, padding=padding, align=align,
        )  # fmt: skip

    @property
    def geometry(self) -> tuple[int, ...]:
        return self.batch, self.channels, self.size, self.count


@internal(
    grads={
        "x": lambda g, weights, index, x_shape: place_at(g, weights, index, x_shape[2]),
        "weights": lambda g, x, index: dots_at(g, x, index),
    }
)
def sample_at(x: Tensor, weights: Tensor, index: Tensor) -> Tensor:
    """The sum over taps of weights * x[index]."""
    batch, channels, size = x.shape
    _, taps, count = index.shape
    out = empty((batch, channels, count), x.dtype)
    if out.numel():
        kernels.sample_planes(out, bare(x), index, bare(weights), batch, channels, size, count, taps=taps)
    return out


@internal(
    grads={
        "g": lambda g, weights, index: sample_at(g, weights, index),
        "weights": lambda g, g_saved, index: dots_at(g_saved, g, index),
    }
)
def place_at(g: Tensor, weights: Tensor, index: Tensor, size: int) -> Any:
    """Zeros plus weights * g where the taps of each point lie."""
    batch, channels, count = g.shape
    out = empty((batch, channels, size), g.dtype)
    if out.numel():
        taps = index.shape[1]
        kernels.sample_planes_backward(out, bare(g), index, bare(weights), batch, channels, size, count, taps=taps)
    return Saved(out, g_saved=g)


@internal(
    grads={
        "g": lambda g, x, index: sample_at(x, g, index),
        "x": lambda g, g_saved, index, x_shape: place_at(g_saved, g, index, x_shape[2]),
    }
)
def dots_at(g: Tensor, x: Tensor, index: Tensor) -> Any:
    """The sum over channels of g * x[index], for every tap."""
    batch, channels, size = x.shape
    _, taps, count = index.shape
    out = empty(index.shape, g.dtype)
    if out.numel():
        kernels.sample_dots(out, bare(g), bare(x), index, batch, channels, size, count, taps=taps)
    return Saved(out, g_saved=g)


# -- gradients out of differentiable operators ----------------------------------------------------------------------------


def _near(x: Any) -> Any:
    return (1.25 * x - 2.25) * x * x + 1


def _far(x: Any) -> Any:
    return ((x - 5) * x + 8) * x * -0.75 + 3


def _near_slope(x: Any) -> Any:
    return (3.75 * x - 4.5) * x


def _far_slope(x: Any) -> Any:
    return (-2.25 * x + 7.5) * x - 6


def _axis(t: Any, mode: str) -> tuple[Tensor, Tensor]:
    """Weights of the taps along one dimension and their slopes, from the fraction t: (batch, taps, point)."""
    one = t * 0 + 1
    if mode == "nearest":
        return stack([one], 1), stack([one * 0], 1)
    if mode == "bilinear":
        return stack([1 - t, t], 1), stack([-one, one], 1)
    weights = [_far(t + 1), _near(t), _near(1 - t), _far(2 - t)]
    slopes = [_far_slope(t + 1), _near_slope(t), -_near_slope(1 - t), -_far_slope(2 - t)]
    return stack(weights, 1), stack(slopes, 1)


def _outer(parts: list) -> Tensor:
    """Products of the taps of all dimensions; the first part's run fastest."""
    result = parts[0]
    for part in parts[1:]:
        result = (part.unsqueeze(2) * result.unsqueeze(1)).flatten(1, 2)
    return result


def composed_gradients(g: Any, input: Any, grid: Any, mode: str, padding: str, align: bool) -> tuple[Tensor, Tensor]:
    """The gradients with respect to input and grid, which can be differentiated again."""
    wide, narrow = opmath(input.dtype), input.dtype
    points = Points(input, grid, mode, padding, align, False)
    fractions = empty((points.batch, points.dims, points.count), wide)
    slopes = empty(fractions.shape, wide)
    kernels.sample_fractions(
        fractions, slopes, bare(grid), points.batch, points.count, *(1,) * (3 - points.dims), *points.sizes,
        dims=points.dims, mode=mode, padding=padding, align=align,
    )  # fmt: skip
    flat_grid = grid.to(wide).reshape(points.batch, points.count, points.dims).transpose(1, 2)
    # The fraction is a known number plus a known slope times the change of the coordinate.
    t: Any = fractions + slopes * (flat_grid - flat_grid.detach())
    axes = [_axis(t.select(1, a), mode) for a in range(points.dims)]
    weights = _outer([w for w, _ in axes])
    x, cotangent = input.to(wide).flatten(2), g.to(wide).flatten(2)
    dx: Any = place_at(cotangent, weights, points.index, points.size)
    dots = dots_at(cotangent, x, points.index)
    dgrid = []
    for a in range(points.dims):
        rise = _outer([s if b == a else w for b, (w, s) in enumerate(axes)])
        dgrid.append((dots * rise).sum(1) * slopes.select(1, a))
    return dx.reshape(input.shape).to(narrow), stack(dgrid, -1).reshape(grid.shape).to(grid.dtype)
