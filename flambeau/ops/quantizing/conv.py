"""Quantized convolutions: u8 codes, s8 weights, channels last in memory; oneDNN computes them, scales included, as it does for PyTorch's x86
engine. Weights whose zero points are not zero, which it does not accept, are computed slowly and exactly in float64."""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar

import numpy as np

from ...backends.cpu import heavy, operands
from ...backends.cpu.onednn import int8
from ...core import dtype as dt
from ...core.layout import channels_last, channels_last_3d, channels_last_strides
from ...core.quantized import QuantizedTensor, per_tensor
from ...core.tensor import Tensor, copy_of_array, empty, empty_strided
from ...kernels.library import depthwise, requantize
from ..machinery.declare import internal
from ..machinery.memory import values_on_host
from ..machinery.record import NewTensor
from ..nn.conv import input_size, output_size
from .codes import codes_of, inverse, quantized, values_of
from .linear import check_codes, check_packed, moved, quantized_operator, unsigned
from .packed import Packed, check_weight, fbgemm_bias, methods, row
from .tensors import dynamic_parameters

_METHODS = methods(
    unpack="(Any self) -> (Tensor, Tensor?)", bias="(Any self) -> Tensor?", stride="(Any self) -> int[]", padding="(Any self) -> int[]",
    output_padding="(Any self) -> int[]", dilation="(Any self) -> int[]", groups="(Any self) -> int", transpose="(Any self) -> bool",
    __getstate__="(Any self) -> (str, Tensor[], Tensor?[])", __setstate__="(Any self, Any state) -> NoneType",
)  # fmt: skip
_MOST_TAPS = 49
_MOST_GROUPS = 100  # of convolutions that PyTorch gives to oneDNN: FBGEMM, whose steps are others, gets those with more


class ConvPackedParams(Packed):
    """Weights of a convolution over `dims` dimensions with its window. One over sequences is stored as one over feature maps of one row."""

    __torch_class__ = "quantized.Conv2dPackedParamsBase"
    schemas: ClassVar[Any] = _METHODS
    dims = 2

    def __init__(
        self, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: int, transposed: bool = False
    ):  # fmt: skip
        check_weight(weight, bias, f"quantized::conv{self.dims}d_prepack", self.dims + 2)
        self.window = (tuple(stride), tuple(padding), tuple(output_padding), tuple(dilation), int(groups))
        for given, what in zip(self.window[:4], ("stride", "padding", "output_padding", "dilation")):
            if len(given) != self.dims:
                raise RuntimeError(
                    f"quantized::conv_prepack: {what} should contain {self.dims} elements for {self.dims}D convolution."
                )
        if groups < 1 or weight.shape[0] % groups:
            raise RuntimeError(
                f"quantized::conv_prepack: {weight.shape[0]} channels cannot be divided into {groups} groups"
            )
        self.transposed = transposed
        channel = 1 if transposed else 0
        outputs = weight.shape[channel] * (groups if transposed else 1)
        if bias is not None and bias.shape != (outputs,):
            raise RuntimeError(f"bias should have K elements: {outputs}")
        q = weight._quantizer
        if not q.per_tensor and (q.axis != channel or (transposed and groups > 1)):
            raise RuntimeError(
                "quantized::conv_prepack: weights quantized by channels should have one scale for each output"
            )
        super().__init__(weight, bias, channel, groups)
        self.inputs = weight.shape[0] if transposed else weight.shape[1] * groups
        self.geometry = self._geometry()

    def _geometry(self) -> operands.Geometry:
        stride, padding, extra, dilation, groups = self.window
        pads = (
            heavy.transposed_padding(self.dims, padding, extra) if self.transposed else tuple((p, p) for p in padding)
        )
        return operands.geometry(self.dims, stride, pads, dilation, groups)

    def stride(self) -> list[int]:
        return list(self.window[0])

    def padding(self) -> list[int]:
        return list(self.window[1])

    def output_padding(self) -> list[int]:
        return list(self.window[2])

    def dilation(self) -> list[int]:
        return list(self.window[3])

    def groups(self) -> int:
        return self.window[4]

    def transpose(self) -> bool:
        return self.transposed

    def state(self) -> tuple[Any, ...]:
        """Return version "2" of PyTorch's files: dimensions, stride, padding, dilation, output padding, groups and whether it is transposed
        in one row of numbers."""
        stride, padding, extra, dilation, groups = self.window
        numbers = (self.dims, *stride, *padding, *dilation, *extra, groups, int(self.transposed))
        return "2", [row(numbers, dt.int16), self.weight], [self.given_bias]

    def set_state(self, state: Any) -> None:
        numbers, weight, bias = _read_state(state, self.dims)
        n = self.dims
        stride, padding, dilation, extra = (numbers[1 + n * i : 1 + n * (i + 1)] for i in range(4))
        self.__init__(weight, bias, stride, padding, extra, dilation, numbers[-2], bool(numbers[-1] & 1))  # type: ignore[misc]

    @property
    def weights(self) -> int8.Weights:
        """Return the weights as ([groups,] out, in, *window)."""
        if self._weights is None:
            groups, codes = self.window[4], self.codes
            if groups > 1:
                codes = codes.reshape(groups, codes.shape[0] // groups, *codes.shape[1:])
            if self.transposed:
                codes = np.swapaxes(codes, 1, 2) if groups > 1 else np.swapaxes(codes, 0, 1)
            self._weights = int8.Weights(np.ascontiguousarray(codes))
        return self._weights

    @functools.cached_property
    def depthwise(self) -> bool:
        """Return whether the convolution is depthwise with a small window, for which there is a kernel."""
        small = self.dims == 2 and math.prod(self.weight.shape[2:]) <= _MOST_TAPS
        alone = self.window[4] == self.inputs == self.outputs and not self.transposed
        return alone and small and self.symmetric and self.geometry.dilation == (1, 1)

    @functools.cached_property
    def taps(self) -> tuple[Tensor, Tensor]:
        """Return the weights of a depthwise window by position, and the sums of its rows; see `depthwise_codes`."""
        window = self.codes[:, 0].transpose(1, 2, 0).astype(np.float32)  # (height, width, channels)
        zeros = np.zeros((1, self.outputs), np.float32)
        weight = np.concatenate([window.reshape(-1, self.outputs), zeros])
        return row(weight, dt.float32), row(np.concatenate([window.sum(1), zeros]), dt.float32)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        g = self.geometry
        window = (tuple(g.stride), tuple(zip(g.before, g.after)), tuple(g.dilation), 1)
        sizes = (input_size if self.transposed else output_size)(shape[2:], self.weight.shape[2:], window)
        return (shape[0], self.outputs, *sizes)


def _read_state(state: Any, dims: int) -> tuple[list[int], Any, Any]:
    """Return the numbers, weight and bias in PyTorch's files: version 1 had a tensor for each number and no transposed layers, version 2 one
    tensor for all, version 3 a list."""
    first = state[0]
    if isinstance(first, Tensor):
        weight, bias, *window, groups = state
        rows = [int(t) for given in window[:3] for t in given]
        return [dims, *rows, *[0] * dims, int(groups), 0], weight, bias
    if first == "2":
        (numbers, weight), optional = state[1], state[2]
        return [int(n) for n in numbers.tolist()], weight, optional[0] if optional else None
    if first == 3:
        return list(state[1]), state[2][1], state[2][2]
    raise RuntimeError(f"the file has a packed convolution of version {first!r}, which Flambeau does not have")


class Conv3dPackedParams(ConvPackedParams):
    __torch_class__ = "quantized.Conv3dPackedParamsBase"
    schemas: ClassVar[Any] = dict(_METHODS)
    dims = 3


@internal(batching="each")
def conv_codes(
    codes: Tensor, packed: Any, scale: float, zero: int, out_scale: float, out_zero: int, relu: bool, d: Any
) -> NewTensor:
    """The codes (or, with dtype float32, the values) of a convolution's result. `codes` are channels-last."""
    shape = packed.output_shape(codes.shape)
    return shape, d, codes.device, channels_last_strides(shape)


@conv_codes.on("cpu")
def _(
    out: Tensor,
    codes: Tensor,
    packed: Any,
    scale: float,
    zero: int,
    out_scale: float,
    out_zero: int,
    relu: bool,
    d: Any,
) -> None:
    scales = (scale, zero, out_scale, out_zero)
    if d is dt.uint8 and packed.depthwise:
        _depthwise(out, codes, packed, *scales, relu)
        return

    def scaling() -> int8.Scaling:
        return _scaling(packed, *scales, relu, d)

    to_onednn = packed.symmetric and (d is dt.float32 or packed.window[4] <= _MOST_GROUPS)
    if not to_onednn or not _try(out, codes, packed, (*scales, relu), scaling):
        _in_fbgemm_steps(out, codes, packed, *scales, relu)


def _try(out: Tensor, codes: Tensor, packed: Any, key: tuple[Any, ...], scaling: Any) -> bool:
    return int8.try_conv(out, codes, packed.weights, packed.geometry, packed.transposed, key, scaling)


def _scaling(packed: Any, scale: float, zero: int, out_scale: float, out_zero: int, relu: bool, d: Any) -> int8.Scaling:
    """Return the steps from sums to codes in the order of PyTorch's oneDNN: scaled by the input's scale, then by the weights'."""
    steps: list[tuple[Any, ...]] = [("multiply", packed.scales if packed.by_channel else packed.scales[:1])]
    if packed.bias_values is not None:
        steps.append(("add", packed.bias_values))
    if relu:
        steps.append(("relu",))
    if d is dt.float32:
        return int8.Scaling(zero, 0, scale, steps)
    return int8.Scaling(zero, out_zero, scale, [*steps, ("multiply", np.array([inverse(out_scale)], np.float32))])


def _depthwise(
    out: Tensor, codes: Tensor, packed: Any, scale: float, zero: int, out_scale: float, out_zero: int, relu: bool
) -> None:
    weight, sums = packed.taps
    key = ("depthwise", scale, out_scale)
    steps, scales, bias, first, last = packed.known.get(key) or packed.remember(
        key, _depthwise_steps(packed, scale, out_scale)
    )
    n, c, oh, ow = out.shape
    g = packed.geometry
    depthwise.depthwise_codes(
        out, codes, weight, sums, scales, bias, n * oh, *codes.shape[2:], oh, ow, c, *g.before, zero, first, last, out_zero,
        out_zero if relu else 0, kh=packed.weight.shape[2], kw=packed.weight.shape[3], sh=g.stride[0], sw=g.stride[1], steps=steps,
    )  # fmt: skip


def _depthwise_steps(packed: Any, scale: float, out_scale: float) -> tuple[Any, ...]:
    """Return the conversion of sums to codes: the function, its numbers for each channel, and two for all; see `_scaling` and
    `_in_fbgemm_steps`."""
    if packed.window[4] <= _MOST_GROUPS:
        steps, bias, scales = depthwise.in_onednn_steps, packed.bias_values, packed.scales
        first, last = scale, inverse(out_scale)
    else:
        both = np.float32(scale) * packed.scales
        bias, first = fbgemm_bias(packed, both)
        steps, scales, last = depthwise.in_fbgemm_steps, both / np.float32(out_scale), 1.0
    bias = np.zeros(packed.outputs) if bias is None else bias
    return steps, row(scales, dt.float32), row(bias, dt.float32), first, last


def _in_fbgemm_steps(
    out: Tensor, codes: Tensor, packed: Any, scale: float, zero: int, out_scale: float, out_zero: int, relu: bool
) -> None:
    """Compute sums in 32 bits first, then follow FBGEMM's order of steps."""
    sums = empty_strided(out.shape, channels_last_strides(out.shape), dt.int32)
    key = (zero, "sums")
    if not (packed.symmetric and _try(sums, codes, packed, key, lambda: int8.Scaling(zero))):
        sums = _exact_sums(codes, packed, zero, out.shape)
    none = row(np.zeros(packed.outputs), dt.int32)
    both = np.float32(scale) * packed.scales
    n = out.numel() // max(packed.outputs, 1)
    if out.dtype is dt.float32:
        given = None if packed.bias_values is None else row(packed.bias_values, dt.float32)
        requantize.dequantize_rows(
            out,
            sums,
            none,
            None,
            None,
            row(both, dt.float32),
            given,
            np.array([1.0, 0.0]),
            n,
            packed.outputs,
            int(relu),
        )
        return
    bias, factor = fbgemm_bias(packed, both)
    multiplier = row(both / np.float32(out_scale), dt.float32)
    given = None if bias is None else row(bias, dt.float32)
    low = out_zero if relu else 0
    requantize.requantize_rows(
        out, sums, none, None, None, multiplier, given, factor, n, packed.outputs, out_zero, low, 255
    )


def _exact_sums(codes: Tensor, packed: Any, zero: int, shape: tuple[int, ...]) -> Tensor:
    """Compute integer sums by a convolution in float64, which holds all of them exactly."""
    x = copy_of_array(values_on_host(codes).astype(np.float64) - zero, dt.float64)
    at = [1] * packed.codes.ndim
    at[packed.channel] = -1
    weights = packed.codes.astype(np.float64) - (packed.zeros.reshape(at) if packed.by_channel else packed.zeros[0])
    sums = empty(shape, dt.float64)
    g, w = packed.geometry, copy_of_array(weights, dt.float64)
    pads = tuple(zip(g.before, g.after))
    if packed.transposed:
        heavy.conv_backward_input(sums, x, w, g.stride, pads, g.dilation, g.groups)
    else:
        heavy.conv_forward(sums, x, w, None, g.stride, pads, g.dilation, g.groups)
    rows = np.ascontiguousarray(np.moveaxis(sums._array(), 1, -1))
    return copy_of_array(rows.astype(np.int32), dt.int32)


def _laid_out(codes: Tensor) -> Tensor:
    return codes.contiguous(memory_format=channels_last if len(codes.shape) == 4 else channels_last_3d)


def _check_input(x: Any, packed: ConvPackedParams, name: str) -> None:
    if len(x.shape) != packed.dims + 2:
        raise RuntimeError(
            f"{name}(): Expected activation tensor to have {packed.dims + 2} dimensions, got {len(x.shape)}"
        )
    if x.shape[1] != packed.inputs:
        raise RuntimeError(
            f"[QConv{packed.dims}D] Given groups={packed.window[4]}, weight of size {list(packed.weight.shape)}, expected input"
            f" {list(x.shape)} to have {packed.inputs} channels, but got {x.shape[1]} channels instead"
        )
    if min(packed.output_shape(x.shape)[2:]) <= 0:
        raise RuntimeError(f"{name}(): Expected a result with positive sizes, got {list(packed.output_shape(x.shape))}")


def run_conv(x: Any, packed: Any, scale: float, zero_point: int, relu: bool, name: str) -> Tensor:
    check_packed(packed, ConvPackedParams, name)
    check_codes(x, name)
    _check_input(x, packed, name)
    given, zero = unsigned(x)
    signed = x.dtype is dt.qint8
    numbers = float(x._quantizer.scale), zero, float(scale), int(zero_point) + 128 * signed
    codes = conv_codes(_laid_out(given), packed, *numbers, relu, dt.uint8)
    return per_tensor(moved(codes, dt.int8) if signed else codes, float(scale), int(zero_point), x.dtype)


def run_conv_dynamic(x: Any, packed: Any, reduce_range: bool, name: str) -> Tensor:
    """Convolve as PyTorch's x86 engine does: the result is quantized with the scale of the input, and values beyond that saturate."""
    check_packed(packed, ConvPackedParams, name)
    _check_input(x, packed, name)
    x = x.detach()
    scale, zero_point = dynamic_parameters(x, dt.quint8, reduce_range)
    codes = _laid_out(codes_of(x, scale, zero_point, dt.quint8))
    result = conv_codes(codes, packed, scale, zero_point, scale, zero_point, False, dt.uint8)
    return values_of(per_tensor(result, scale, zero_point, dt.quint8))


# -- the operators, for 1, 2 and 3 dimensions ------------------------------------------------------------------------------


def _one_row(x: Any) -> Any:
    return x.unsqueeze(2)


def _prepacked(dims: int, transposed: bool, weight: Any, bias: Any, window: tuple[Any, ...]) -> ConvPackedParams:
    stride, padding, extra, dilation, groups = window
    if dims == 1:
        if not isinstance(weight, QuantizedTensor) or len(weight.shape) != 3:
            raise RuntimeError("quantized::conv1d_prepack: the weight should be a quantized tensor with 3 dimensions")
        weight = _one_row(weight)
        stride, dilation = ((1, *given) for given in (stride, dilation))
        padding, extra = ((0, *given) for given in (padding, extra))
    kind = Conv3dPackedParams if dims == 3 else ConvPackedParams
    return kind(weight, bias, stride, padding, extra, dilation, groups, transposed)


def _declare(dims: int) -> None:
    none = [0] * dims

    def prepack(weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
        return _prepacked(dims, False, weight, bias, (stride, padding, none, dilation, groups))

    def transpose_prepack(
        weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: int
    ) -> Any:
        return _prepacked(dims, True, weight, bias, (stride, padding, output_padding, dilation, groups))

    def unpack(packed_weights: Any) -> Any:
        check_packed(packed_weights, ConvPackedParams, f"conv{dims}d_unpack")
        weight, bias = packed_weights.unpack()
        return (weight.squeeze(2) if dims == 1 else weight), bias

    def runner(relu: bool, name: str) -> Any:
        def run(qx: Any, packed_weight: Any, *rest: Any, **options: Any) -> Tensor:
            """Run the convolution; `rest` may have the window between the weights and the scale, as in older programs."""
            scale, zero_point = (
                rest[-2:] if len(rest) >= 2 else (options.get("output_scale", *rest[:1]), options["output_zero_point"])
            )
            if dims == 1:
                check_codes(qx, name)
                return run_conv(_one_row(qx), packed_weight, scale, zero_point, relu, name).squeeze(2)
            return run_conv(qx, packed_weight, scale, zero_point, relu, name)

        return run

    def dynamic(qx: Any, packed_weight: Any, reduce_range: bool = False) -> Tensor:
        if dims == 1:
            return run_conv_dynamic(_one_row(qx), packed_weight, reduce_range, "conv1d_dynamic").squeeze(2)
        return run_conv_dynamic(qx, packed_weight, reduce_range, f"conv{dims}d_dynamic")

    plain, transposed = f"conv{dims}d", f"conv_transpose{dims}d"
    made = [
        (prepack, f"{plain}_prepack", "The weights of a convolution, packed for products."),
        (transpose_prepack, f"{transposed}_prepack", "The weights of a transposed convolution, packed for products."),
        (unpack, f"{plain}_unpack", "The weights and bias that were packed."),
        (unpack, f"{transposed}_unpack", "The weights and bias that were packed."),
        (runner(False, plain), plain, "A convolution of codes, with a result of the given scale and zero point."),
        (runner(True, plain + "_relu"), plain + "_relu", f"`{plain}`, with negative values made zero."),
        (runner(False, transposed), transposed, "A transposed convolution of codes, with a result of the given scale."),
        (dynamic, plain + "_dynamic", "A convolution of floats with quantized weights."),
        (dynamic, transposed + "_dynamic", "A transposed convolution of floats with quantized weights."),
    ]
    for function, called, told in made:
        _operator(called, function, told)
    if dims > 1:
        for which, what in enumerate(("stride", "padding", "output_padding", "dilation", "groups")):
            for name in (plain, transposed):

                def ask(packed_weights: Any, _at: int = which) -> Any:
                    found = packed_weights.window[_at]
                    return list(found) if isinstance(found, tuple) else found

                _operator(f"{name}_{what}", ask, f"The {what} that was packed.")
        for name in (plain, transposed):
            _operator(
                f"{name}_transpose",
                lambda packed_weights: int(packed_weights.transposed),
                "Whether the convolution is transposed.",
            )


def _operator(name: str, function: Any, told: str) -> None:
    def declared(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    declared.__doc__, declared.__name__ = told, name
    quantized_operator(name=name)(declared)


for _dims in (1, 2, 3):
    _declare(_dims)


def _conv_add(qx: Any, qaccum: Any, packed: Any, scale: float, zero_point: int, relu: bool, name: str) -> Tensor:
    check_packed(packed, ConvPackedParams, name)
    check_codes(qx, name)
    check_codes(qaccum, name)
    _check_input(qx, packed, name)
    codes, zero = unsigned(qx)
    values = conv_codes(_laid_out(codes), packed, float(qx._quantizer.scale), zero, 1.0, 0, False, dt.float32)
    total = values + values_of(qaccum)
    return quantized(total.relu() if relu else total, scale, zero_point, dt.quint8)


@quantized_operator()
def conv2d_add(qx: Tensor, qaccum: Tensor, packed_weight: Any, output_scale: float, output_zero_point: int) -> Tensor:
    """A convolution of codes plus another tensor."""
    return _conv_add(qx, qaccum, packed_weight, output_scale, output_zero_point, False, "conv2d_add")


@quantized_operator()
def conv2d_add_relu(
    qx: Tensor, qaccum: Tensor, packed_weight: Any, output_scale: float, output_zero_point: int
) -> Tensor:
    """`conv2d_add`, with negative values made zero."""
    return _conv_add(qx, qaccum, packed_weight, output_scale, output_zero_point, True, "conv2d_add_relu")


@quantized_operator()
def conv_prepack(weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """The former name of conv2d_prepack."""
    return _prepacked(2, False, weight, bias, (stride, padding, (0, 0), dilation, groups))


@quantized_operator()
def conv_unpack(packed_weights: Any) -> Any:
    """The former name of conv2d_unpack."""
    return packed_weights.unpack()
