"""Starting values of parameters: the same numbers as PyTorch's from the same seed.

All functions write their tensor in place, without recording, and return it.

>>> weight = flambeau.empty(3, 5)
>>> nn.init.kaiming_uniform_(weight, nonlinearity="relu")
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

from ..autograd.grad_mode import no_grad
from ..core import dtype as dt
from ..core.overrides import overridable
from ..core.tensor import Tensor
from ..ops.creation.filled import empty_like, ones_like
from ..ops.linalg.orthogonal import qr
from ..ops.pointwise.comparison import where
from ..ops.random.fills import randperm

__all__ = [
    "calculate_gain", "constant", "constant_", "dirac", "dirac_", "eye", "eye_", "kaiming_normal", "kaiming_normal_",
    "kaiming_uniform", "kaiming_uniform_", "normal", "normal_", "ones_", "orthogonal", "orthogonal_", "sparse",
    "sparse_",
    "trunc_normal_", "uniform", "uniform_", "xavier_normal", "xavier_normal_", "xavier_uniform", "xavier_uniform_",
    "zeros_",
]  # fmt: skip

_LINEAR = (
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid",
)  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor for weights before a nonlinearity that preserves the variance of signals."""
    if nonlinearity in _LINEAR:
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "selu":
        return 3.0 / 4
    if nonlinearity == "leaky_relu":
        if param is None:
            param = 0.01
        elif isinstance(param, bool) or not isinstance(param, (int, float)):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + param**2))
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


# -- plain distributions ----------------------------------------------------------------------------------------------
@overridable
@no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Fill a tensor with uniform numbers from [a, b)."""
    return tensor.uniform_(a, b, generator=generator)


@overridable
@no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Fill a tensor with normal numbers of this mean and standard deviation."""
    return tensor.normal_(mean, std, generator=generator)


@no_grad()
def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Fill with normal numbers, redrawn until they are in [a, b]."""
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be"
            " incorrect.",
            stacklevel=2,
        )
    if tensor.device.type == "meta":
        return tensor
    inside = _normal_cdf(b, mean, std) - _normal_cdf(a, mean, std)
    if inside > 0.3:
        return _redraw_outside(tensor, mean, std, a, b, generator)
    return _accept_by_density(tensor, mean, std, a, b, generator)


def _normal_cdf(bound: float, mean: float, std: float) -> float:
    """Return the probability of a normal number below `bound`."""
    return (1.0 + math.erf((bound - mean) / std / math.sqrt(2.0))) / 2.0


def _redraw_outside(tensor: Any, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    """Redraw all numbers until each has once been inside; fast if most are. The bounds are rounded like the numbers, or a number rounded
    onto a bound would never be inside."""
    low, high = (tensor.new_tensor(bound, device="cpu").item() for bound in (a, b))
    tensor.normal_(mean, std, generator=generator)
    outside = (tensor < low) | (tensor > high)
    while outside.any():
        fresh = empty_like(tensor).normal_(mean, std, generator=generator)
        tensor.copy_(where(outside, fresh, tensor))
        outside = (tensor < low) | (tensor > high)
    return tensor


def _accept_by_density(tensor: Any, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    """Draw uniform numbers from [a, b] and keep each with the probability density there, relative to its peak."""
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    pending: Any = ones_like(tensor, dtype=dt.bool_)
    while pending.any():
        fresh = empty_like(tensor).uniform_(a, b, generator=generator)
        tensor.copy_(where(pending, fresh, tensor))
        log_density = fresh.sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(peak)
        pending = pending & (empty_like(tensor).uniform_(generator=generator).log_() > log_density)
    return tensor


@overridable
@no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill a tensor with one value."""
    return tensor.fill_(val)


@no_grad()
def ones_(tensor: Tensor) -> Tensor:
    """Fill a tensor with ones."""
    return tensor.fill_(1.0)


@no_grad()
def zeros_(tensor: Tensor) -> Tensor:
    """Fill a tensor with zeros."""
    return tensor.zero_()


# -- identities -------------------------------------------------------------------------------------------------------
@no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with ones on the diagonal, zeros elsewhere."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    tensor.zero_()
    tensor.diagonal().fill_(1)
    return tensor


@no_grad()
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution weight so that it passes as many channels as possible unchanged."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.size(0) % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = tensor.size(0) // groups
    centre = tuple(size // 2 for size in tensor.shape[2:])
    tensor.zero_()
    for group in range(groups):
        for channel in range(min(per_group, tensor.size(1))):
            position = (group * per_group + channel, channel, *centre)
            tensor[position] = 1
    return tensor


# -- by the number of connections -------------------------------------------------------------------------------------
def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """Return the number of inputs that feed one output unit of this weight, and of outputs that one input unit feeds."""
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    receptive_field = math.prod(tensor.shape[2:])
    return tensor.size(1) * receptive_field, tensor.size(0) * receptive_field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    valid = ["fan_in", "fan_out"]
    if mode not in valid:
        raise ValueError(f"Mode {mode} not supported, please use one of {valid}")
    return _calculate_fan_in_and_fan_out(tensor)[valid.index(mode)]


def _xavier_std(tensor: Tensor, gain: float) -> float:
    return gain * math.sqrt(2.0 / float(sum(_calculate_fan_in_and_fan_out(tensor))))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill a tensor by Glorot and Bengio's initialisation: uniform numbers of variance 2 / (fan_in + fan_out)."""
    bound = math.sqrt(3.0) * _xavier_std(tensor, gain)
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Fill a tensor by Glorot and Bengio's initialisation, with normal numbers."""
    return normal_(tensor, 0.0, _xavier_std(tensor, gain), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float | None:
    """Return the standard deviation of He's initialisation; None for a tensor without elements, which has no fan."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return None
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


@overridable
def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Fill a tensor by He's initialisation: variance gain^2 / fan, with the gain of the nonlinearity that follows."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Fill a tensor by He's initialisation, with normal numbers."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0, std, generator)


# -- matrices with structure ------------------------------------------------------------------------------------------
@no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Fill a tensor with a (semi-)orthogonal matrix; dimensions after the first count as one."""
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.size(0)
    columns = tensor.numel() // rows
    flat = tensor.new_empty((rows, columns)).normal_(0, 1, generator=generator)
    q, r = qr(flat.t() if rows < columns else flat)
    q *= r.diag().sign()  # makes the distribution uniform over orthogonal matrices
    tensor.view_as(flat).copy_(q.t() if rows < columns else q)
    return tensor.mul_(gain)


@no_grad()
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Fill a matrix with normal numbers; in every column the given fraction of the rows is zero."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = int(math.ceil(sparsity * rows))
    tensor.normal_(0, std, generator=generator)
    for column in range(columns):
        tensor[randperm(rows)[:zeros], column] = 0
    return tensor


# -- old names --------------------------------------------------------------------------------------------------------
def _deprecated(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    new = function.__name__
    old = new[:-1]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = old
    call.__doc__ = f"The deprecated name of `{new}`."
    return call


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)

# Names under which programs may know them.
_no_grad_fill_, _no_grad_normal_, _no_grad_trunc_normal_, _no_grad_uniform_ = (
    constant_,
    normal_,
    trunc_normal_,
    uniform_,
)
