"""Elementwise operators of quantized tensors: each a formula from codes to codes, computed in one pass.

PyTorch's vector code takes 64 codes at a time and rounds differently from its code for the rest (see `codes`): so each formula runs twice,
over the first multiple of 64 codes and over the rest. If the tensors have different layouts, PyTorch's code and this go element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.aliases import AnyFunction, Values
from ...core.layout import broadcast_two
from ...core.quantized import CODE_DTYPES, CODE_RANGES, QuantizedTensor, per_tensor
from ...core.size import make_size
from ...core.tensor import Tensor, new_tensor
from ...expr.functions import cast, erf, exp, maximum, minimum, round_, tanh, where
from ..machinery.declare import internal
from ..machinery.formula import Pointwise
from ..machinery.quantized_dispatch import quantized_form
from ..machinery.record import NewTensor
from ..pointwise import activation, hard_activation, unary
from .codes import clipped, code_of, decoded, encoded, float32, formula, inverse, quantized
from .forms import joined, one_scale
from .linear import linear_values, quantized_operator

_VECTOR = 64


def _alike(operands: list[Any]) -> bool:
    """Return whether the elements of all operands are stored without gaps, in one order."""
    first = operands[0]
    if any(t.shape != first.shape or t._strides != first._strides for t in operands[1:]):
        return False
    extent = 1 + sum((n - 1) * s for n, s in zip(first.shape, first._strides))
    return first._contig or (first.numel() == extent and min(first._strides, default=0) >= 0)


@internal(batching="each")
def codes_by_formula(operands: list[Any], impl: Any, params: Any, d: Any) -> NewTensor:
    """The codes that a formula computes from others. Its last parameter says whether it is the vector form."""
    first = operands[0]
    if _alike(operands):
        return first.shape, CODE_DTYPES[d], first.device, first._strides
    shape = first.shape
    for t in operands[1:]:
        shape = broadcast_two(shape, t.shape)
    return shape, CODE_DTYPES[d], first.device


@codes_by_formula.on("any")
def _(out: Tensor, operands: list[Any], impl: Pointwise, params: Values, d: Any) -> None:
    if not _alike([out, *operands]):
        impl.into(out, tuple(operands), (*params, False))
        return
    n = out.numel()
    body = n // _VECTOR * _VECTOR
    for start, count, vector in ((0, body, True), (body, n - body, False)):
        if count:
            parts = [_flat(t, start, count) for t in (out, *operands)]
            impl.into(parts[0], tuple(parts[1:]), (*params, vector))


def _flat(t: Tensor, start: int, count: int) -> Tensor:
    """Return elements of a dense tensor, in the order of its memory."""
    return new_tensor(t._storage, make_size((count,)), (1,), t._offset + start, t.dtype, t.device, True)


def _scales(*tensors: Any) -> tuple[Any, ...]:
    """Return scale and zero point of each tensor, as formulas take them."""
    return tuple(x for t in tensors for x in (float32(t._quantizer.scale), float(t._quantizer.zero_point)))


def _target(scale: float, zero_point: int, d: Any) -> tuple[Any, ...]:
    low, high = CODE_RANGES[d]
    return inverse(scale), float(zero_point), float(low), float(high)


def computed(impl: Pointwise, tensors: Values, params: Values, scale: float, zero_point: int, d: Any = None) -> Tensor:
    """Return the tensor whose codes a formula of (codes of tensors, scales of tensors, scales of the result, params, vector) computes."""
    for t in tensors:
        if not isinstance(t, QuantizedTensor):
            raise RuntimeError(
                f"quantized::{impl.name}: expected a quantized tensor, got {type(t).__name__} of dtype {getattr(t, 'dtype', None)}"
            )
        one_scale(t, impl.name)
    kind = d or tensors[0].dtype
    values = (*_scales(*tensors), *_target(scale, zero_point, kind), *params)
    codes = codes_by_formula([t._codes for t in tensors], impl, values, kind)
    return per_tensor(codes, float(scale), int(zero_point), kind)


# -- two tensors -------------------------------------------------------------------------------------------------------


def check_pair(qa: Any, qb: Any, name: str) -> None:
    for t in (qa, qb):
        if not isinstance(t, QuantizedTensor):
            raise NotImplementedError(
                f"Could not run 'quantized::{name}' with arguments from the 'CPU' backend: the tensor is not quantized."
            )
        if not t._quantizer.per_tensor:
            raise RuntimeError(
                "Only per tensor quantization is supported in Add."
                if name.startswith("add")
                else "Only per tensor quantization is supported in Mul."
            )
    if qa.dtype is not qb.dtype:
        raise RuntimeError(f"{name.capitalize()} operands should have same data type.")


@formula
def add_codes(a, b, a_scale=1.0, a_zero=0.0, b_scale=1.0, b_zero=0.0, inv=1.0, zero=0.0, low=0.0, high=0.0, relu=False, vector=False):  # fmt: skip
    value = decoded(a, a_scale, a_zero, vector) + decoded(b, b_scale, b_zero, vector)
    return encoded(maximum(value, 0.0) if relu else value, inv, zero, low, high, vector)


@formula
def mul_codes(a, b, a_scale=1.0, a_zero=0.0, b_scale=1.0, b_zero=0.0, inv=1.0, zero=0.0, low=0.0, high=0.0, relu=False, vector=False):  # fmt: skip
    product = cast((a - a_zero) * (b - b_zero), dt.float32)
    multiplier = cast(a_scale, dt.float32) * cast(b_scale, dt.float32) * cast(inv, dt.float32)
    code = clipped(round_(product * multiplier) + zero, low, high)
    return maximum(code, zero) if relu else code


def _is_scalar(x: Any) -> bool:
    return not isinstance(x, Tensor)


def _two(
    impl: Pointwise, name: str, qa: Any, qb: Any, scale: Any, zero_point: Any, relu: bool, scalar: AnyFunction
) -> Tensor:
    if _is_scalar(qb) or _is_scalar(qa):
        return scalar(*((qa, qb) if _is_scalar(qb) else (qb, qa)), relu)
    check_pair(qa, qb, name)
    return computed(impl, (qa, qb), (relu,), scale, zero_point)


def _into(out: Any, result: Any) -> Any:
    out._codes.resize_(result.shape)
    out._take(out._codes, out._quantizer, out.dtype)
    out._codes.copy_(result._codes)
    return out


def add_number(qa: Any, b: Any, relu: bool) -> Tensor:
    """Add a number by moving the zero point, and the codes if that leaves their range."""
    q = one_scale(qa, "add_scalar")
    low, high = CODE_RANGES[qa.dtype]
    number = float(np.rint(float(b) / q.scale))
    moved = q.zero_point - int(number)
    if low <= moved <= high:
        codes, scale, zero = qa._codes.clone(), q.scale, moved
    else:
        zero = low if moved < low else high
        scale = ((high - moved) if moved < low else (moved - low)) / (high - low) * q.scale
        codes = shift_codes.call(
            (qa._codes,),
            (
                float(moved),
                float32(np.float32(q.scale) * np.float32(inverse(scale))),
                float(zero),
                float(low),
                float(high),
            ),
            CODE_DTYPES[qa.dtype],
        )
    return per_tensor(codes.clamp(min=zero) if relu else codes, scale, zero, qa.dtype)


@formula
def shift_codes(code, moved=0.0, multiplier=1.0, zero=0.0, low=0.0, high=0.0):
    return clipped(round_(cast(code - moved, dt.float32) * cast(multiplier, dt.float32)) + zero, low, high)


def mul_number(qa: Any, b: Any, relu: bool) -> Tensor:
    """Multiply the scale by a number; a negative one reverses the codes."""
    q = one_scale(qa, "mul_scalar")
    low, high = CODE_RANGES[qa.dtype]
    number = float(b)
    codes, scale, zero = qa._codes, abs(number) * q.scale, q.zero_point
    if number == 0:
        codes, scale, zero = codes.new_zeros(codes.shape), 1.0, 0
    elif number < 0:
        zero = high - (zero - low)
        codes = high + low - codes.to(dt.int64)
        codes = codes.to(CODE_DTYPES[qa.dtype])
    else:
        codes = codes.clone()
    return per_tensor(codes.clamp(min=zero) if relu else codes, scale, zero, qa.dtype)


def _declare_two(name: str, impl: Pointwise, scalar: AnyFunction, what: str) -> None:
    for relu in (False, True):
        full = name + ("_relu" if relu else "")

        def tensors(
            qa: Any, qb: Any, scale: Any = None, zero_point: Any = None, *, out: Any = None, _relu: bool = relu
        ) -> Tensor:
            if out is not None:
                return _into(out, _two(impl, name, qa, qb, out.q_scale(), out.q_zero_point(), _relu, scalar))
            return _two(impl, name, qa, qb, scale, zero_point, _relu, scalar)

        def into(qa: Any, qb: Any, out: Any, _relu: bool = relu) -> Tensor:
            return _into(out, _two(impl, name, qa, qb, out.q_scale(), out.q_zero_point(), _relu, scalar))

        def number(qa: Any, b: Any, _relu: bool = relu) -> Tensor:
            return scalar(qa, b.item() if isinstance(b, Tensor) else b, _relu)

        def number_into(qa: Any, b: Any, out: Any, _relu: bool = relu) -> Tensor:
            made: Any = scalar(qa, b.item() if isinstance(b, Tensor) else b, _relu)
            out._take(made._codes, made._quantizer, made.dtype)
            return out

        tail = ", with negative values made zero" if relu else ""
        scalar_name = name + "_scalar" + ("_relu" if relu else "")
        for function, called, told in (
            (tensors, full, f"Two quantized tensors {what}, with the given scale{tail}."),
            (into, full + "_out", f"Two quantized tensors {what}, with the scale of `out`{tail}."),
            (number, scalar_name, f"A quantized tensor and a number {what}{tail}."),
            (number_into, scalar_name + "_out", f"A quantized tensor and a number {what}, into `out`{tail}."),
        ):
            function.__name__, function.__doc__ = called, told
            quantized_operator(name=called)(function)


_declare_two("add", add_codes, add_number, "added")
_declare_two("mul", mul_codes, mul_number, "multiplied")


@quantized_operator()
def cat(qx: Any, dim: int, scale: Any = None, zero_point: Any = None) -> Tensor:
    """Quantized tensors one after the other, with the given scale or that of the first."""
    return _cat(qx, dim, scale, zero_point, False)


@quantized_operator()
def cat_relu(qx: Any, dim: int, scale: Any = None, zero_point: Any = None) -> Tensor:
    """`cat`, with negative values made zero."""
    return _cat(qx, dim, scale, zero_point, True)


@quantized_operator()
def cat_out(qx: Any, dim: int, out: Any) -> Tensor:
    """`cat` with the scale of `out`, into it."""
    return _into(out, _cat(qx, dim, out.q_scale(), out.q_zero_point(), False))


@quantized_operator()
def cat_relu_out(qx: Any, dim: int, out: Any) -> Tensor:
    """`cat_relu` with the scale of `out`, into it."""
    return _into(out, _cat(qx, dim, out.q_scale(), out.q_zero_point(), True))


def _cat(qx: Any, dim: int, scale: Any, zero_point: Any, relu: bool) -> Tensor:
    for t in qx:
        if not isinstance(t, QuantizedTensor) or not t._quantizer.per_tensor:
            raise RuntimeError("Only per-tensor quantization is supported in 'cat'!")
    q = qx[0]._quantizer
    scale = q.scale if scale is None else scale
    return joined(qx, dim, float(scale), int(q.zero_point if zero_point is None else zero_point), qx[0].dtype, relu)


# -- one tensor --------------------------------------------------------------------------------------------------------


def activation_formula(function: AnyFunction, exact: bool = False) -> Pointwise:
    """Return a formula over codes from one over values: `function(value, a, b, c, vector)`. `exact`: PyTorch's vector code subtracts the zero
    point before it multiplies, as its other code does."""

    def over_codes(x, scale=1.0, zero=0.0, inv=1.0, out_zero=0.0, low=0.0, high=0.0, a=0.0, b=0.0, c=0.0, vector=False):
        value = function(
            decoded(x, scale, zero, vector and not exact), *(cast(p, dt.float32) for p in (a, b, c)), vector
        )
        return encoded(value, inv, out_zero, low, high, vector)

    over_codes.__name__ = function.__name__
    return formula(over_codes)


def activated(
    impl: Pointwise, x: Any, scale: Any, zero_point: Any, a: float = 0.0, b: float = 0.0, c: float = 0.0
) -> Tensor:
    return computed(impl, (x,), (float(a), float(b), float(c)), scale, zero_point)


def _same_scale(impl: Pointwise, x: Any, *params: float) -> Tensor:
    q = one_scale(x, impl.name)
    return activated(impl, x, q.scale, q.zero_point, *params)


@activation_formula
def leaky_relu_codes(x, slope, b, c, vector):
    return where(x > 0.0, x, x * slope)


def _sigmoid(x, a, b, c, vector):
    return 1.0 / (1.0 + exp(-x))


sigmoid_codes = activation_formula(_sigmoid, exact=True)


@activation_formula
def tanh_codes(x, a, b, c, vector):
    return tanh(x)


@activation_formula
def hardsigmoid_codes(x, a, b, c, vector):
    return minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0


@formula
def hardswish_codes(x, scale=1.0, zero=0.0, inv=1.0, out_zero=0.0, low=0.0, high=0.0, vector_inv=1.0, vector=False):
    """Codes of hardswish. PyTorch's vector code computes the reciprocal of the scale in float64, its other code in float32."""
    value = decoded(x, scale, zero, vector)
    value = value * minimum(maximum(value + 3.0, 0.0), 6.0) / 6.0
    return encoded(value, vector_inv if vector else inv, out_zero, low, high, vector)


@activation_formula
def elu_codes(x, negative, scale, input_scale, vector):
    return where(x >= 0.0, x * scale, (exp(x * input_scale) - 1.0) * negative)


@activation_formula
def gelu_codes(x, a, b, c, vector):
    return x * 0.5 * (1.0 + erf(x * 0.7071067811865476))


@activation_formula
def gelu_tanh_codes(x, a, b, c, vector):
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + tanh(inner))


@activation_formula
def threshold_codes(x, limit, value, c, vector):
    return where(x > limit, x, value)


def _unit_scale(x: Any, whole: bool) -> tuple[float, int]:
    """Return scale and zero point for results from 0 to 1, or (whole) from -1 to 1."""
    if x.dtype is dt.qint32:
        return (2.0 if whole else 1.0) / 2**32, 0
    bits, signed = 8, x.dtype is dt.qint8
    if whole:
        return 2.0 / 2**bits, 0 if signed else 2 ** (bits - 1)
    return 1.0 / 2**bits, -(2 ** (bits - 1)) if signed else 0


def _become(input: Any, result: Any) -> Any:
    input._codes.copy_(result._codes)
    input._quantizer = result._quantizer
    return input


def _with_inplace(operator: Any) -> AnyFunction:
    """Declare the form of an operator and, from that, of the method with an underscore."""

    def declare(form: AnyFunction) -> AnyFunction:
        quantized_form(operator)(form)
        if operator.op.inplace is not None:
            quantized_form(operator.op.inplace)(
                lambda input, *args, **kwargs: _become(input, form(input, *args, **kwargs))
            )
        return form

    return declare


@_with_inplace(unary.sigmoid)
def sigmoid_form(input: Any) -> Tensor:
    return activated(sigmoid_codes, input, *_unit_scale(input, False))


@_with_inplace(unary.tanh)
def tanh_form(input: Any) -> Tensor:
    return activated(tanh_codes, input, *_unit_scale(input, True))


@_with_inplace(hard_activation._hardsigmoid)
def hardsigmoid_form(input: Any) -> Tensor:
    return activated(hardsigmoid_codes, input, *_unit_scale(input, False))


@_with_inplace(activation.leaky)
def leaky_relu_form(input: Any, negative_slope: float = 0.01) -> Tensor:
    return _same_scale(leaky_relu_codes, input, negative_slope)


@quantized_form(activation.gelu)
def gelu_form(input: Any, approximate: str = "none") -> Tensor:
    q = one_scale(input, "gelu")
    return activated(gelu_tanh_codes if approximate == "tanh" else gelu_codes, input, float32(q.scale), q.zero_point)


@_with_inplace(activation.threshold)
def threshold_form(input: Any, threshold: float, value: float) -> Tensor:
    return _same_scale(threshold_codes, input, threshold, value)


def _clamped(x: Any, low: Any, high: Any) -> Tensor:
    q = one_scale(x, "clamp")
    low, high = (None if v is None else code_of(v, q.scale, q.zero_point, x.dtype) for v in (low, high))
    return per_tensor(x._codes.clamp(low, high), q.scale, q.zero_point, x.dtype)


@_with_inplace(activation.limited)
def hardtanh_form(input: Any, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    return _clamped(input, min_val, max_val)


@quantized_operator()
def relu6(qx: Tensor, inplace: bool = False) -> Tensor:
    """Clamp values to the range from 0 to 6."""
    result = _clamped(qx, 0.0, 6.0)
    return _become(qx, result) if inplace else result


@quantized_operator()
def clamp(qx: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """The values limited to the range from min to max."""
    return _clamped(qx, min, max)


@quantized_operator()
def leaky_relu(qx: Tensor, negative_slope: float, inplace: bool, output_scale: float, output_zero_point: int) -> Tensor:
    """Multiply negative values by a slope."""
    return activated(leaky_relu_codes, qx, output_scale, output_zero_point, negative_slope)


@quantized_operator()
def hardswish(input: Tensor, output_scale: float, output_zero_point: int) -> Tensor:
    """x * relu6(x + 3) / 6."""
    return computed(hardswish_codes, (input,), (float32(1 / float(output_scale)),), output_scale, output_zero_point)


@quantized_operator()
def sigmoid(qx: Tensor, output_scale: float, output_zero_point: int) -> Tensor:
    """1 / (1 + exp(-x))."""
    return activated(sigmoid_codes, qx, output_scale, output_zero_point)


@quantized_operator()
def elu(
    self: Tensor, output_scale: float, output_zero_point: int, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1
) -> Tensor:
    """x where positive, else alpha * (exp(x) - 1); both times `scale`."""
    negative = float(np.float32(alpha) * np.float32(scale))
    return activated(elu_codes, self, output_scale, output_zero_point, negative, scale, input_scale)


@quantized_operator()
def celu(self: Tensor, output_scale: float, output_zero_point: int, alpha: Any = 1) -> Tensor:
    """x where positive, else alpha * (exp(x / alpha) - 1)."""
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return elu(self, output_scale, output_zero_point, alpha, 1.0, 1.0 / alpha)


@quantized_operator()
def threshold(qx: Tensor, threshold: Any, value: Any) -> Tensor:
    """x where larger than a threshold, else a value."""
    return _same_scale(threshold_codes, qx, threshold, value)


@quantized_operator()
def dropout(
    self: Tensor, output_scale: float, output_zero_point: int, p: float = 0.5, training: bool = False
) -> Tensor:
    """The tensor unchanged: quantized models are not trained."""
    return self


@quantized_operator()
def linear_leaky_relu(
    X: Tensor, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int, negative_slope: float
) -> Tensor:
    """`linear`, with negative values times a slope: computed in float32 and quantized once."""
    return _activated_linear(
        X, W_prepack, Y_scale_i, Y_zero_point_i, lambda y: activation.leaky(y, negative_slope), "linear_leaky_relu"
    )


@quantized_operator()
def linear_tanh(X: Tensor, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int) -> Tensor:
    """tanh of `linear`: computed in float32 and quantized once."""
    return _activated_linear(X, W_prepack, Y_scale_i, Y_zero_point_i, unary.tanh, "linear_tanh")


def _activated_linear(x: Any, packed: Any, scale: float, zero_point: int, function: AnyFunction, name: str) -> Tensor:
    return quantized(function(linear_values(x, packed, name)), scale, zero_point, dt.quint8)
