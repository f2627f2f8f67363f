"""Deformable convolution (Dai et al., 2017; modulated: Zhu et al., 2019)."""

from __future__ import annotations

import math
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.autograd import Function
from flambeau.kernels.library import regions as kernels
from flambeau.kernels.library import sample
from flambeau.nn.modules.utils import _non_defaults

from ._operators import operator
from ._regions import pair


class _Geometry:
    """Sizes of one call; `batch` counts images times offset groups."""

    def __init__(self, input: Tensor, offset: Tensor, kernel: tuple[int, int], **steps: tuple[int, int]):
        self.groups = offset.shape[1] // (2 * kernel[0] * kernel[1])
        self.images, self.planes, self.h, self.w = input.shape
        self.batch, self.channels = self.images * self.groups, self.planes // max(self.groups, 1)
        self.taps, self.kw = kernel[0] * kernel[1], kernel[1]
        self.oh, self.ow = offset.shape[2:]
        self.steps = (*steps["stride"], *steps["padding"], *steps["dilation"])
        self.count = self.taps * self.oh * self.ow

    def tables(self, offset: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        index = flambeau.empty((self.batch, 4, self.count), dtype=flambeau.int64)
        wide = flambeau.float64 if offset.dtype is flambeau.float64 else flambeau.float32
        weights = flambeau.empty((self.batch, 4, self.count), dtype=wide)
        slopes = flambeau.empty((self.batch, 2, 4, self.count), dtype=wide)
        sizes = (self.batch, self.taps, self.h, self.w, self.oh, self.ow, self.kw)
        kernels.deform_points(index, weights, slopes, offset.contiguous(), *sizes, *self.steps)
        return index, weights, slopes

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        return self.batch, self.channels, self.h * self.w, self.count


class _Sample(Function):
    """Autograd function that samples input (N, C, H, W) at the displaced kernel elements: (N, C, taps, oh * ow)."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, offset: Tensor, geometry: _Geometry) -> Tensor:
        ctx.geometry = geometry
        ctx.save_for_backward(input, offset)
        index, weights, _ = geometry.tables(offset)
        out = flambeau.empty(
            (geometry.images, geometry.planes, geometry.taps, geometry.oh * geometry.ow), dtype=input.dtype
        )
        sample.sample_planes(out, input.contiguous(), index, weights, *geometry.sizes, taps=4)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        geometry: _Geometry = ctx.geometry
        input, offset = ctx.saved_tensors
        index, weights, slopes = geometry.tables(offset)
        g = g.contiguous()
        dx = flambeau.empty(input.shape, dtype=weights.dtype)
        sample.sample_planes_backward(dx, g, index, weights, *geometry.sizes, taps=4)
        moved = flambeau.empty((geometry.batch, geometry.taps, geometry.oh, geometry.ow, 2), dtype=offset.dtype)
        sample.sample_grid_backward(moved, g, input.contiguous(), index, slopes, *geometry.sizes, taps=4, dims=2)
        return dx.to(input.dtype), moved.permute(0, 1, 4, 2, 3).reshape(offset.shape), None


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise RuntimeError(f"deform_conv2d: {message}")


def _check(input: Tensor, offset: Tensor, weight: Tensor, mask: Tensor | None, out: tuple[int, int]) -> None:
    kernel = weight.shape[2] * weight.shape[3]
    _require(
        input.dim() == 4 and offset.dim() == 4 and weight.dim() == 4, "input, offset and weight must have 4 dimensions"
    )
    _require(offset.shape[1] >= 2 * kernel, "the shape of the offset tensor at dimension 1 is not valid. It should be a "
            f"multiple of 2 * weight.size[2] * weight.size[3]. Got offset.size[1]={offset.shape[1]}, while 2 * "
            f"weight.size[2] * weight.size[3]={2 * kernel}")  # fmt: skip
    groups = offset.shape[1] // (2 * kernel)
    _require(
        offset.shape[1] % (2 * kernel) == 0,
        f"offset.shape[1] is not valid: got {offset.shape[1]}, expected a multiple of {2 * kernel}",
    )
    _require(input.shape[1] % groups == 0, f"{input.shape[1]} input channels do not divide into {groups} offset groups")
    _require(
        input.shape[1] % weight.shape[1] == 0, f"{input.shape[1]} input channels do not divide by {weight.shape[1]}"
    )
    _require(
        weight.shape[0] % (input.shape[1] // weight.shape[1]) == 0,
        f"{weight.shape[0]} output channels do not divide into the weight groups",
    )
    _require(min(out) > 0, f"calculated output size too small - out_h: {out[0]} out_w: {out[1]}")
    wanted = (input.shape[0], *out)
    _require(
        (offset.shape[0], *offset.shape[2:]) == wanted,
        f"offset has shape {list(offset.shape)}, expected batch and output size {wanted}",
    )
    if mask is not None:
        expected = (input.shape[0], groups * kernel, *out)
        _require(tuple(mask.shape) == expected, f"mask has shape {list(mask.shape)}, expected {list(expected)}")
    for name, t in (("offset", offset), ("weight", weight), ("mask", mask)):
        _require(t is None or t.dtype is input.dtype, f"{name} and input must have one dtype")
    _require(input.is_floating_point(), f"not implemented for {input.dtype}")


@operator(
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, "
    "SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor"
)
def _deform_conv2d(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, stride_h: int, stride_w: int, pad_h: int, pad_w: int,
    dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> Tensor:  # fmt: skip
    kernel = (weight.shape[-2], weight.shape[-1])
    steps = {"stride": (stride_h, stride_w), "padding": (pad_h, pad_w), "dilation": (dilation_h, dilation_w)}
    out = (offset.shape[2], offset.shape[3])
    geometry = _Geometry(input, offset, kernel, **steps)
    if input.shape[0] == 0:
        return input.new_zeros((0, weight.shape[0], *out))
    columns = _Sample.apply(input, offset, geometry)  # (N, C, taps, positions)
    n, channels, taps, positions = columns.shape
    if use_mask:
        scale = mask.reshape(n, geometry.groups, 1, taps, positions)
        columns = columns.reshape(n, geometry.groups, channels // geometry.groups, taps, positions) * scale
    columns = columns.reshape(n, groups, weight.shape[1] * taps, positions)
    result = flambeau.matmul(weight.reshape(groups, weight.shape[0] // groups, -1), columns)
    result = result.reshape(n, weight.shape[0], *out)
    return result + bias.reshape(1, -1, 1, 1)


def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    mask: Tensor | None = None,
) -> Tensor:
    """Apply a convolution whose kernel elements are moved by `offset` (N, 2 * groups * kh * kw, oh, ow: y and x of each) and, with `mask`
    (N, groups * kh * kw, oh, ow), scaled."""
    kernel = (weight.shape[-2], weight.shape[-1])
    steps = {"stride": pair(stride, "stride"), "dilation": pair(dilation, "dilation")}
    both = (padding, padding) if isinstance(padding, int) else tuple(padding)
    if len(both) != 2 or min(both) < 0:
        raise ValueError(f"padding should be a non-negative int or two of them, got {padding}")
    steps["padding"] = both
    size = [
        (input.shape[2 + i] + 2 * both[i] - steps["dilation"][i] * (kernel[i] - 1) - 1) // steps["stride"][i] + 1
        for i in (0, 1)
    ]
    out = (size[0], size[1])
    _check(input, offset, weight, mask, out)
    window = (*steps["stride"], *steps["padding"], *steps["dilation"])
    scale = input.new_zeros((input.shape[0], 1)) if mask is None else mask
    shift = input.new_zeros(weight.shape[0]) if bias is None else bias
    groups = input.shape[1] // weight.shape[1]
    offset_groups = offset.shape[1] // (2 * kernel[0] * kernel[1])
    return _deform_conv2d(input, weight, offset, scale, shift, *window, groups, offset_groups, mask is not None)


class DeformConv2d(nn.Module):
    """`deform_conv2d` as a layer: called with the input, the offsets and, if modulated, the mask."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
    ):
        super().__init__()
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.dilation = pair(kernel_size), pair(stride), pair(dilation)
        self.padding = (padding, padding) if isinstance(padding, int) else tuple(padding)
        self.weight = nn.Parameter(flambeau.empty(out_channels, in_channels // groups, *self.kernel_size))
        if bias:
            self.bias = nn.Parameter(flambeau.empty(out_channels))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(math.prod(self.weight.shape[1:]))
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor, offset: Tensor, mask: Tensor | None = None) -> Tensor:
        return deform_conv2d(input, offset, self.weight, self.bias, self.stride, self.padding, self.dilation, mask=mask)

    def __repr__(self) -> str:
        text = f"{type(self).__name__}({self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        text += f", stride={self.stride}" + _non_defaults(self, padding=(0, 0), dilation=(1, 1), groups=1)
        return text + (", bias=False)" if self.bias is None else ")")
