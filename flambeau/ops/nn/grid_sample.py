"""grid_sample: images and volumes sampled at points, and affine_grid, which makes such points."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import numpy as np

from ...core.dtype import dtype, opmath
from ...core.graph import grad_mode as recording_mode
from ...core.tensor import Tensor, empty, numel_of
from ...kernels.library import sample as kernels
from ..machinery.arguments import as_ints, need_tensors
from ..machinery.declare import composite, internal, primitive
from ..machinery.dtype_rules import unsupported
from ..machinery.inplace import raw_copy
from ..machinery.memory import Table, bare, layout_in_format_of
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, NewTensors
from ..machinery.together import gradients_of, wanted_of
from .grid_points import Points, composed_gradients

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")
_CODES = 'number(mode, "bilinear", "nearest", "bicubic"), number({}, "zeros", "border", "reflection")'
_DEFAULT_CHANGED = (
    "Default {name} behavior has changed to align_corners=False since 1.3.0. Please specify align_corners=True if the old"
    " behavior is desired. See the documentation of grid_sample for details."
)


def _layout(input: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> tuple[Any, ...]:
    return layout_in_format_of(input, (*input.shape[:2], *grid.shape[1:-1]))


def _sample(out: Tensor, input: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> None:
    """Compute grid_sample: its kernel."""
    points = Points(input.shape, grid.shape, mode)
    index, weights, _ = points.look_up(grid, mode, padding, align, False)
    target = out if out._contig else empty(out.shape, out.dtype, out.device)
    kernels.sample_planes(target, bare(input), index, weights, *points.geometry, taps=points.taps)
    if target is not out:
        raw_copy(out, target)


@internal(returns=iter, sums=True, batching="each")
def sample_grads(
    g: Tensor, input: Tensor, grid: Tensor, mode: str, padding: str, align: bool, wants: tuple[bool, ...]
) -> NewTensors:
    """The gradients of grid_sample with respect to input and grid, as far as wanted, in one pass over the points."""
    return gradients_of(wants, input, grid)


@sample_grads.op.as_aten
def _(recorder: Any, g: Tensor, input: Tensor, grid: Tensor, mode: str, padding: str, *rest: Any) -> Any:
    backward = getattr(recorder.aten, f"grid_sampler_{len(grid.shape) - 2}d_backward").default
    return wanted_of(backward(g, input, grid, _MODES.index(mode), _PADDINGS.index(padding), *rest), rest[-1])


@sample_grads.on("any")
def _(
    out: list[Tensor],
    g: Tensor,
    input: Tensor,
    grid: Tensor,
    mode: str,
    padding: str,
    align: bool,
    wants: tuple[bool, ...],
) -> None:
    points, grad = Points(input.shape, grid.shape, mode), bare(g)
    index, weights, slopes = points.look_up(grid, mode, padding, align, wants[1])
    if wants[0]:
        wide = opmath(input.dtype)
        dx = out[0] if wide is input.dtype else empty(input.shape, wide, input.device)
        kernels.sample_planes_backward(dx, grad, index, weights, *points.geometry, taps=points.taps)
        if dx is not out[0]:
            raw_copy(out[0], dx)
    if wants[1]:
        kernels.sample_grid_backward(
            out[-1], grad, bare(input), index, slopes, *points.geometry, taps=points.taps, dims=points.dims
        )


def _grads(
    g: Tensor, input: Tensor, grid: Tensor, mode: str, padding: str, align: bool, needs: dict[str, bool]
) -> tuple[Any, Any]:
    if recording_mode.enabled:  # the gradients will be differentiated again
        return composed_gradients(g, input, grid, mode, padding, align)
    wants = needs["input"], needs["grid"]
    found = sample_grads(g, input, grid, mode, padding, align, wants)
    return next(found) if wants[0] else None, next(found) if wants[1] else None


def _declared(dims: int) -> Any:
    def run(input: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> Tensor:
        """The input sampled at the points of a grid."""

    sampler = internal(
        run,
        layout=_layout,
        grads={("input", "grid"): _grads},
        quirks=Quirks(label=f"GridSampler{dims}DBackward0", saved_as_input=True),
        name=f"grid_sampler_{dims}d_points",
        aten=f"grid_sampler_{dims}d(input, grid, {_CODES.format('padding')}, align)",
        aten_backward=f"grid_sampler_{dims}d_backward(grad, input, grid, interpolation_mode, padding_mode, align_corners,"
        " needs(input, grid))",
        batching="folded",
    )
    sampler.on("any")(_sample)
    return sampler


_SAMPLERS = {dims: _declared(dims) for dims in (2, 3)}


def _check(input: Tensor, grid: Tensor, mode: str) -> None:
    name = "grid_sampler()"
    need_tensors("grid_sampler", input=input, grid=grid)
    shapes = f"but got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
    if input.dtype is not grid.dtype and not input.is_quantized:
        raise RuntimeError(
            f"{name}: expected input and grid to have same dtype, but input has {input.dtype.name} and grid has"
            f" {grid.dtype.name}"
        )
    if len(input.shape) not in (4, 5) or len(input.shape) != len(grid.shape):
        raise RuntimeError(f"{name}: expected 4D or 5D input and grid with same number of dimensions, {shapes}")
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError(f"{name}: expected grid and input to have same batch size, {shapes}")
    if grid.shape[-1] != len(input.shape) - 2:
        raise RuntimeError(
            f"{name}: expected grid to have size {len(input.shape) - 2} in last dimension, but got grid with sizes"
            f" {list(grid.shape)}"
        )
    for d in range(2, len(input.shape)):
        if input.shape[d] == 0:
            raise RuntimeError(
                f"{name}: expected input to have non-empty spatial dimensions, but input has sizes {list(input.shape)} with"
                f" dimension {d} being empty"
            )
    if mode == "bicubic" and len(input.shape) != 4:
        raise RuntimeError(f"{name}: bicubic interpolation only supports 4D input")
    if not input.dtype.is_floating_point:
        kernel = f"grid_sampler_{len(input.shape) - 2}d_cpu"
        raise unsupported(f"{kernel}", input.dtype)


def _sampled(input: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> Tensor:
    _check(input, grid, mode)
    return _SAMPLERS[len(input.shape) - 2](input, grid, mode, padding, align)


@composite(
    method=False,
    namespaces=("nn.functional",),
    autocast="float32",
    autocast_cuda="widest",
    aten=f"grid_sampler(input, grid, {_CODES.format('padding_mode')}, align_corners)",
)
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: Any = None
) -> Tensor:
    """Sample images (N, C, H, W) or volumes at the points of a grid (N, H', W', 2), whose coordinates go from -1 to 1."""
    if mode not in _MODES:
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in _PADDINGS:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got:"
            f" '{padding_mode}'"
        )
    if align_corners is None:
        warnings.warn(_DEFAULT_CHANGED.format(name="grid_sample and affine_grid"), stacklevel=3)
    return _sampled(input, grid, mode, padding_mode, bool(align_corners))


@composite(method=False, aliases=("grid_sampler_2d", "grid_sampler_3d"), autocast="float32", autocast_cuda="widest")
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """grid_sample with its modes as numbers."""
    for name, value, known in (("interpolation", interpolation_mode, _MODES), ("padding", padding_mode, _PADDINGS)):
        if not 0 <= value < len(known):
            raise RuntimeError(f"grid_sampler(): {name} mode must be between 0 and {len(known) - 1}, but got {value}")
    return _sampled(input, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], bool(align_corners))


# -- affine_grid ----------------------------------------------------------------------------------------------------------


@lru_cache(4)
def _base_points(sizes: tuple[int, ...], align: bool, d: dtype) -> Table:
    """Return all places of an image or volume as rows (x, y, (z,) 1), x fastest."""
    lines = []
    for n in sizes:
        line = np.linspace(-1, 1, n) if n > 1 else np.zeros(n)
        lines.append(line if align else line * (n - 1) / max(n, 1))
    axes = np.meshgrid(*lines, indexing="ij")
    columns = [a.reshape(-1) for a in reversed(axes)]
    base = np.stack([*columns, np.ones(numel_of(sizes))], 1)
    return Table(base.astype(d.numpy), d)


def _base_like(t: Tensor, size: tuple[int, ...], align: bool) -> Any:
    return _base_points(tuple(size[2:]), align, opmath(t.dtype)).on(t.device).to(t.dtype)


def _affine_backward(g: Tensor, size: tuple[int, ...], align_corners: bool) -> Tensor:
    flat: Any = g.reshape(g.shape[0], -1, g.shape[-1])
    return flat.transpose(1, 2) @ _base_like(g, size, align_corners)


@primitive(grads={"theta": _affine_backward}, method=False, batching="each")
def affine_grid_generator(theta: Tensor, size: tuple[int, ...], align_corners: bool) -> NewTensor:
    """The points to which affine maps (N, 2, 3) or (N, 3, 4) send the places of an image or volume."""
    return (theta.shape[0], *size[2:], len(size) - 2), theta.dtype, theta.device


@affine_grid_generator.on("any")
def _(out: Tensor, theta: Tensor, size: tuple[int, ...], align_corners: bool) -> None:
    raw_copy(out, (_base_like(theta, size, align_corners) @ theta.transpose(1, 2)).reshape(out.shape))


@composite(method=False, namespaces=("nn.functional",), aten="affine_grid_generator(theta, size, align_corners)")
def affine_grid(theta: Tensor, size: Any, align_corners: Any = None) -> Tensor:
    """The grid for grid_sample that rotates, shifts, scales or shears images by `theta`."""
    if align_corners is None:
        warnings.warn(_DEFAULT_CHANGED.format(name="grid_sample and affine_grid"), stacklevel=3)
    if not theta.dtype.is_floating_point:
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    shape = as_ints(size, "affine_grid", "size", 2)
    if len(shape) not in (4, 5):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size"
            f" {list(shape)}."
        )
    dims = len(shape) - 2
    if len(theta.shape) != 3 or theta.shape[1:] != (dims, dims + 1):
        raise ValueError(
            f"Expected a batch of {dims}D affine matrices of shape Nx{dims}x{dims + 1} for size {list(shape)}. Got"
            f" {theta.shape}."
        )
    if min(shape) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {list(shape)}")
    if shape[0] != theta.shape[0]:
        raise RuntimeError(
            f"affine_grid: expected size[0] to be {theta.shape[0]}, the number of matrices, but got {shape[0]}"
        )
    return affine_grid_generator(theta, shape, bool(align_corners))
