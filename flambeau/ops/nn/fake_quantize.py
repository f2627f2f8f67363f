"""Rounding to the levels of a quantized dtype and back, with gradients, for quantization-aware training.

A level is `round(x / scale) + zero_point`, limited to [quant_min, quant_max]; its value is `(level - zero_point) * scale`. The
gradient passes where the level was inside the limits.
"""

from __future__ import annotations

from typing import Any

from ...core import dtype as dt
from ...core.dtype import dtype, opmath
from ...core.tensor import Tensor
from ...expr import Expr
from ...expr import functions as f
from ...expr.node import cast
from ..machinery.declare import composite, pointwise
from ..machinery.formula import Pointwise
from ..machinery.quirks import Quirks

_INT64_LIMIT = 9.2e18  # the kernels of PyTorch that work channel by channel count in int64, and give up beyond
_SMALLEST_SCALE = 6.099999882280827e-05  # 6.1e-5 in float32


def _as_input(op: Any, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    """Compute in the arithmetic of the input's dtype, whatever the dtype of scale and zero point."""
    d = operands[0].dtype
    return opmath(d), d


# What all of these are: parts of operators, not known by name themselves.
_PART: dict[str, Any] = {
    **{"rule": _as_input, "kinds": "f"},
    **dict.fromkeys(("function", "method", "inplace", "out"), False),
}


def _level(input: Any, scale: Any, zero_point: Any, compute: dtype) -> Expr:
    return f.round_(input * cast(_inverse(scale), compute)) + zero_point


def _inverse(scale: Any) -> Expr:
    return cast(1.0 / cast(scale, dt.float32), dt.float32)


def _value(level: Any, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, precision: dtype) -> Expr:
    limited = f.fmin(f.fmax(level, quant_min), quant_max)
    return (cast(limited, precision) - cast(zero_point, precision)) * cast(cast(scale, dt.float32), precision)


def _counted(level: Any) -> Expr:
    """Convert a level to int64: one that is too large, or nan, becomes the lowest."""
    return f.where(f.abs_(level) < _INT64_LIMIT, level, -_INT64_LIMIT)


def _pass_inside(g: Any, level: Any, quant_min: Any, quant_max: Any) -> Expr:
    return f.where((level >= quant_min) & (level <= quant_max), g, 0)


def _tensor_gradient(g, input, scale, zero_point, quant_min, quant_max, out, compute=None):
    return _pass_inside(g, _level(input, scale, zero_point, compute), quant_min, quant_max), 0, 0


@pointwise(
    **_PART,
    kernel="fake_quantize_tensor_cachemask_kernel_type_handling",
    grad=_tensor_gradient,
    quirks=Quirks(label="FakeQuantizePerTensorAffineCachemaskBackward0"),
)
def quantized_and_back(input, scale, zero_point, quant_min=0, quant_max=255, compute=None):
    """The values of the levels nearest to input."""
    return _value(_level(input, scale, zero_point, compute), scale, zero_point, quant_min, quant_max, dt.float32)


def _channel_level(input: Any, scale: Any, zero_point: Any, whole: bool, compute: dtype) -> Expr:
    if whole:
        return _counted(_level(input, scale, zero_point, compute))
    return _counted(f.round_(zero_point + input * cast(_inverse(scale), compute)))


def _channel_gradient(g, input, scale, zero_point, quant_min, quant_max, whole, out, compute=None):
    return _pass_inside(g, _channel_level(input, scale, zero_point, whole, compute), quant_min, quant_max), 0, 0


@pointwise(
    **_PART,
    kernel="fake_quantize_channel_cachemask_cpu_type_handling",
    grad=_channel_gradient,
    quirks=Quirks(label="FakeQuantizePerChannelAffineCachemaskBackward0"),
)
def quantized_and_back_by_channel(input, scale, zero_point, quant_min=0, quant_max=255, whole=True, compute=None):
    """The values of the levels nearest to input; scale and zero point differ by channel, and zero points need not be integers."""
    level = _channel_level(input, scale, zero_point, whole, compute)
    return _value(level, scale, zero_point, quant_min, quant_max, dt.float64)


def _check_limits(quant_min: int, quant_max: int) -> None:
    if quant_min > quant_max:
        raise RuntimeError("`quant_min` should be less than or         equal to `quant_max`.")


def _settled(x: Tensor, input: Tensor) -> Tensor:
    """Return a scale or zero point that backward can read: observers may change theirs in place before backward runs."""
    return x.detach().clone() if input.requires_grad else x.detach()


def _scalar(x: Any, input: Tensor) -> Any:
    return _settled(x.reshape(-1)[0], input) if isinstance(x, Tensor) else x


@composite(method=False)
def fake_quantize_per_tensor_affine(
    input: Tensor, scale: float | Tensor, zero_point: int | Tensor, quant_min: int, quant_max: int
) -> Tensor:
    """input rounded to the levels of one scale and zero point, as floating-point numbers."""
    _check_limits(quant_min, quant_max)
    if not isinstance(zero_point, Tensor) and not quant_min <= zero_point <= quant_max:
        raise RuntimeError("`zero_point` must be between `quant_min` and `quant_max`.")
    return quantized_and_back(input, _scalar(scale, input), _scalar(zero_point, input), quant_min, quant_max)


def _check_channels(input: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> None:
    if scale.dtype not in (dt.float32, dt.bfloat16):
        raise RuntimeError(f"Scale must be Float or BFloat16, found {scale.dtype.scalar_type}")
    if zero_point.dtype not in (dt.int32, dt.float32, dt.float16):
        raise RuntimeError(f"Zero-point must be Int32, Float or Half, found {zero_point.dtype.scalar_type}")
    if len(scale.shape) != 1:
        raise RuntimeError("scale should be a 1-D tensor")
    if len(zero_point.shape) != 1:
        raise RuntimeError("zero point should be a 1-D tensor")
    if scale.shape != zero_point.shape:
        raise RuntimeError("scale and zero-point need to have the same dimensions")
    if scale.shape[0] != input.size(axis) or axis < 0:
        raise RuntimeError("dimensions of scale and zero-point are not consistent with input tensor")


def _along(x: Tensor, input: Tensor, axis: int) -> Tensor:
    shape = [1] * len(input.shape)
    shape[axis] = -1
    return x.view(shape)


@composite(method=False)
def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """input rounded to levels, as floating-point numbers; each index of dimension `axis` has its own scale and zero point."""
    _check_channels(input, scale, zero_point, axis)
    _check_limits(quant_min, quant_max)
    whole = not zero_point.dtype.is_floating_point
    if whole and bool(((zero_point < quant_min) | (zero_point > quant_max)).any()):
        raise RuntimeError("`zero_point` must be between `quant_min` and `quant_max`.")
    scale, zero_point = _along(_settled(scale, input), input, axis), _along(_settled(zero_point, input), input, axis)
    return quantized_and_back_by_channel(input, scale, zero_point, quant_min, quant_max, whole)


# -- scales that are learned ---------------------------------------------------------------------------------------------


def _learned_gradient(g, input, scale, zero_point, quant_min, quant_max, grad_factor, rounds, out, compute=None):
    zero = _whole_zero(f.floor(zero_point + 0.5) if rounds else f.round_(zero_point), quant_min, quant_max)
    # Not as in forward: rounded once, after the zero point is added, so that an odd one turns ties.
    exact = cast(input, dt.float64) * cast(_inverse(scale), dt.float64) + cast(zero, dt.float64)
    level = _counted(f.round_(cast(exact, compute)))
    inside = (level >= quant_min) & (level <= quant_max)
    error = (_value(level, scale, zero, quant_min, quant_max, compute) - input) * (1.0 / scale)
    edge = f.where(level < quant_min, quant_min - zero, quant_max - zero)
    return (
        f.where(inside, g, 0),
        g * f.where(inside, error, edge) * grad_factor,
        f.where(inside, 0, -g * scale * grad_factor),
    )


def _whole_zero(zero_point: Any, quant_min: Any, quant_max: Any) -> Expr:
    return f.minimum(f.maximum(zero_point, quant_min), quant_max)


def _learned(name: str) -> Any:
    @pointwise(
        **_PART,
        name=name,
        grad=_learned_gradient,
        quirks=Quirks(
            label=f"FakeQuantizeLearnable{name.partition('learned_')[2].title().replace('_', '')}AffineBackward0"
        ),
    )
    def learned(input, scale, zero_point, quant_min=0, quant_max=255, grad_factor=1.0, rounds=False, compute=None):
        """The values of the levels nearest to input; scale and zero point have gradients."""
        zero = _whole_zero(f.round_(zero_point), quant_min, quant_max)
        level = _level(input, scale, zero, compute)
        return _value(level if rounds else _counted(level), scale, zero, quant_min, quant_max, compute)

    return learned


_learned_per_tensor, _learned_per_channel = _learned("learned_per_tensor"), _learned("learned_per_channel")


@composite(method=False)
def _fake_quantize_learnable_per_tensor_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Tensor:
    """fake_quantize_per_tensor_affine with gradients for scale and zero point, which are multiplied by grad_factor."""
    _check_limits(quant_min, quant_max)
    return _learned_per_tensor(
        input, scale.reshape(-1)[0], zero_point.reshape(-1)[0], quant_min, quant_max, float(grad_factor), True
    )


@composite(method=False)
def _fake_quantize_learnable_per_channel_affine(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Tensor:
    """fake_quantize_per_channel_affine with gradients for scale and zero point, which are multiplied by grad_factor."""
    _check_limits(quant_min, quant_max)
    scale, zero_point = _along(scale, input, axis), _along(zero_point, input, axis)
    return _learned_per_channel(input, scale, zero_point, quant_min, quant_max, float(grad_factor), False)


# -- watching and rounding at once ---------------------------------------------------------------------------------------


def _single(x: Any) -> Expr:
    return cast(cast(x, dt.float32), dt.float64)


def _range_and_scale(low: Any, high: Any, quant_min: Any, quant_max: Any, symmetric: bool) -> tuple[Any, Any, Any, Any]:
    """Return the range [low, high] that levels will cover, widened to include zero, its scale, and whether it was made symmetric."""
    steps = cast(quant_max - quant_min, dt.float64)
    both: Any = (low < 0) & (high > 0) if symmetric else False
    if symmetric:
        half = f.floor(steps / 2)
        widest = f.maximum(f.abs_(_single(low / (half + 1))), f.abs_(_single(high / half)))
        low = f.where(both, _single(-widest * (half + 1)), low)
        high = f.where(both, _single(widest * half), high)
    low, high = f.minimum(low, 0.0), f.maximum(high, 0.0)
    scale = (high - low) / steps
    scale = f.where((_single(scale) == 0) | f.isinf(_single(1.0 / _single(scale))), 0.1, scale)
    small = scale < _SMALLEST_SCALE
    stretch = _single(_SMALLEST_SCALE / _single(scale))
    limit = _single(_SMALLEST_SCALE * steps)
    stretched_low = f.where(low == 0, low, f.where(high == 0, -limit, _single(low * stretch)))
    stretched_high = f.where(low == 0, limit, f.where(high == 0, high, _single(high * stretch)))
    low, high = f.where(small, stretched_low, low), f.where(small, stretched_high, high)
    return low, high, f.where(small, _SMALLEST_SCALE, scale), both


def _scale_rule(op: Pointwise, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    return dt.float64, dt.float64


def _zero_rule(op: Pointwise, operands: tuple[Any, ...]) -> tuple[dtype, dtype]:
    return dt.float64, dt.int32


@pointwise(rule=_scale_rule, kinds="f", differentiable=False, function=False, method=False, inplace=False, out=False)
def scale_of_range(low, high, quant_min=0, quant_max=255, symmetric=False):
    """The scale whose levels cover [low, high], in double precision."""
    return _range_and_scale(low, high, quant_min, quant_max, symmetric)[2]


@pointwise(rule=_zero_rule, kinds="f", differentiable=False, function=False, method=False, inplace=False, out=False)
def zero_point_of_range(low, high, quant_min=0, quant_max=255, symmetric=False):
    """The level of zero if levels cover [low, high]: counted from the end with the smaller rounding error."""
    low, high, scale, both = _range_and_scale(low, high, quant_min, quant_max, symmetric)
    q_min, q_max = cast(quant_min, dt.float64), cast(quant_max, dt.float64)
    from_low, from_high = low / scale, high / scale
    low_is_better = f.abs_(q_min) - f.abs_(from_low) < f.abs_(q_max) - f.abs_(from_high)
    zero = f.where(low_is_better, q_min - from_low, q_max - from_high)
    if symmetric:
        zero = f.where(both, (q_min + q_max) / 2, zero)
    return f.round_(f.minimum(f.maximum(zero, q_min), q_max))


def _averaged(running: Tensor, now: Tensor, averaging_const: float) -> Tensor:
    return (running + averaging_const * (now - running)).where(running.isfinite(), now)


@composite(method=False)
def fused_moving_avg_obs_fake_quant(
    input: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> Tensor:
    """Keep moving averages of input's smallest and largest value, derive scale and zero point from them, and round input to levels.

    The state (running_min, running_max, scale, zero_point) is changed in place; observer_on and fake_quant_on switch the two parts."""
    if per_row_fake_quant and ch_axis != 0:
        raise RuntimeError("Per-channel FakeQuant in fused_moving_avg_obs_fake_quant is only supported on axis == 0")
    if input.numel() == 0:
        return input.clone()
    if int(observer_on):
        _observe(
            input.detach(), running_min, running_max, scale, zero_point, averaging_const, quant_min, quant_max,
            per_row_fake_quant, symmetric_quant,
        )  # fmt: skip
    if not int(fake_quant_on):
        return input.clone()
    if per_row_fake_quant:
        return fake_quantize_per_channel_affine(input, scale, zero_point, ch_axis, quant_min, quant_max)
    return fake_quantize_per_tensor_affine(input, scale, zero_point, quant_min, quant_max)


def _observe(
    input: Tensor, running_min: Tensor, running_max: Tensor, scale: Tensor, zero_point: Tensor, averaging_const: float,
    quant_min: int, quant_max: int, by_row: bool, symmetric: bool,
) -> None:  # fmt: skip
    if not by_row:
        low, high = input.aminmax()
    else:
        low, high = input.reshape(input.shape[0], -1).aminmax(dim=1)
        if running_min.numel() == 0:
            for kept, start in ((running_min, float("inf")), (running_max, -float("inf"))):
                kept.resize_(low.shape).fill_(start)
        if scale.shape != low.shape:
            scale.resize_(low.shape)
            zero_point.resize_(low.shape)
    running_min.copy_(_averaged(running_min, low.to(running_min.dtype), averaging_const))
    running_max.copy_(_averaged(running_max, high.to(running_max.dtype), averaging_const))
    scale.copy_(scale_of_range(running_min, running_max, quant_min, quant_max, symmetric))
    zero_point.copy_(zero_point_of_range(running_min, running_max, quant_min, quant_max, symmetric))
