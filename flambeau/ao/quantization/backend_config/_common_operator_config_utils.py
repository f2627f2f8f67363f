"""Patterns that all backends support, with the dtypes of a given backend."""

from __future__ import annotations

import copy
import operator
from typing import Any

import flambeau as torch

from .... import nn
from ...nn import intrinsic as nni
from ...nn import qat as nnqat
from ...nn.intrinsic import qat as nniqat
from ...nn.quantized import reference as nnqr
from ..fixed_ranges import by_range
from ..fuser_method_mappings import (
    _sequential_wrapper2,
    fuse_conv_bn,
    fuse_conv_bn_relu,
    fuse_convtranspose_bn,
    fuse_linear_bn,
)
from .backend_config import BackendPatternConfig, DTypeConfig, DTypeWithConstraints, ObservationType

Configs = list[BackendPatternConfig]
_SHARED = ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
_OWN = ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
F = nn.functional


def _config(
    pattern: Any, dtypes: list[DTypeConfig], observed: ObservationType = _OWN, **settings: Any
) -> BackendPatternConfig:
    config = BackendPatternConfig(pattern).set_dtype_configs(dtypes).set_observation_type(observed)
    for name, value in settings.items():
        config._set(name, value)
    return config


def _zero_point_limits(scale: float, zero_point: int) -> DTypeWithConstraints:
    return DTypeWithConstraints(torch.quint8, 0, 255, scale_exact_match=scale, zero_point_exact_match=zero_point)


_FIXED_QPARAMS_OP_TO_CONSTRAINTS: dict[Any, DTypeWithConstraints] = by_range(
    _zero_point_limits(1.0 / 256.0, 0), _zero_point_limits(2.0 / 256.0, 128)
)


def _get_binary_op_configs(dtypes: list[DTypeConfig]) -> Configs:
    counts = {0: _OWN, 1: _SHARED, 2: _OWN}  # a sum with a number keeps the levels of the tensor
    configs = [
        _config(pattern, dtypes, _num_tensor_args_to_observation_type=counts)
        for op in (operator.add, torch.add, operator.mul, torch.mul)
        for pattern in ((op, nn.ReLU), (op, F.relu), (op, torch.relu), op)
    ]
    return [*configs, _config(torch.matmul, dtypes)]


def _weighted(
    pattern: Any, dtypes: list[DTypeConfig], root: Any, reference: Any, qat: Any = None
) -> BackendPatternConfig:
    return _config(pattern, dtypes, root_module=root, reference_quantized_module=reference, qat_module=qat)


def _fused(pattern: Any, dtypes: list[DTypeConfig], fuser: Any, module: Any) -> BackendPatternConfig:
    return _config(pattern, dtypes, fuser_method=fuser, fused_module=module)


def _get_linear_configs(dtypes: list[DTypeConfig]) -> Configs:
    with_relu = _sequential_wrapper2(nni.LinearReLU)
    pair = (nn.Linear, nnqr.Linear)
    return [
        _weighted(nn.Linear, dtypes, *pair, nnqat.Linear),
        _weighted(nnqat.Linear, dtypes, *pair),
        _config(F.linear, dtypes, _input_type_to_index={"weight": 1, "bias": 2}),
        _fused((nn.Linear, nn.ReLU), dtypes, with_relu, nni.LinearReLU),
        _fused((nn.Linear, F.relu), dtypes, with_relu, nni.LinearReLU),
        _weighted(nni.LinearReLU, dtypes, *pair, nniqat.LinearReLU),
        _weighted(nniqat.LinearReLU, dtypes, *pair),
        _config((F.linear, nn.ReLU), dtypes),
        _config((F.linear, F.relu), dtypes),
        _fused((nn.Linear, nn.BatchNorm1d), dtypes, fuse_linear_bn, nni.LinearBn1d),
        _weighted(nni.LinearBn1d, dtypes, *pair, nniqat.LinearBn1d),
        _weighted(nniqat.LinearBn1d, dtypes, *pair),
    ]


def _get_conv_configs(dtypes: list[DTypeConfig]) -> Configs:
    configs: Configs = []
    for n in (1, 2, 3):
        conv, norm, reference = (getattr(nn, f"Conv{n}d"), getattr(nn, f"BatchNorm{n}d"), getattr(nnqr, f"Conv{n}d"))
        relu, bn, bn_relu = (getattr(nni, f"Conv{name}{n}d") for name in ("ReLU", "Bn", "BnReLU"))
        qat, qat_relu = getattr(nnqat, f"Conv{n}d"), getattr(nniqat, f"ConvReLU{n}d")
        qat_bn, qat_bn_relu = getattr(nniqat, f"ConvBn{n}d"), getattr(nniqat, f"ConvBnReLU{n}d")
        function = getattr(F, f"conv{n}d")
        back, back_reference = getattr(nn, f"ConvTranspose{n}d"), getattr(nnqr, f"ConvTranspose{n}d")
        with_relu, pair = _sequential_wrapper2(relu), (conv, reference)
        weights = {"weight": 1, "bias": 2}
        configs += [
            _weighted(conv, dtypes, *pair, qat),
            _weighted(qat, dtypes, *pair),
            _config(function, dtypes, _input_type_to_index=weights),
            _fused((conv, nn.ReLU), dtypes, with_relu, relu),
            _fused((conv, F.relu), dtypes, with_relu, relu),
            _config((function, nn.ReLU), dtypes),
            _config((function, F.relu), dtypes),
            _config(relu, dtypes, qat_module=qat_relu),
            _weighted(qat_relu, dtypes, *pair),
            _fused((conv, norm), dtypes, fuse_conv_bn, bn),
            _fused((conv, norm, nn.ReLU), dtypes, fuse_conv_bn_relu, bn_relu),
            _fused((conv, norm, F.relu), dtypes, fuse_conv_bn_relu, bn_relu).set_root_module(conv),
            _config(bn, dtypes, qat_module=qat_bn),
            _config(bn_relu, dtypes, qat_module=qat_bn_relu),
            _weighted(qat_bn, dtypes, *pair),
            _weighted(qat_bn_relu, dtypes, *pair),
            _weighted(back, dtypes, back, back_reference),
            _weighted((back, norm), dtypes, back, back_reference).set_fuser_method(fuse_convtranspose_bn),
            _config(getattr(F, f"conv_transpose{n}d"), dtypes, _input_type_to_index=weights),
        ]
    return configs


def _get_cat_config(dtypes: list[DTypeConfig]) -> BackendPatternConfig:
    return _config(torch.cat, dtypes, _SHARED)


def _get_ln_configs(dtypes: list[DTypeConfig]) -> Configs:
    return [_config(nn.LayerNorm, dtypes), _config(F.layer_norm, dtypes, _input_type_to_index={"weight": 2, "bias": 3})]


def _get_default_op_configs(dtypes: list[DTypeConfig]) -> Configs:
    ops = (
        nn.ELU, nn.LeakyReLU, nn.Hardswish, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.Dropout, nn.PReLU, F.elu,
        F.hardswish, F.leaky_relu, F.dropout,
    )  # fmt: skip
    return [
        *(_config(op, dtypes) for op in ops),
        _config(F.group_norm, dtypes, _input_type_to_index={"weight": 2, "bias": 3}),
        _config(F.instance_norm, dtypes, _input_type_to_index={"weight": 3, "bias": 4}),
    ]


def _add_fixed_qparams_to_dtype_configs(dtypes: list[DTypeConfig], limits: DTypeWithConstraints) -> list[DTypeConfig]:
    """Return the dtype configurations with the fixed limits, scale and zero point of an operator with a known range."""
    made = copy.deepcopy(dtypes)
    for config in made:
        for told in (config.input_dtype_with_constraints, config.output_dtype_with_constraints):
            if told.dtype != limits.dtype:
                continue
            for name in ("scale_min_lower_bound", "scale_max_upper_bound"):
                if getattr(told, name) is not None:
                    raise ValueError(f"{name} is invalid for fixed qparams ops: {config}")
            told.quant_min_lower_bound = limits.quant_min_lower_bound
            told.quant_max_upper_bound = limits.quant_max_upper_bound
            told.scale_exact_match = limits.scale_exact_match
            told.zero_point_exact_match = limits.zero_point_exact_match
    return made


def _get_fixed_qparams_op_configs(dtypes: list[DTypeConfig]) -> Configs:
    return [
        _config(op, _add_fixed_qparams_to_dtype_configs(dtypes, limits))
        for op, limits in _FIXED_QPARAMS_OP_TO_CONSTRAINTS.items()
    ]


_SHARE_QPARAMS_OPS: tuple[Any, ...] = (
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.Hardtanh,
    nn.Identity, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.PixelShuffle, nn.PixelUnshuffle, nn.ReLU, nn.ReLU6,
    torch.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d, F.hardtanh, F.hardtanh_, F.interpolate,
    F.max_pool1d, F.max_pool2d, F.max_pool3d, F.pixel_shuffle, F.pixel_unshuffle, F.relu, F.relu6, torch.avg_pool1d,
    F.avg_pool2d, F.avg_pool3d, torch.clamp, torch.flatten, torch.mean, torch.narrow, torch.repeat_interleave,
    torch.transpose, torch.squeeze, torch.stack, torch.unsqueeze, operator.floordiv, "contiguous", "clamp", "detach", "detach_",
    "mean", "permute", "repeat", "repeat_interleave", "reshape", "resize_", "relu", "relu_", "squeeze", "squeeze_", "transpose",
    "unsqueeze", "unsqueeze_", "view",
)  # fmt: skip


def _get_share_qparams_op_configs(dtypes: list[DTypeConfig]) -> Configs:
    return [_config(op, dtypes, _SHARED) for op in _SHARE_QPARAMS_OPS]


def _get_bn_configs(dtypes: list[DTypeConfig]) -> Configs:
    configs: Configs = []
    for norm, fused in ((nn.BatchNorm2d, nni.BNReLU2d), (nn.BatchNorm3d, nni.BNReLU3d)):
        configs += [
            _fused((norm, nn.ReLU), dtypes, _sequential_wrapper2(fused), fused),
            _fused((norm, F.relu), dtypes, _sequential_wrapper2(fused), fused),
            _config(norm, dtypes),
            _config(fused, dtypes),
        ]
    return configs


def _get_rnn_op_configs(dtypes: list[DTypeConfig]) -> Configs:
    names = ("GRUCell", "LSTMCell", "RNNCell", "LSTM", "GRU")
    return [_weighted(getattr(nn, name), dtypes, getattr(nn, name), getattr(nnqr, name)) for name in names]


def _get_embedding_op_configs(dtypes: list[DTypeConfig]) -> Configs:
    configs: Configs = []
    for name in ("Embedding", "EmbeddingBag"):
        layer, trained, reference = getattr(nn, name), getattr(nnqat, name), getattr(nnqr, name)
        configs += [_weighted(layer, dtypes, layer, reference, trained), _weighted(trained, dtypes, layer, reference)]
    return configs


def _get_tensor_info_op_configs(dtypes: list[DTypeConfig]) -> Configs:
    return [_config(op, dtypes, ObservationType.INPUT_OUTPUT_NOT_OBSERVED) for op in ("shape", "size")]
