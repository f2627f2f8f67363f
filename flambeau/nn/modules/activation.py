"""Activations (and MultiheadAttention, which PyTorch has in this module too)."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

from ...core.tensor import Tensor
from ...ops.creation.filled import empty
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .attention import MultiheadAttention
from .module import Module
from .settings import Declared, settings

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid",
    "LogSoftmax", "MultiheadAttention", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid",
    "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


class _MaybeInplace(Declared):
    """Base of activations that can overwrite their input; the repr shows `inplace` last and only if it is set."""

    inplace: bool

    def extra_repr(self) -> str:
        parts = [f"{name}={getattr(self, name)!r}" for name in self._settings if name != "inplace"]
        return ", ".join([*parts, "inplace=True"] if self.inplace else parts)


@settings
class _InplaceOnly(_MaybeInplace):
    """Base of activations whose only setting is `inplace`."""

    inplace: bool = False


@settings
class Threshold(_MaybeInplace):
    """x where x > threshold, else value: a ReLU with a configurable step."""

    threshold: float
    value: float
    inplace: bool = False

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)


class ReLU(_InplaceOnly):
    """max(x, 0): keeps positive values and zeroes the others; `inplace` saves the memory of the result."""

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)


@settings
class RReLU(_MaybeInplace):
    """A leaky ReLU whose slope is drawn at random in training."""

    lower: float = 1.0 / 8
    upper: float = 1.0 / 3
    inplace: bool = False

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class Hardtanh(_InplaceOnly):
    """x clipped to [min_val, max_val], a tanh made of straight lines."""

    __constants__ = ["min_val", "max_val", "inplace"]
    _settings: ClassVar[tuple[str, ...]] = ("min_val", "max_val")

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__(inplace)
        for old, value in (("min_value", min_value), ("max_value", max_value)):
            if value is not None:
                new = old.removesuffix("ue")
                text = f"keyword argument `{old}` is deprecated and renamed to `{new}`"
                warnings.warn(text, FutureWarning, stacklevel=2)
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        if not self.max_val > self.min_val:
            raise AssertionError(f"max_val ({self.max_val}) must be greater than min_val ({self.min_val})")

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)


class ReLU6(Hardtanh):
    """x clipped to [0, 6]: a ReLU for networks that are to run in few bits."""

    _settings = ()

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)


class Sigmoid(Module):
    """1 / (1 + exp(-x)): a number between 0 and 1, a probability of one of two classes."""

    def forward(self, input: Tensor) -> Tensor:
        return input.sigmoid()


class _UnprintedInplace(_InplaceOnly):
    """Base of two activations that PyTorch prints without their setting."""

    def extra_repr(self) -> str:
        return ""


class Hardsigmoid(_UnprintedInplace):
    """A sigmoid made of three straight lines."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)


class Tanh(Module):
    """The hyperbolic tangent: a number between -1 and 1."""

    def forward(self, input: Tensor) -> Tensor:
        return input.tanh()


class SiLU(_InplaceOnly):
    """x * sigmoid(x), also called swish: a smooth ReLU."""

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, self.inplace)


class Mish(_InplaceOnly):
    """x * tanh(softplus(x)): a smooth activation that lets small negative values pass."""

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, self.inplace)


class Hardswish(_UnprintedInplace):
    """x * hardsigmoid(x): a swish made of straight lines and a parabola, cheap on phones."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)


@settings
class _AlphaActivation(_MaybeInplace):
    alpha: float = 1.0
    inplace: bool = False


class ELU(_AlphaActivation):
    """x where x > 0, else alpha * (exp(x) - 1)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)


class CELU(_AlphaActivation):
    """x where x > 0, else alpha * (exp(x / alpha) - 1)."""

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)


class SELU(_InplaceOnly):
    """The self-normalising scaled ELU: activations keep mean 0 and variance 1 through many layers."""

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)


@settings
class GLU(Declared):
    """Gated linear unit: half of the input times the sigmoid of the other half."""

    dim: int = -1

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)


@settings
class GELU(Declared):
    """x times the normal distribution function of x: a smooth ReLU, usual in transformers; `approximate="tanh"` is the faster form."""

    approximate: str = "none"

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)


@settings
class _Shrink(Declared):
    lambd: float = 0.5

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Hardshrink(_Shrink):
    """x where |x| > lambd, else 0."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """x moved towards 0 by lambd, and 0 where it is nearer than that: the step of sparse coding."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)


@settings
class LeakyReLU(_MaybeInplace):
    """x where x > 0, else negative_slope * x: a ReLU whose gradient does not vanish for negative inputs."""

    negative_slope: float = 1e-2
    inplace: bool = False
    __constants__ = ["inplace", "negative_slope"]

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)


class LogSigmoid(Module):
    """log(sigmoid(x)), computed without overflow for large negative inputs."""

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


@settings
class Softplus(Declared):
    """log(1 + exp(beta * x)) / beta, a smooth ReLU, always positive; above `threshold` it is x itself."""

    beta: float = 1.0
    threshold: float = 20.0

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)


class PReLU(Module):
    """A leaky ReLU whose slope for negative inputs is learnt, one for all channels or one for each."""

    __constants__ = ["num_parameters"]

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        self.num_parameters = num_parameters
        super().__init__()
        self.init = init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Softsign(Module):
    """x / (1 + |x|): like tanh, with slower tails."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x): small values are pulled to 0, large ones lose 1."""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


@settings
class _DimActivation(Declared):
    dim: int | None = None

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)


class Softmin(_DimActivation):
    """softmax(-x): the smallest values get the largest probabilities."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim, _stacklevel=5)


class Softmax(_DimActivation):
    """exp(x) divided by its sum along `dim`: probabilities that sum to 1. For training, CrossEntropyLoss takes the scores themselves.

    >>> nn.Softmax(dim=1)(flambeau.zeros(1, 2))
    tensor([[0.5000, 0.5000]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim, _stacklevel=5)


class LogSoftmax(_DimActivation):
    """log(softmax(x)), computed without overflow: what NLLLoss takes."""

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3, _stacklevel=5)
