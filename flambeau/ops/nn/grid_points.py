"""Parts of grid_sample: tables of points, and sums over them, which are each other's derivatives.

With weights W (batch, tap, point), which element each tap names (`index`), x (batch, channel, element) and
values g (batch, channel, point): sample_at sums W * x over taps, place_at puts W * g where it came from, dots_at sums g * x over
channels. Each is linear in both operands."""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.dtype import opmath
from ...core.tensor import Tensor, empty, numel_of
from ...kernels.library import sample as kernels
from ..machinery.declare import internal
from ..machinery.inplace import raw_copy
from ..machinery.memory import bare
from ..machinery.record import NewTensor, NewTensors
from ..shape.joining import stack

_TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}


class Points:
    """Places of a grid's points in planes: sizes and numbers that follow from the shapes of input and grid."""

    def __init__(self, shape: tuple[int, ...], grid: tuple[int, ...], mode: str):
        self.sizes = tuple(shape[2:])
        self.dims = len(self.sizes)
        self.size = numel_of(self.sizes)
        self.batch, self.channels = shape[:2]
        self.count = numel_of(grid[1:-1])
        self.taps = _TAPS[mode] ** self.dims
        if self.size >= 2**31:
            raise RuntimeError("grid_sampler(): input planes of 2**31 or more elements are not supported")

    @property
    def geometry(self) -> tuple[int, ...]:
        return self.batch, self.channels, self.size, self.count

    def look_up(self, grid: Tensor, mode: str, padding: str, align: bool, with_slopes: bool) -> tuple[Any, ...]:
        """Compute the tables of kernels.sample_points: index, weights and slopes."""
        kept, where, shape = opmath(grid.dtype), grid.device, (self.batch, self.taps, self.count)
        index, weights = empty(shape, dt.int32, where), empty(shape, kept, where)
        slopes = empty((self.batch, self.dims, self.taps, self.count), kept, where) if with_slopes else None
        kernels.sample_points(
            index, weights, slopes, bare(grid), self.batch, self.count, *(1,) * (3 - self.dims), *self.sizes,
            dims=self.dims, mode=mode, padding=padding, align=align,
        )  # fmt: skip
        return index, weights, slopes


@internal(batching="each")
def positions(grid: Tensor, shape: tuple[int, ...], mode: str, padding: str, align: bool) -> NewTensors:
    """Return the elements of an input of `shape` that the taps of each point read, the distance of each point from the first of them, and its
    derivative by the coordinates."""
    points, where = Points(shape, grid.shape, mode), grid.device
    fractions = (points.batch, points.dims, points.count), opmath(grid.dtype), where
    return [((points.batch, points.taps, points.count), dt.int32, where), fractions, fractions]


@positions.on("any")
def _(out: list[Tensor], grid: Tensor, shape: tuple[int, ...], mode: str, padding: str, align: bool) -> None:
    points = Points(shape, grid.shape, mode)
    raw_copy(out[0], points.look_up(grid, mode, padding, align, False)[0])
    kernels.sample_fractions(
        out[1], out[2], bare(grid), points.batch, points.count, *(1,) * (3 - points.dims), *points.sizes,
        dims=points.dims, mode=mode, padding=padding, align=align,
    )  # fmt: skip


@internal(
    grads={
        "x": lambda g, weights, index, x_shape: place_at(g, weights, index, x_shape[2]),
        "weights": lambda g, x, index: dots_at(g, x, index),
    },
    batching="each",
)
def sample_at(x: Tensor, weights: Tensor, index: Tensor) -> NewTensor:
    """The sum over taps of weights * x[index]."""
    return (*x.shape[:2], index.shape[2]), x.dtype, x.device


@sample_at.on("any")
def _(out: Tensor, x: Tensor, weights: Tensor, index: Tensor) -> None:
    _, taps, count = index.shape
    kernels.sample_planes(out, bare(x), index, bare(weights), *x.shape, count, taps=taps)


@internal(
    grads={
        "values": lambda g, weights, index: sample_at(g, weights, index),
        "weights": lambda g, values, index: dots_at(values, g, index),
    },
    batching="each",
)
def place_at(values: Tensor, weights: Tensor, index: Tensor, size: int) -> NewTensor:
    """Zeros plus weights * values at the taps of each point."""
    return (*values.shape[:2], size), values.dtype, values.device


@place_at.on("any")
def _(out: Tensor, values: Tensor, weights: Tensor, index: Tensor, size: int) -> None:
    batch, channels, count = values.shape
    kernels.sample_planes_backward(
        out, bare(values), index, bare(weights), batch, channels, size, count, taps=index.shape[1]
    )


@internal(
    grads={
        "values": lambda g, x, index: sample_at(x, g, index),
        "x": lambda g, values, index, x_shape: place_at(values, g, index, x_shape[2]),
    },
    batching="each",
)
def dots_at(values: Tensor, x: Tensor, index: Tensor) -> NewTensor:
    """The sum over channels of values * x[index], for every tap."""
    return index.shape, values.dtype, values.device


@dots_at.on("any")
def _(out: Tensor, values: Tensor, x: Tensor, index: Tensor) -> None:
    _, taps, count = index.shape
    kernels.sample_dots(out, bare(values), bare(x), index, *x.shape, count, taps=taps)


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
    """Return the weights of the taps along one dimension and their slopes, from the fraction t: (batch, taps, point)."""
    one = t * 0 + 1
    if mode == "nearest":
        return stack([one], 1), stack([one * 0], 1)
    if mode == "bilinear":
        return stack([1 - t, t], 1), stack([-one, one], 1)
    weights = [_far(t + 1), _near(t), _near(1 - t), _far(2 - t)]
    slopes = [_far_slope(t + 1), _near_slope(t), -_near_slope(1 - t), -_far_slope(2 - t)]
    return stack(weights, 1), stack(slopes, 1)


def _outer(parts: list[Any]) -> Tensor:
    """Return the products of the taps of all dimensions, the first part's fastest."""
    result = parts[0]
    for part in parts[1:]:
        result = (part.unsqueeze(2) * result.unsqueeze(1)).flatten(1, 2)
    return result


def composed_gradients(g: Any, input: Any, grid: Any, mode: str, padding: str, align: bool) -> tuple[Tensor, Tensor]:
    """Return the gradients with respect to input and grid, which can be differentiated again."""
    wide, narrow = opmath(input.dtype), input.dtype
    points = Points(input.shape, grid.shape, mode)
    index, fractions, slopes = positions(grid.detach(), input.shape, mode, padding, align)
    flat_grid = grid.to(wide).reshape(points.batch, points.count, points.dims).transpose(1, 2)
    # The fraction is a known number plus a known slope times the change of the coordinate.
    t: Any = fractions + slopes * (flat_grid - flat_grid.detach())
    axes = [_axis(t.select(1, a), mode) for a in range(points.dims)]
    weights = _outer([w for w, _ in axes])
    x, cotangent = input.to(wide).flatten(2), g.to(wide).flatten(2)
    dx: Any = place_at(cotangent, weights, index, points.size)
    dots = dots_at(cotangent, x, index)
    dgrid = []
    for a in range(points.dims):
        rise = _outer([s if b == a else w for b, (w, s) in enumerate(axes)])
        dgrid.append((dots * rise).sum(1) * slopes.select(1, a))
    return dx.reshape(input.shape).to(narrow), stack(dgrid, -1).reshape(grid.shape).to(grid.dtype)
