"""Activation functions: torch.relu and the like, and their nn.functional forms with `inplace`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...core import dtype as dt
from ...core.tensor import Tensor
from ...expr import Expr
from ...expr import functions as f
from ..machinery.aten_form import aten_parts
from ..machinery.declare import composite, pointwise, transparent
from ..machinery.formula import Pointwise
from ..machinery.quirks import Quirks
from ..machinery.record import OPS
from .arithmetic import sub
from .conjugate import abs as absolute
from .unary import sigmoid, tanh

FUNCTIONAL = ("nn.functional",)
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
_INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _choose(op: Any, inplace: bool) -> Any:
    return op.op.inplace if inplace else op


def _sloped(op: Any, inplace: bool, input: Tensor, slope: float) -> Tensor:
    """Return op(input, slope), perhaps in place. Then the derivative finds from the result which elements were negative; after a negative
    slope that is lost."""
    if not inplace:
        return op(input, slope)
    result = op.op.inplace(input, slope)
    if slope < 0 and (node := result.grad_fn) is not None:
        node.register_prehook(refuse_slope)
    return result


def refuse_slope(gradients: Any = None) -> None:
    """Raise the error for a derivative from the result of a function with a negative slope."""
    raise RuntimeError(
        "In-place activation backward calculation is triggered with a negative slope which is not supported. This is caused"
        " by calling in-place forward function with a negative slope, please call out-of-place version instead."
    )


def with_inplace(op: Any) -> Any:
    """Declare nn.functional's form of an operator without parameters, which may change its input."""

    def face(input: Tensor, inplace: bool = False) -> Tensor:
        return op.op.inplace(input) if inplace else op(input)

    face.__name__ = face.__qualname__ = op.op.name
    face.__doc__ = op.__doc__
    inline = {"inline": "_change(input) if inplace else _compute(input)", "_change": op.op.inplace, "_compute": op}
    return transparent(face, namespaces=FUNCTIONAL, inline=inline)


# -- rectifiers ----------------------------------------------------------------------------------------------------------


def _check_relu(op: Pointwise, operands: tuple[Any, ...]) -> None:
    if operands[0].dtype is dt.bool_:
        raise RuntimeError("Boolean inputs not supported for relu")
    if operands[0].dtype.is_complex:
        raise NotImplementedError("clamp is not supported for complex types")


@pointwise(
    check=_check_relu,
    grad=lambda g, input, out: (f.where(out <= 0, 0, g),),
    out=False,
    aten_backward="threshold_backward(grad, result, 0)",
)
def relu(input):
    """max(input, 0)"""
    return f.maximum(input, 0)


with_inplace(relu)


def _check_hardtanh(op: Pointwise, operands: tuple[Any, ...]) -> None:
    d = operands[0].dtype
    if d is dt.bool_:
        raise RuntimeError("Bool inputs not supported for hardtanh")
    if d.is_complex:
        raise NotImplementedError("clamp is not supported for complex types")


def _limits_fit(compute: dt.dtype, operands: tuple[Any, ...]) -> Callable[..., Any] | None:
    def guard(_: Any, low: float = -1.0, high: float = 1.0) -> None:
        if low < 0 or high < 0:
            raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")

    return guard if operands[0].dtype.kind == "u" else None


@pointwise(
    name="hardtanh",
    function=False,
    method=False,
    check=_check_hardtanh,
    guard=_limits_fit,
    fits=("min_val", "max_val"),
    grad=lambda g, input, min_val, max_val, out: (f.where((input <= min_val) | (input >= max_val), 0, g),),
    inplace_grad=lambda g, input, min_val, max_val, out: (f.where((out <= min_val) | (out >= max_val), 0, g),),
    aten_backward="hardtanh_backward(grad, self, min_val, max_val)",
)
def limited(input, min_val=-1.0, max_val=1.0):
    """input limited to [min_val, max_val]"""
    return f.where(input < min_val, min_val, f.where(input > max_val, max_val, input))  # -0.0 stays between 0 and 6


@transparent(namespaces=FUNCTIONAL)
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """input limited to [min_val, max_val]"""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return _choose(limited, inplace)(input, min_val, max_val)


@transparent(namespaces=FUNCTIONAL)
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """input limited to [0, 6]"""
    return _choose(limited, inplace)(input, 0, 6)


@pointwise(
    name="leaky_relu",
    function=False,
    method=False,
    kinds="f",
    fits=("negative_slope",),
    quirks=Quirks(wide_numbers=("negative_slope",)),
    grad=lambda g, input, negative_slope, out: (f.where(input > 0, g, g * negative_slope),),
    inplace_grad=lambda g, input, negative_slope, out: (f.where(out > 0, g, g * negative_slope),),
    aten_backward="leaky_relu_backward(grad, self, negative_slope, False)",
)
def leaky(input, negative_slope=0.01):
    """input, its negative part times negative_slope"""
    return f.where(input > 0, input, input * negative_slope)


@transparent(namespaces=FUNCTIONAL)
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input, its negative part times negative_slope"""
    return _sloped(leaky, inplace, input, negative_slope)


@pointwise(
    kinds="if",
    grad=lambda g, input, threshold, value, out: (f.where(input <= threshold, 0, g),),
    method=False,
    numbers=("threshold", "value"),
    fits=("threshold", "value"),
    rule=lambda op, operands: (operands[0].dtype, operands[0].dtype),
    quirks=Quirks(unrounded=(1, 2), inplace_function=True, wide_numbers=("threshold",)),
    aten_backward="threshold_backward(grad, self, threshold)",
)
def threshold(input, threshold, value):
    """input where it is above the threshold, else value"""
    return f.where(input <= threshold, value, input)


@transparent(name="threshold", namespaces=FUNCTIONAL)
def functional_threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where it is above the threshold, else value"""
    return _choose(OPS["threshold"].function, inplace)(input, threshold, value)


@pointwise(
    name="prelu_kernel",
    function=False,
    method=False,
    inplace=False,
    out=False,
    kinds="f",
    numbers=(),
    grad=lambda g, input, weight, out: (f.where(input > 0, g, weight * g), f.where(input > 0, 0, input * g)),
    quirks=Quirks(label="PreluKernelBackward0"),
    aten="_prelu_kernel(input, weight)",
    aten_backward="_prelu_kernel_backward(grad, self, weight) -> self, weight",
)
def _prelu(input, weight):
    return f.where(input > 0, input, weight * input)


@composite(namespaces=("torch", "nn.functional"), autocast="lower")
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """input, its negative part times the weight of its channel"""
    if weight.dtype is not input.dtype:
        raise RuntimeError(
            f"prelu: Type promoting not supported. Got {input.dtype.scalar_type} and {weight.dtype.scalar_type}"
        )
    if weight.numel() != 1:
        if not input.shape:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = input.shape[1] if len(input.shape) > 1 else 1
        if channels != weight.numel():
            raise RuntimeError(
                f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {weight.numel()} and channel"
                f" size = {channels}."
            )
    if len(weight.shape) > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {len(weight.shape)}")
    if len(input.shape) == 0:
        weight = weight.squeeze(0) if len(weight.shape) == 1 else weight
    else:
        sizes = [1] * len(input.shape)
        if len(sizes) > 1 and weight.numel() != 1:
            sizes[1] = weight.shape[0]
        weight = weight.reshape(sizes)
    return _prelu(input, weight)


# -- exponential units ---------------------------------------------------------------------------------------------------


def _elu_gradient(g: Expr, input: Expr, alpha: Any, scale: Any, input_scale: Any, out: Expr) -> tuple[Expr | None, ...]:
    slope = input_scale * alpha * scale * f.exp(input * input_scale)
    return (f.where(input <= 0, g * slope, g * scale),)


def _elu_gradient_from_result(
    g: Expr, input: Expr, alpha: Any, scale: Any, input_scale: Any, out: Expr
) -> tuple[Any, ...]:
    return (f.where(out <= 0, g * input_scale * (out + alpha * scale), g * scale),)


@pointwise(
    name="elu",
    function=False,
    method=False,
    kinds="f",
    grad=_elu_gradient,
    inplace_grad=_elu_gradient_from_result,
    constants={"scale": None, "input_scale": None},
    fits=("alpha", "scale", "input_scale"),
    quirks=Quirks(label="EluBackward0", wide_numbers=("alpha", "scale", "input_scale")),
    aten_backward="elu_backward(grad, alpha, scale, input_scale, False, self)",
)
def exponential_unit(input, alpha=1.0, scale=1.0, input_scale=1.0):
    """scale * (input, its negative part as alpha * (exp(input_scale * input) - 1))"""
    return f.where(input > 0, input * scale, f.expm1(input * input_scale) * (alpha * scale))


@transparent(namespaces=FUNCTIONAL)
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input, its negative part as alpha * (exp(input) - 1)"""
    return _sloped(exponential_unit, inplace, input, alpha)


@transparent
def selu(input: Tensor) -> Tensor:
    """The self-normalising exponential unit."""
    return exponential_unit(input, _SELU_ALPHA, _SELU_SCALE, 1.0)


@transparent(namespaces=("torch", "nn.functional"))
def selu_(input: Tensor) -> Tensor:
    """selu in place"""
    return exponential_unit.op.inplace(input, _SELU_ALPHA, _SELU_SCALE, 1.0)


@transparent(name="selu", namespaces=FUNCTIONAL)
def functional_selu(input: Tensor, inplace: bool = False) -> Tensor:
    """The self-normalising exponential unit."""
    return selu_(input) if inplace else selu(input)


def _check_celu(op: Pointwise, operands: tuple[Any, ...], params: tuple[Any, ...]) -> None:
    if params[0] == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")


@pointwise(
    name="celu",
    method=False,
    kinds="f",
    kernel="elu_cpu",
    check=_check_celu,
    constants={"alpha": None},
    fits=("alpha",),
    quirks=Quirks(wide_numbers=("alpha",)),
    grad=lambda g, input, alpha, out: (f.where(input <= 0, g * f.exp(input * (1 / alpha)), g),),
    inplace_grad=lambda g, input, alpha, out: (f.where(out <= 0, g * (1 / alpha) * (out + alpha), g),),
)
def continuous_unit(input, alpha=1.0):
    """input, its negative part as alpha * (exp(input / alpha) - 1)"""
    return f.where(input > 0, input, alpha * f.expm1(input * (1 / alpha)))


@transparent(name="celu", namespaces=FUNCTIONAL)
def functional_celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input, its negative part as alpha * (exp(input / alpha) - 1)"""
    return _sloped(continuous_unit, inplace, input, alpha)


# -- smooth functions ----------------------------------------------------------------------------------------------------


def _check_gelu(op: Pointwise, operands: tuple[Any, ...], params: tuple[Any, ...]) -> None:
    if params[0] not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")


def _gelu_gradient(g: Expr, input: Expr, approximate: str, out: Expr) -> tuple[Expr | None, ...]:
    if approximate == "none":
        return (g * (f.gelu_gate(input) + input * _INV_SQRT_2PI * f.exp(-0.5 * input * input)),)
    inner = _SQRT_2_OVER_PI * (input + 0.044715 * input * input * input)
    t = f.tanh(inner)
    slope = _SQRT_2_OVER_PI * (1 + 3 * 0.044715 * input * input)
    return (g * (0.5 * (1 + t) + 0.5 * input * (1 - t * t) * slope),)


@pointwise(
    out="exact",
    kinds="f", kernel="GeluKernelImpl", namespaces=FUNCTIONAL, method=False, inplace=False, check=_check_gelu, grad=_gelu_gradient,
    aten_backward="gelu_backward(grad, self, approximate)",
)  # fmt: skip
def gelu(input, *, approximate="none"):
    """input times the normal distribution function of it, exactly or by tanh"""
    if approximate == "none":
        return input * f.gelu_gate(input)
    return 0.5 * input * (1 + f.tanh(_SQRT_2_OVER_PI * (input + 0.044715 * input * input * input)))


def _silu_gradient(g: Expr, input: Expr, out: Expr) -> tuple[Expr | None, ...]:
    s = f.sigmoid(input)
    return (g * f.conj(s * (1 + input * (1 - s))),)


@pointwise(
    name="silu",
    function=False,
    kinds="fc",
    method=False,
    grad=_silu_gradient,
    aten_backward="silu_backward(grad, self)",
)
def swish(input):
    """input * sigmoid(input)"""
    return input / (1 + f.exp(-input))


silu = with_inplace(swish)
aten_parts("silu")(lambda aten, self: aten.mul.Tensor(self, aten.sigmoid.default(self)))


def _mish_gradient(g: Expr, input: Expr, out: Expr) -> tuple[Expr | None, ...]:
    t = f.tanh(f.softplus(input))
    return (g * (t + input * f.sigmoid(input) * (1 - t * t)),)


@pointwise(
    name="mish", function=False, kinds="f", method=False, grad=_mish_gradient, aten_backward="mish_backward(grad, self)"
)
def _mish(input):
    """input * tanh(softplus(input))"""
    return input * f.tanh(f.softplus(input))


mish = with_inplace(_mish)


@pointwise(
    out="exact",
    namespaces=FUNCTIONAL,
    method=False,
    kinds="f",
    inplace=False,
    constants={"beta": None},
    fits=("beta", "threshold"),
    quirks=Quirks(wide_numbers=("beta", "threshold")),
    grad=lambda g, input, beta, threshold, out: (f.where(input * beta > threshold, g, g * f.sigmoid(input * beta)),),
    aten_backward="softplus_backward(grad, self, beta, threshold)",
    autocast_cuda="float32",
)
def softplus(input, beta=1, threshold=20):
    """log(1 + exp(beta * input)) / beta, and input itself where that is above the threshold"""
    scaled = input * beta
    return f.where(scaled > threshold, input, f.log1p(f.exp(scaled)) / beta)


@pointwise(
    out="exact",
    namespaces=FUNCTIONAL,
    method=False,
    kinds="f",
    kernel="log_sigmoid_cpu",
    inplace=False,
    grad=lambda g, input, out: (g * f.sigmoid(-input),),
    quirks=Quirks(label="LogSigmoidBackward0"),
    aten="log_sigmoid(input)",
)
def logsigmoid(input):
    """log(sigmoid(input))"""
    return f.minimum(input, 0) - f.log1p(f.exp(-f.abs_(input)))


@composite(namespaces=FUNCTIONAL, method=False)
def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input)"""
    return sub(input, tanh(input))


@composite(namespaces=FUNCTIONAL, method=False)
def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|)"""
    return input / (absolute(input) + 1)


# -- gates ---------------------------------------------------------------------------------------------------------------


@pointwise(
    function=False,
    method=False,
    inplace=False,
    out=False,
    kinds="f",
    kernel="glu_cpu",
    quirks=Quirks(label="GluBackward0"),
)
def gated(input, gate):
    """input * sigmoid(gate)"""
    return input * f.sigmoid(gate)


@composite(namespaces=FUNCTIONAL, method=False, aten_backward="glu_backward(grad, self, dim)")
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of a dimension times the sigmoid of the second half."""
    if not input.shape:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    size = input.shape[dim]
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {size}")
    return gated(input.narrow(dim, 0, size // 2), input.narrow(dim, size // 2, size // 2))


@transparent(name="sigmoid", namespaces=FUNCTIONAL)
def functional_sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input))"""
    return sigmoid(input)


@transparent(name="tanh", namespaces=FUNCTIONAL)
def functional_tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return tanh(input)


# -- in-place forms that nn.functional has under names of their own ------------------------------------------------------


@transparent(name="relu_", namespaces=FUNCTIONAL)
def functional_relu_(input: Tensor) -> Tensor:
    """relu in place"""
    return relu.op.inplace(input)


@transparent(namespaces=FUNCTIONAL)
def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """hardtanh in place"""
    return limited.op.inplace(input, min_val, max_val)


@transparent(namespaces=FUNCTIONAL)
def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """leaky_relu in place"""
    return _sloped(leaky, True, input, negative_slope)


@transparent(name="threshold_", namespaces=FUNCTIONAL)
def functional_threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """threshold in place"""
    write: Any = OPS["threshold"].inplace
    return write(input, threshold, value)


@transparent(namespaces=FUNCTIONAL)
def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """elu in place"""
    return _sloped(exponential_unit, True, input, alpha)


@transparent(name="celu_", namespaces=FUNCTIONAL)
def functional_celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """celu in place"""
    return _sloped(continuous_unit, True, input, alpha)
