"""Quantized linear layers: u8 codes times s8 weights summed in 32 bits, and the sums as codes or as floats.

The order of steps after the product is that of FBGEMM, which PyTorch's x86 engine uses here: (sum + bias / s) * m for codes, with
s = input scale * weight scale and m = s / output scale; sum * s + bias for floats."""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar

import numpy as np

from ...backends.cpu.onednn import int8
from ...core import dtype as dt
from ...core.quantized import Engine, QuantizedTensor, per_tensor
from ...core.tensor import Tensor, empty
from ...kernels.library import requantize
from ..machinery.declare import composite, internal
from ..machinery.memory import dense, values_on_host
from ..machinery.record import NewTensor
from .codes import codes_of
from .packed import Packed, become, check_weight, fbgemm_bias, methods, row
from .tensors import check_finite, halved


class LinearPackedParams(Packed):
    """The result of `torch.ops.quantized.linear_prepack`."""

    __torch_class__ = "quantized.LinearPackedParamsBase"
    schemas: ClassVar[Any] = methods(
        unpack="(Any self) -> (Tensor, Tensor?)", bias="(Any self) -> Tensor?", __getstate__="(Any self) -> (Tensor, Tensor?)",
        __setstate__="(Any self, (Tensor, Tensor?) state) -> NoneType",
    )  # fmt: skip

    def __init__(self, weight: Any, bias: Tensor | None = None):
        check_weight(weight, bias, "quantized::linear_prepack", 2)
        if bias is not None and bias.shape != weight.shape[:1]:
            raise RuntimeError(
                f"quantized::linear_prepack (fbgemm): bias should have N elements: {weight.shape[0]}, but got {bias.numel()}"
            )
        super().__init__(weight, bias)
        self.inputs = weight.shape[1]
        self.sums = self.codes.sum(1, dtype=np.int64)

    def set_state(self, state: Any) -> None:
        if not isinstance(state[0], QuantizedTensor):
            become(self, HalfLinearPackedParams)
        self.__init__(*state)  # type: ignore[misc]

    @property
    def weights(self) -> int8.Weights:
        if self._weights is None:
            self._weights = int8.Weights(self.codes.T)
        return self._weights

    def weight_sums(self) -> np.ndarray:
        """Return the contribution of one unit of the input's zero point to each column of sums."""
        return self.sums - self.inputs * self.zeros

    def channel_zeros(self) -> Tensor | None:
        return None if self.symmetric else row(self.zeros, dt.int32)

    def to_codes(self, scale: float, zero_point: int, output_scale: float) -> tuple[Any, ...]:
        """Return (offsets, zero points, multipliers, bias, its factor) of a call with these scales."""
        key = (scale, zero_point, output_scale)
        found = self.known.get(key)
        if found is None:
            both = np.float32(scale) * self.scales
            bias, factor = fbgemm_bias(self, both)
            found = self.remember(key, (
                row(zero_point * self.weight_sums(), dt.int32), self.channel_zeros(), row(both / np.float32(output_scale), dt.float32),
                None if bias is None else row(bias, dt.float32), factor,
            ))  # fmt: skip
        return found

    @functools.cached_property
    def to_floats(self) -> tuple[Any, ...]:
        """Return (sums of weights, zero points, scales, bias)."""
        bias = None if self.bias_values is None else row(self.bias_values, dt.float32)
        return row(self.weight_sums(), dt.int32), self.channel_zeros(), row(self.scales, dt.float32), bias


def _sums(out: Tensor, codes: Tensor, packed: LinearPackedParams) -> Tensor | None:
    """Compute the product of codes in 32 bits, into the memory of `out`; return the sums of rows if weights have zero points."""
    flat = dense(codes)
    if len(flat.shape) != 2:
        flat = flat.view(codes.numel() // packed.inputs if packed.inputs else 0, packed.inputs)
    int8.matmul(out, flat, packed.weights)
    return None if packed.symmetric else row(values_on_host(flat).sum(1, dtype=np.int64), dt.int32)


def _rows(out: Tensor) -> int:
    return math.prod(out.shape[:-1])


@internal(batching="each")
def linear_codes(codes: Tensor, packed: Any, numbers: Any, zero_point: int, relu: bool) -> NewTensor:
    """The codes of a linear layer's result. `numbers`: see LinearPackedParams.to_codes."""
    return (*codes.shape[:-1], packed.outputs), dt.uint8, codes.device


@linear_codes.on("cpu")
def _(out: Tensor, codes: Tensor, packed: Any, numbers: tuple[Any, ...], zero_point: int, relu: bool) -> None:
    sums = empty(out.shape, dt.int32)
    of_rows = _sums(sums, codes, packed)
    offsets, zeros, multiplier, bias, factor = numbers
    low = zero_point if relu else 0
    requantize.requantize_rows(
        out, sums, offsets, of_rows, zeros, multiplier, bias, factor, _rows(out), packed.outputs, zero_point, low, 255
    )


@internal(batching="each")
def linear_floats(codes: Tensor, packed: Any, scale: float, zero_point: int, relu: bool) -> NewTensor:
    """A linear layer's result in float32, of codes with this scale and zero point."""
    return (*codes.shape[:-1], packed.outputs), dt.float32, codes.device


@linear_floats.on("cpu")
def _(out: Tensor, codes: Tensor, packed: Any, scale: float, zero_point: int, relu: bool) -> None:
    _values_of_sums(out, codes, packed, np.array([scale, zero_point], np.float64), relu)


def _values_of_sums(out: Tensor, codes: Tensor, packed: Any, numbers: np.ndarray, relu: bool) -> None:
    """Convert sums to floats; `numbers` are scale and zero point of the codes."""
    of_rows = _sums(out, codes, packed)
    weight_sums, zeros, scales, bias = packed.to_floats
    rows, n = _rows(out), packed.outputs
    requantize.dequantize_rows(out, None, weight_sums, of_rows, zeros, scales, bias, numbers, rows, n, int(relu))


@internal(batching="each")
def linear_of_floats(x: Tensor, packed: Any, most: int, relu: bool) -> NewTensor:
    """A linear layer of floats, which are quantized to codes up to `most` with a scale that covers them. In one operator, because small
    layers wait longer for Python than for the product."""
    return (*x.shape[:-1], packed.outputs), dt.float32, x.device


@linear_of_floats.on("cpu")
def dynamic_product(out: Tensor, x: Tensor, packed: Any, most: int, relu: bool) -> None:
    n, numbers, ends = x.numel(), np.empty(2), None
    parts = max(-(-n // requantize.PART), 1)
    x, codes = dense(x), empty(x.shape, dt.uint8)
    if parts > 1:
        ends = np.empty(2 * parts, np.float32)
        requantize.ranges(ends, x, n, parts)
    requantize.dynamic_codes(codes, numbers, x, ends, n, parts, most)
    if not numbers[0] < math.inf:
        check_finite(numbers[0])
    _values_of_sums(out, codes, packed, numbers, relu)


def most_code(reduce_range: bool) -> int:
    """Return the largest code of values with a dynamic scale."""
    return 127 if halved(reduce_range) else 255


def check_packed(packed: Any, kind: type, name: str) -> None:
    if not isinstance(packed, kind):
        raise RuntimeError(
            f"{name}() Expected a value of type '{kind.__name__}' for the packed weights but"
            f" instead found type '{type(packed).__name__}'."
        )


def unsigned(x: Any) -> tuple[Tensor, int]:
    """Return codes from 0 to 255 and their zero point, as products need: signed codes are shifted up by 128."""
    zero_point = int(x._quantizer.zero_point)
    return (x._codes, zero_point) if x.dtype is dt.quint8 else (moved(x._codes, dt.uint8), zero_point + 128)


def moved(codes: Tensor, to: Any) -> Tensor:
    """Convert unsigned codes to signed ones of the same values, or the other way."""
    return (codes.view(dt.uint8) ^ 128).view(to)


def check_codes(x: Any, name: str) -> None:
    """Check that activations are 8-bit codes (signed if the engine is qnnpack or onednn), with one scale."""
    signed = isinstance(x, QuantizedTensor) and x.dtype is dt.qint8 and Engine.name in ("qnnpack", "onednn")
    if not isinstance(x, QuantizedTensor) or not (x.dtype is dt.quint8 or signed):
        kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise RuntimeError(f"quantized::{name}(): Expected a quantized input of dtype torch.quint8 but got {kind}")
    if not x._quantizer.per_tensor:
        raise RuntimeError(f"quantized::{name}(): the input should be quantized with one scale")


def _check_shape(x: Any, packed: LinearPackedParams, name: str) -> None:
    if len(x.shape) < 1:
        raise RuntimeError("The dimension of input tensor should be larger than 0")
    if x.shape[-1] != packed.inputs:
        raise RuntimeError(
            f"quantized::{name}(): The number of rows in the packB should be equal to K: {x.shape[-1]}, but it is {packed.inputs}"
        )


def run_linear(x: Any, packed: Any, scale: float, zero_point: int, relu: bool, name: str) -> Tensor:
    check_packed(packed, LinearPackedParams, name)
    check_codes(x, name)
    _check_shape(x, packed, name)
    codes, zero = unsigned(x)
    signed = x.dtype is dt.qint8
    numbers = packed.to_codes(x._quantizer.scale, zero, scale)
    codes = linear_codes(codes, packed, numbers, int(zero_point) + 128 * signed, relu)
    return per_tensor(moved(codes, dt.int8) if signed else codes, float(scale), int(zero_point), x.dtype)


def linear_values(x: Any, packed: Any, name: str) -> Tensor:
    """Return a linear layer of codes, with a result in float32."""
    check_packed(packed, LinearPackedParams, name)
    check_codes(x, name)
    _check_shape(x, packed, name)
    codes, zero = unsigned(x)
    return linear_floats(codes, packed, float(x._quantizer.scale), zero, False)


def run_dynamic(x: Any, packed: Any, reduce_range: bool, relu: bool, name: str) -> Tensor:
    if type(packed) is not LinearPackedParams:
        if isinstance(packed, HalfLinearPackedParams):
            return run_half(x, packed, relu)
        check_packed(packed, LinearPackedParams, name)
    if not isinstance(x, Tensor) or x.dtype is not dt.float32:
        raise RuntimeError(f"quantized::{name}(): the input should be a tensor of dtype torch.float32")
    _check_shape(x, packed, name)
    return linear_of_floats(x.detach(), packed, most_code(reduce_range), relu)


def quantized_operator(**options: Any) -> Any:
    """Declare an operator of `torch.ops.quantized`."""
    return composite(namespaces=("quantized",), method=False, **options)


@quantized_operator()
def linear_prepack(W: Tensor, B: Any = None) -> Any:
    """The weights and bias of a linear layer, packed for products."""
    return LinearPackedParams(W, B)


@quantized_operator()
def linear_unpack(W_prepack: Any) -> Any:
    """The weights and bias that were packed."""
    check_packed(W_prepack, Packed, "linear_unpack")
    return W_prepack.unpack()


@quantized_operator()
def linear(X: Tensor, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int) -> Tensor:
    """A linear layer of codes, with a result of the given scale and zero point."""
    return run_linear(X, W_prepack, Y_scale_i, Y_zero_point_i, False, "linear")


@quantized_operator()
def linear_relu(X: Tensor, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int) -> Tensor:
    """`linear`, with negative values made zero."""
    return run_linear(X, W_prepack, Y_scale_i, Y_zero_point_i, True, "linear_relu")


@quantized_operator()
def linear_dynamic(X: Tensor, W_prepack: Any, reduce_range: bool = False) -> Tensor:
    """A linear layer of floats with quantized weights: the input is quantized with a scale that covers its values."""
    return run_dynamic(X, W_prepack, reduce_range, False, "linear_dynamic")


@quantized_operator()
def linear_relu_dynamic(X: Tensor, W_prepack: Any, reduce_range: bool = False) -> Tensor:
    """`linear_dynamic`, with negative values made zero."""
    return run_dynamic(X, W_prepack, reduce_range, True, "linear_relu_dynamic")


# -- weights in 16 bits --------------------------------------------------------------------------------------------------


class HalfLinearPackedParams(LinearPackedParams):
    """Weights that are rounded to float16 and not quantized."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight, self.given_bias = weight.detach().to(dt.float16).to(dt.float32), bias
        self.outputs, self.inputs = weight.shape


def run_half(x: Tensor, packed: Any, relu: bool) -> Tensor:
    _check_shape(x, packed, "linear_dynamic_fp16")
    y = x.detach() @ packed.weight.t()
    if packed.given_bias is not None:
        y = y + packed.given_bias
    return y.relu() if relu else y


@quantized_operator()
def linear_prepack_fp16(W: Tensor, B: Any = None) -> Any:
    """The weights of a linear layer, rounded to float16."""
    return HalfLinearPackedParams(W, B)


@quantized_operator()
def linear_unpack_fp16(W_prepack: Any) -> Any:
    """The weights and bias that were packed."""
    return W_prepack.unpack()


@quantized_operator()
def linear_dynamic_fp16(X: Tensor, W_prepack: Any) -> Tensor:
    """A linear layer of floats with weights that are rounded to float16."""
    return run_half(X, W_prepack, False)


@quantized_operator()
def linear_dynamic_fp16_unpacked_weight(X: Tensor, weight: Tensor, bias: Any = None) -> Tensor:
    """`linear_dynamic_fp16` with weights that were not packed."""
    return run_half(X, HalfLinearPackedParams(weight, bias), False)


@quantized_operator()
def linear_relu_dynamic_fp16(X: Tensor, W_prepack: Any) -> Tensor:
    """`linear_dynamic_fp16`, with negative values made zero."""
    return run_half(X, W_prepack, True)


# -- codes within, floats without --------------------------------------------------------------------------------------------


def _quantized_within(x: Tensor, scale: float, zero_point: int, packed: Any, relu: bool) -> Tensor:
    check_packed(packed, LinearPackedParams, "linear_with_input_q_dq_qweight_dq_output_fp32")
    _check_shape(x, packed, "linear_with_input_q_dq_qweight_dq_output_fp32")
    codes = codes_of(x.detach(), scale, zero_point, dt.quint8)
    return linear_floats(codes, packed, scale, zero_point, relu)


@quantized_operator()
def linear_with_input_q_dq_qweight_dq_output_fp32(
    X: Tensor, X_scale: float, X_zero_point: int, W_prepack: Any
) -> Tensor:
    """A linear layer of floats, quantized with a known scale for the product."""
    return _quantized_within(X, X_scale, X_zero_point, W_prepack, False)


@quantized_operator()
def linear_with_input_q_dq_qweight_dq_relu_output_fp32(
    X: Tensor, X_scale: float, X_zero_point: int, W_prepack: Any
) -> Tensor:
    """Multiply as `linear_with_input_q_dq_qweight_dq_output_fp32`, then replace negative values by zero."""
    return _quantized_within(X, X_scale, X_zero_point, W_prepack, True)
