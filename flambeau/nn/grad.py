"""Gradients of convolutions as separate functions.

A convolution is linear in its input and in its weight, so the values of the operand that is differentiated do not
matter: zeros of its shape replace it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd import grad as _differentiate
from ..autograd.grad_mode import enable_grad
from ..core.graph import grad_mode
from ..core.tensor import Tensor
from . import functional as F

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _gradients(convolve: Callable) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Return the gradients of a convolution with respect to input and weight, as functions of its stride, padding, dilation, groups."""

    def differentiated(
        operand: Tensor, input: Tensor, weight: Tensor, grad: Tensor, *args: Any, **kwargs: Any
    ) -> Tensor:
        recording = grad_mode.enabled
        with enable_grad():
            output = convolve(input, weight, None, *args, **kwargs)
        return _differentiate(output, operand, grad, create_graph=recording)[0]

    def by_input(input_size: Any, weight: Tensor, grad_output: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        input = grad_output.new_zeros(tuple(input_size), requires_grad=True)
        return differentiated(input, input, weight, grad_output, *args, **kwargs)

    def by_weight(input: Tensor, weight_size: Any, grad_output: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        weight = grad_output.new_zeros(tuple(weight_size), requires_grad=True)
        return differentiated(weight, input, weight, grad_output, *args, **kwargs)

    for function, what in ((by_input, "input"), (by_weight, "weight")):
        function.__name__ = function.__qualname__ = f"{convolve.__name__}_{what}"
        function.__doc__ = f"The gradient of {convolve.__name__} with respect to its {what}."
    return by_input, by_weight


conv1d_input, conv1d_weight = _gradients(F.conv1d)
conv2d_input, conv2d_weight = _gradients(F.conv2d)
conv3d_input, conv3d_weight = _gradients(F.conv3d)
