"""Normalisation over features, groups of channels and neighbouring channels."""

from __future__ import annotations

import numbers
from typing import Any, ClassVar

from ...core.tensor import Tensor
from ...ops.creation.filled import empty
from ...ops.shape.joining import cat
from .. import functional as F
from .. import init
from ..parameter import Parameter
from .module import Module
from .settings import Declared, settings

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class _ResponseNorm(Declared):
    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


@settings
class LocalResponseNorm(_ResponseNorm):
    """Divides by a power of the mean square over neighbouring channels, as AlexNet did."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)


@settings
class CrossMapLRN2d(_ResponseNorm):
    """The older form of LocalResponseNorm, for (N, C, H, W) only."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1
    __constants__: ClassVar[list[str]] = []

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        scale = self.k + self._window_sums(input * input) * (self.alpha / self.size)
        return input * scale**-self.beta

    def _window_sums(self, square: Tensor) -> Tensor:
        """Return sums over `size` neighbouring channels, updated from channel to channel.

        The first channel is never removed from the window again: PyTorch's layer does so, and trained networks rely on its numbers. (The
        gradient here is the derivative of these sums; PyTorch's belongs to another window.)"""
        ahead = (self.size - 1) // 2 + 1
        channels = square.size(1)
        current = square[:, : min(ahead, channels)].sum(1, keepdim=True)
        sums = [current]
        for c in range(1, channels):
            if c < channels - ahead + 1:
                current = current + square[:, c + ahead - 1 : c + ahead]
            if c > ahead:
                current = current - square[:, c - ahead : c - ahead + 1]
            sums.append(current)
        return cat(sums, 1)


class LayerNorm(Module):
    """Normalises each sample over its last dimensions, independent of the batch, then scales and shifts by learned numbers.

    >>> nn.LayerNorm(10)(flambeau.randn(2, 5, 10)).shape
    torch.Size([2, 5, 10])
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            value = Parameter(empty(self.normalized_shape, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, value)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.elementwise_affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine},"
            f" bias={self.bias is not None}"
        )


class GroupNorm(Module):
    """Normalises each sample over groups of channels, independent of the batch; one group is a layer norm, a group a channel an instance norm."""

    __constants__ = ["num_groups", "num_channels", "eps", "affine"]

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups != 0:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(
                name, Parameter(empty(num_channels, device=device, dtype=dtype)) if wanted else None
            )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        shown = f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
        return f"{shown}, bias={self.bias is not None}"


class RMSNorm(Module):
    """Divides each sample by its root mean square over the last dimensions, then scales by learned numbers: a LayerNorm without the mean."""

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _as_shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        wanted = Parameter(empty(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", wanted)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.elementwise_affine:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


def _as_shape(normalized_shape: Any) -> tuple[int, ...]:
    if isinstance(normalized_shape, numbers.Integral):
        return (int(normalized_shape),)
    return tuple(normalized_shape)
