"""Reference convolutions: the weight is quantized and dequantized."""

from __future__ import annotations

from typing import Any

from ...... import nn
from ......core.tensor import Tensor
from ......nn.modules import conv as float_conv
from .utils import ReferenceQuantizedModule, take_parameters

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _ConvNd(float_conv._ConvNd, ReferenceQuantizedModule):
    """Base of the reference convolutions: the weight is quantized and dequantized at each call."""

    _IS_REFERENCE = True
    _SETTINGS: tuple[str, ...] = ("kernel_size", "stride", "padding", "dilation", "groups")

    def __init__(self, *args: Any, weight_qparams: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._init_weight_qparams(weight_qparams, self.weight.device)

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}(Reference)"

    @classmethod
    def from_float(cls, float_conv: Any, weight_qparams: dict[str, Any]) -> Any:
        """Make the reference layer from a float layer."""
        made = cls(
            float_conv.in_channels,
            float_conv.out_channels,
            bias=float_conv.bias is not None,
            padding_mode=float_conv.padding_mode,
            device=float_conv.weight.device,
            dtype=float_conv.weight.dtype,
            weight_qparams=weight_qparams,
            **{name: getattr(float_conv, name) for name in cls._SETTINGS},
        )
        return take_parameters(made, float_conv)


class _ReferenceForward(_ConvNd):
    def forward(self, x: Tensor) -> Tensor:
        function = getattr(nn.functional, f"conv{self._spatial}d")
        return function(x, self.get_weight(), self.bias, self.stride, self.padding, self.dilation, self.groups)


class _ConvTransposeNd(_ConvNd):
    _SETTINGS = ("kernel_size", "stride", "padding", "output_padding", "groups", "dilation")

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        if not isinstance(self.padding, tuple):
            raise AssertionError(f"Expected self.padding to be a tuple, got {type(self.padding)}")
        extra = self._output_padding(
            x, output_size, self.stride, self.padding, self.kernel_size, self._spatial, self.dilation
        )
        function = getattr(nn.functional, f"conv_transpose{self._spatial}d")
        return function(x, self.get_weight(), self.bias, self.stride, self.padding, extra, self.groups, self.dilation)


class Conv1d(_ReferenceForward, nn.Conv1d):
    """nn.Conv1d whose weight is quantized and dequantized."""


class Conv2d(_ReferenceForward, nn.Conv2d):
    """nn.Conv2d whose weight is quantized and dequantized."""


class Conv3d(_ReferenceForward, nn.Conv3d):
    """nn.Conv3d whose weight is quantized and dequantized."""


class ConvTranspose1d(_ConvTransposeNd, nn.ConvTranspose1d):
    """nn.ConvTranspose1d whose weight is quantized and dequantized."""


class ConvTranspose2d(_ConvTransposeNd, nn.ConvTranspose2d):
    """nn.ConvTranspose2d whose weight is quantized and dequantized."""


class ConvTranspose3d(_ConvTransposeNd, nn.ConvTranspose3d):
    """nn.ConvTranspose3d whose weight is quantized and dequantized."""
