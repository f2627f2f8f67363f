"""Conversion of convolution weights to channels-last."""

from __future__ import annotations

from typing import TypeVar

from ...core.layout import memory_format as memory_format_type
from ..modules.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from ..modules.module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]

Model = TypeVar("Model", bound=Module)


def _convert(module: Module, kinds: tuple[type, ...], memory_format: memory_format_type) -> None:
    for part in module.modules():
        if isinstance(part, kinds):
            part.weight.data = part.weight.detach().clone(memory_format=memory_format)  # type: ignore[attr-defined]


def convert_conv2d_weight_memory_format(module: Model, memory_format: memory_format_type) -> Model:
    """Change the strides of the weights of all 2-d convolutions in a network."""
    _convert(module, (Conv2d, ConvTranspose2d), memory_format)
    return module


def convert_conv3d_weight_memory_format(module: Model, memory_format: memory_format_type) -> Model:
    """Change the strides of the weights of all 3-d convolutions in a network."""
    _convert(module, (Conv3d, ConvTranspose3d), memory_format)
    return module
