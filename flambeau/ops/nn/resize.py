"""interpolate and its older names: changing the size of signals, images and volumes."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.layout import suggests_channels_last
from ...core.settings import is_scripting
from ...core.tensor import Tensor
from ...core.typenames import type_name
from ..machinery.arguments import is_int, need_tensor
from ..machinery.declare import composite
from ..machinery.dtype_rules import unsupported
from .avg_pool import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .band import Outline
from .resample import Outlines, resampling_op
from .resize_bands import cubic_band, linear_band, nearest_band, smooth_band
from .resize_bytes import resize_bytes
from .windows import BroadcastingList1

_FUNCTIONAL = ("nn.functional",)

_NEAREST = ("nearest", "nearest-exact")
_LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}
_SMOOTH = ("bilinear", "bicubic", "lanczos")
_MODES = "nearest | linear | bilinear | bicubic | trilinear | lanczos | area | nearest-exact"


def _factors_of(bands: Outlines) -> list[Any]:
    return [b.settings[0] for b in bands]


def _smooth_settings(bands: Outlines) -> list[Any]:
    """Return align_corners, and the factors."""
    return [bands[0].settings[0], *(b.settings[1] for b in bands)]


_ops = {
    **{("nearest", d): resampling_op(f"UpsampleNearest{d}DBackward0", _factors_of) for d in (1, 2, 3)},
    **{("nearest-exact", d): resampling_op(f"UpsampleNearestExact{d}DBackward0", _factors_of) for d in (1, 2, 3)},
    **{(m, d): resampling_op(f"Upsample{m.capitalize()}{d}DBackward0", _smooth_settings) for m, d in _LINEAR.items()},
    ("bicubic", 2): resampling_op("UpsampleBicubic2DBackward0", _smooth_settings),
    **{(f"{m} antialias", 2): resampling_op(f"Upsample{m.capitalize()}2DAaBackward0", _smooth_settings) for m in _SMOOTH},
}  # fmt: skip


# -- what was asked for ---------------------------------------------------------------------------------------------------


def _per_dimension(value: Any, dims: int) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value] * dims


def _read_size(size: Any, sizes: tuple[int, ...]) -> list[int]:
    if isinstance(size, (tuple, list)):
        if len(size) != len(sizes):
            raise ValueError(
                f"Input and output must have the same number of spatial dimensions, but got input with spatial dimensions of"
                f" {list(sizes)} and output size of {size}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and"
                " output size in (o1, o2, ...,oK) format."
            )
        if not all(is_int(n) for n in size):
            raise TypeError(
                "expected size to be one of int or Tuple[int] or Tuple[int, int] or Tuple[int, int, int], but got size with"
                f" types {[type(n) for n in size]}"
            )
    elif not is_int(size):
        raise TypeError(f"interpolate(): argument 'size' must be int or tuple of ints, not {type_name(size)}")
    return [int(n) for n in _per_dimension(size, len(sizes))]


def _read_factors(factor: Any, sizes: tuple[int, ...]) -> list[float]:
    if isinstance(factor, (tuple, list)) and len(factor) != len(sizes):
        raise ValueError(
            f"Input and scale_factor must have the same number of spatial dimensions, but got input with spatial dimensions of"
            f" {list(sizes)} and scale_factor of shape {factor}. Please provide input tensor in (N, C, d1, d2, ...,dK) format"
            " and scale_factor in (s1, s2, ...,sK) format."
        )
    factors = _per_dimension(factor, len(sizes))
    for f in factors:
        if isinstance(f, bool) or not isinstance(f, (int, float, np.number)):
            raise TypeError(
                f"interpolate(): argument 'scale_factor' must be float or tuple of floats, not {type_name(f)}"
            )
    return [float(f) for f in factors]


def _target(
    sizes: tuple[int, ...], size: Any, scale_factor: Any, mode: str, recompute: Any
) -> tuple[list[int], list[float | None]]:
    """Return output sizes, and the factors that determine the sampled positions (None: by the sizes)."""
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    unknown: list[float | None] = [None] * len(sizes)
    if size is not None:
        wanted = _read_size(size, sizes)
        if recompute:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        return wanted, unknown
    if scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    factors = _read_factors(scale_factor, sizes)
    wanted = [math.floor(n * f) if n * f >= 0 else math.ceil(n * f) for n, f in zip(sizes, factors)]
    if any(abs(n) >= 1 << 63 for n in wanted):
        raise RuntimeError("value cannot be converted to type int64_t without overflow")
    return wanted, (unknown if recompute or mode == "area" else list(factors))


def _check(input: Tensor, wanted: list[int]) -> None:
    sizes = input.shape[2:]
    if min(sizes) <= 0 or min(wanted) <= 0:
        axes = "DHW"[-len(sizes) :]
        shown = [", ".join(f"{a}: {n}" for a, n in zip(axes, values)) for values in (sizes, wanted)]
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input ({shown[0]}) output ({shown[1]})"
        )
    if input.shape[1] == 0:
        raise RuntimeError(
            f"Non-empty {len(input.shape)}D data tensor expected but got a tensor with sizes {list(input.shape)}"
        )


def _need_dtype(input: Tensor, mode: str) -> None:
    if input.dtype.is_floating_point or input.dtype is dt.uint8:
        return
    dims = len(input.shape) - 2
    kernel = (
        "compute_indices_weights_cubic" if mode == "bicubic" else f"upsample_{mode.split('-')[0]}{dims}d_channels_last"
    )
    raise unsupported(f"{kernel}", input.dtype)


# -- computing ------------------------------------------------------------------------------------------------------------


def _band(
    mode: str, size: int, out: int, align: bool, factor: float | None, antialias: bool, real: Any, whole: bool
) -> Outline:
    if antialias:
        return smooth_band(size, out, align, factor, mode, real)
    if mode in _NEAREST:
        return nearest_band(size, out, factor, mode == "nearest-exact", whole)
    make = cubic_band if mode == "bicubic" else linear_band
    return make(size, out, align, factor, real)


def resized(input: Tensor, wanted: list[int], factors: list[Any], mode: str, align: bool, antialias: bool) -> Tensor:
    """Return feature maps of the sizes `wanted`; `factors` determine the sampled positions, None: by the sizes."""
    _check(input, wanted)
    _need_dtype(input, mode)
    op: Any = _ops[mode + " antialias" if antialias else mode, len(wanted)]
    real = np.float64 if input.dtype in (dt.float64, dt.uint8) else np.float32
    # PyTorch's kernels disagree: which of them look at a factor that leaves or doubles the size depends on rank, memory format and dtype.
    whole = len(wanted) == 2 or suggests_channels_last(input.shape, input._strides) and input.shape[1] > 3
    in_bytes = input.dtype is dt.uint8 and mode not in _NEAREST
    lines = zip(input.shape[2:], wanted, factors)
    bands = tuple([
        _band(mode, n, out, align, None if in_bytes and n == out else f, antialias, real, whole) for n, out, f in lines
    ])  # fmt: skip
    if in_bytes:
        return resize_bytes(input, bands)
    return op(input, bands)


def _check_mode(input: Tensor, mode: str) -> None:
    rank = len(input.shape)
    if rank not in (3, 4, 5) or mode not in _MODES.split(" | ") or mode in ("bicubic", "lanczos") and rank != 4:
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {rank}D) for the modes: {_MODES} (got {mode})"
        )
    if mode in _LINEAR and _LINEAR[mode] != rank - 2:
        raise NotImplementedError(f"Got {rank}D input, but {mode} mode needs {_LINEAR[mode] + 2}D input")


def interpolated(
    input: Tensor, size: Any, scale_factor: Any, mode: str, align_corners: Any, recompute: Any, antialias: bool
) -> Tensor:
    need_tensor("interpolate", input)
    if align_corners is not None and mode in (*_NEAREST, "area"):
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    if antialias and not (mode in _SMOOTH and len(input.shape) == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input"
        )
    if mode == "lanczos" and (align_corners or not antialias):
        raise ValueError(
            f"Lanczos mode {'does not support align_corners' if align_corners else 'requires antialias'}=True"
        )
    wanted, factors = _target(tuple(input.shape[2:]), size, scale_factor, mode, recompute)
    _check_mode(input, mode)
    if mode == "area":
        pool: Any = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[len(wanted) - 1]
        return pool(input, wanted)
    return resized(input, wanted, factors, mode, bool(align_corners), antialias)


@composite(method=False, namespaces=_FUNCTIONAL, autocast_cuda="float32")
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> Tensor:
    """Bring signals (N, C, L), images (N, C, H, W) or volumes (N, C, D, H, W) to another size, by nearest, linear, cubic,
    Lanczos or area interpolation.

    >>> interpolate(tensor([[[1.0, 2.0]]]), scale_factor=2)
    tensor([[[1., 1., 2., 2.]]])
    """
    return interpolated(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)


def _sizes(size: list[int], rank: int) -> list[int]:
    """Return a size for each dimension."""
    if isinstance(size, int):
        return [size] * rank
    return [size[0] for _ in range(rank)] if len(size) == 1 else list(size)


def _factors(scale: list[float], rank: int) -> list[float]:
    """Return a scale factor for each dimension."""
    if isinstance(scale, (int, float)):
        return [float(scale)] * rank
    return [float(scale[0]) for _ in range(rank)] if len(scale) == 1 else [float(s) for s in scale]


@interpolate.op.as_aten
def _(
    recorder: Any, input: Tensor, size: BroadcastingList1[int] | None = None, scale_factor: BroadcastingList1[float] | None = None,
    mode: str = "nearest", align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Tensor:  # fmt: skip
    aten = recorder.aten
    rank = input.dim() - 2
    sizes: list[int] | None = None
    scales: list[float] | None = None
    if size is not None:
        sizes = _sizes(size, rank)
    elif scale_factor is not None:
        factors = _factors(scale_factor, rank)
        if mode == "area" or (recompute_scale_factor is not None and recompute_scale_factor):
            sizes = [int(math.floor(float(input.size(i + 2)) * f)) for i, f in enumerate(factors)]
        else:
            scales = factors
    else:
        raise ValueError("either size or scale_factor should be defined")
    corners = align_corners is not None and align_corners
    if mode == "area" and not is_scripting():
        return recorder.again(interpolated, (input, sizes, None, mode, None, None, False), {})
    if antialias and rank == 2 and mode == "bilinear":
        return aten._upsample_bilinear2d_aa.vec(input, sizes, corners, scales)
    if antialias and rank == 2 and mode == "bicubic":
        return aten._upsample_bicubic2d_aa.vec(input, sizes, corners, scales)
    if mode == "nearest" and rank == 1:
        return aten.upsample_nearest1d.vec(input, sizes, scales)
    if mode == "nearest" and rank == 2:
        return aten.upsample_nearest2d.vec(input, sizes, scales)
    if mode == "nearest" and rank == 3:
        return aten.upsample_nearest3d.vec(input, sizes, scales)
    if mode == "nearest-exact" and rank == 1:
        return aten._upsample_nearest_exact1d.vec(input, sizes, scales)
    if mode == "nearest-exact" and rank == 2:
        return aten._upsample_nearest_exact2d.vec(input, sizes, scales)
    if mode == "nearest-exact" and rank == 3:
        return aten._upsample_nearest_exact3d.vec(input, sizes, scales)
    if mode == "linear" and rank == 1:
        return aten.upsample_linear1d.vec(input, sizes, corners, scales)
    if mode == "bilinear" and rank == 2:
        return aten.upsample_bilinear2d.vec(input, sizes, corners, scales)
    if mode == "trilinear" and rank == 3:
        return aten.upsample_trilinear3d.vec(input, sizes, corners, scales)
    if mode == "bicubic" and rank == 2:
        return aten.upsample_bicubic2d.vec(input, sizes, corners, scales)
    if mode == "area" and sizes is not None and rank == 1:
        return aten.adaptive_avg_pool1d.default(input, sizes)
    if mode == "area" and sizes is not None and rank == 2:
        return aten.adaptive_avg_pool2d.default(input, sizes)
    if mode == "area" and sizes is not None and rank == 3:
        return aten.adaptive_avg_pool3d.default(input, sizes)
    raise NotImplementedError(f"Got {input.dim()}D input, but {mode} mode needs another number of dimensions")


def _deprecated(name: str) -> None:
    warnings.warn(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=4)


@composite(method=False, namespaces=_FUNCTIONAL)
def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None
) -> Tensor:
    """The older name of interpolate."""
    _deprecated("upsample")
    return interpolated(input, size, scale_factor, mode, align_corners, None, False)


@composite(method=False, namespaces=_FUNCTIONAL)
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate(..., mode="nearest")"""
    _deprecated("upsample_nearest")
    return interpolate(input, size, scale_factor, "nearest")


@composite(method=False, namespaces=_FUNCTIONAL)
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate(..., mode="bilinear", align_corners=True)"""
    _deprecated("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", True)
