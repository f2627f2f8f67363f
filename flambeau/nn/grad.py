"""Gradients of convolutions as functions of their own.

A convolution is linear in its input and in its weight, so the values of the operand that is differentiated do not
matter: zeros of its shape stand in for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd import grad as _differentiate
from ..autograd.grad_mode import enable_grad
from ..core.graph import mode
from ..core.tensor import Tensor
from . import functional as F

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _input_gradient(convolve: Callable, name: str) -> Callable[..., Tensor]:
    def gradient(
        input_size: Any,
        weight: Tensor,
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        input = grad_output.new_zeros(tuple(input_size), requires_grad=True)
        recording = mode.enabled
        with enable_grad():
            output = convolve(input, weight, None, stride, padding, dilation, groups)
        return _differentiate(output, input, grad_output, create_graph=recording)[0]

    gradient.__name__ = gradient.__qualname__ = name
    gradient.__doc__ = f"The gradient of {convolve.__name__} with respect to its input."
    return gradient


def _weight_gradient(convolve: Callable, name: str) -> Callable[..., Tensor]:
    def gradient(
        input: Tensor,
        weight_size: Any,
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        weight = grad_output.new_zeros(tuple(weight_size), requires_grad=True)
        recording = mode.enabled
        with enable_grad():
            output = convolve(input, weight, None, stride, padding, dilation, groups)
        return _differentiate(output, weight, grad_output, create_graph=recording)[0]

    gradient.__name__ = gradient.__qualname__ = name
    gradient.__doc__ = f"The gradient of {convolve.__name__} with respect to its weight."
    return gradient


conv1d_input = _input_gradient(F.conv1d, "conv1d_input")
conv2d_input = _input_gradient(F.conv2d, "conv2d_input")
conv3d_input = _input_gradient(F.conv3d, "conv3d_input")
conv1d_weight = _weight_gradient(F.conv1d, "conv1d_weight")
conv2d_weight = _weight_gradient(F.conv2d, "conv2d_weight")
conv3d_weight = _weight_gradient(F.conv3d, "conv3d_weight")
