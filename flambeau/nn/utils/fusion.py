"""Folding of a batch norm in evaluation mode into the convolution or linear layer before it."""

from __future__ import annotations

import copy
from typing import TypeVar

from ...core.tensor import Tensor
from ...ops.creation.filled import ones_like, zeros_like
from ..modules.module import Module
from ..parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]

Layer = TypeVar("Layer", bound=Module)


def _fold(
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    eps: float,
    scale: Tensor | None,
    shift: Tensor | None,
    channel_dim: int,
) -> tuple[Parameter, Parameter]:
    """Return the weight and bias of a layer that computes the same as the layer and the norm after it."""
    weight_dtype, bias_dtype = weight.dtype, weight.dtype if bias is None else bias.dtype
    bias = zeros_like(mean) if bias is None else bias
    scale = ones_like(mean) if scale is None else scale
    shift = zeros_like(mean) if shift is None else shift
    factor = scale * (variance + eps).rsqrt()
    shape = [1] * weight.dim()
    shape[channel_dim] = -1
    fused_weight = (weight * factor.reshape(shape)).to(weight_dtype)
    fused_bias = ((bias - mean) * factor + shift).to(bias_dtype)
    return Parameter(fused_weight, weight.requires_grad), Parameter(fused_bias, bias.requires_grad)


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Return weight and bias of a convolution that includes the batch norm after it."""
    return _fold(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, channel_dim=1 if transpose else 0)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Return weight and bias of a linear layer that includes the batch norm after it."""
    return _fold(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, channel_dim=0)


def _check_ready(first: Module, norm: Module, name: str) -> None:
    if first.training or norm.training:
        raise AssertionError(f"Fusion only for eval! Call eval() on the {name} layer and on the batch norm first.")
    if norm.running_mean is None or norm.running_var is None:
        raise AssertionError("Fusion needs a batch norm with running statistics, got one without.")


def fuse_conv_bn_eval(conv: Layer, bn: Module, transpose: bool = False) -> Layer:
    """Return a copy of the convolution that computes the same as both layers, in evaluation mode."""
    _check_ready(conv, bn, "convolution")
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_linear_bn_eval(linear: Layer, bn: Module) -> Layer:
    """Return a copy of the linear layer that computes the same as both layers, in evaluation mode."""
    _check_ready(linear, bn, "linear")
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got"
            f" {linear.out_features} and {bn.num_features}"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused
