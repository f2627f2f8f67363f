"""Configuration of oneDNN: convolutions followed by a sum, and linear layers with leaky_relu or tanh, fused into one layer each."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import flambeau as torch

from .... import nn
from ....nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from ...nn import intrinsic as nni
from ...nn.quantized import reference as nnqr
from ..fuser_method_mappings import _sequential_wrapper2
from ..utils import MatchAllNode
from . import _common_operator_config_utils as common
from .backend_config import BackendConfig, BackendPatternConfig, DTypeConfig
from .native import (
    default_dynamic_int8_dtype_config,
    default_op_quint8_dtype_config,
    input_output_only_quint8_dtype_config,
    weighted_op_quint8_dtype_config,
)

__all__ = ["get_onednn_backend_config"]

F = nn.functional
_CONV = [weighted_op_quint8_dtype_config]
_LINEAR = [weighted_op_quint8_dtype_config, default_dynamic_int8_dtype_config]
_PLAIN = [default_op_quint8_dtype_config]
_WEIGHT_ONLY = DTypeConfig(torch.float, torch.float, torch.qint8)


def _sum_config(add: Any, with_norm: bool, with_relu: bool, left: bool) -> BackendPatternConfig:
    """Return the pattern of a convolution (with batch norm) as the left or right operand of a sum, perhaps followed by relu."""
    conv: Any = (nn.BatchNorm2d, nn.Conv2d) if with_norm else nn.Conv2d
    total = (add, conv, MatchAllNode) if left else (add, MatchAllNode, conv)
    own, other = (1, 2) if left else (2, 1)

    def root(pattern: Any) -> Any:
        found = (pattern[1] if with_relu else pattern)[own]
        return found[1] if with_norm else found

    def extra(pattern: Any) -> list:
        return [(pattern[1] if with_relu else pattern)[other]]

    def fuse(is_qat: bool, *modules: Any) -> nn.Module:
        relu: Any = modules[0] if with_relu else None
        plus, *sides = modules[1] if with_relu else modules
        layer = sides[own - 1]
        if with_norm:
            norm, layer = layer
            if is_qat:
                raise NotImplementedError(
                    f"Cannot fuse train modules: {(layer, norm, plus, *modules[: int(with_relu)])}"
                )
            layer = fuse_conv_bn_eval(layer, norm)
        return nni.ConvAddReLU2d(layer, plus, relu) if with_relu else nni.ConvAdd2d(layer, plus)

    config = common._config(
        None, _CONV, fuser_method=fuse, fused_module=nni.ConvAddReLU2d if with_relu else nni.ConvAdd2d
    )
    config._set_pattern_complex_format((nn.ReLU, total) if with_relu else total)
    return config._set_root_node_getter(root)._set_extra_inputs_getter(extra)


def _sum_configs() -> list[BackendPatternConfig]:
    found = []
    for with_relu, module in ((False, nni.ConvAdd2d), (True, nni.ConvAddReLU2d)):
        for left in (True, False):
            for with_norm in (True, False):
                found += [_sum_config(add, with_norm, with_relu, left) for add in (torch.add, operator.add)]
        found.append(common._weighted(module, _CONV, nn.Conv2d, nnqr.Conv2d))
    return found


def _activation_config(module: Any, function: Callable, fused: Any) -> list[BackendPatternConfig]:
    fuser = _sequential_wrapper2(fused)
    return [
        common._fused((nn.Linear, module), _LINEAR, fuser, fused),
        common._fused((nn.Linear, function), _LINEAR, fuser, fused),
        common._weighted(fused, _LINEAR, nn.Linear, nnqr.Linear),
        common._config((F.linear, module), _LINEAR),
        common._config((F.linear, function), _LINEAR),
    ]


def _fuse_linear_bn_leaky_relu(is_qat: bool, linear: Any, bn: Any, leaky_relu: Any) -> Any:
    if not linear.training == bn.training == leaky_relu.training:
        raise AssertionError("Linear, BN and LeakyReLU all must be in the same mode (train or eval).")
    if is_qat:
        raise NotImplementedError(f"Cannot fuse train modules: {(linear, bn, leaky_relu)}")
    return nni.LinearLeakyReLU(fuse_linear_bn_eval(linear, bn), leaky_relu)


def get_onednn_backend_config() -> BackendConfig:
    """Return the patterns and dtypes that the oneDNN engine can compute, as a BackendConfig."""
    groups: list[Any] = [
        common._get_conv_configs(_CONV),
        _sum_configs(),
        common._get_linear_configs(_LINEAR),
        _activation_config(nn.LeakyReLU, F.leaky_relu, nni.LinearLeakyReLU),
        [
            common._fused(
                (nn.Linear, nn.BatchNorm1d, nn.LeakyReLU), _LINEAR, _fuse_linear_bn_leaky_relu, nni.LinearLeakyReLU
            )
        ],
        _activation_config(nn.Tanh, torch.tanh, nni.LinearTanh),
        common._get_binary_op_configs(_PLAIN),
        [common._get_cat_config(_PLAIN)],
        common._get_default_op_configs(_PLAIN),
        common._get_fixed_qparams_op_configs(_PLAIN),
        common._get_share_qparams_op_configs(_PLAIN),
        common._get_bn_configs(_PLAIN),
        common._get_ln_configs([input_output_only_quint8_dtype_config]),
        common._get_rnn_op_configs([default_dynamic_int8_dtype_config]),
        common._get_embedding_op_configs([_WEIGHT_ONLY]),
    ]
    config = BackendConfig("onednn")
    for group in groups:
        config.set_backend_pattern_configs(group)
    return config
