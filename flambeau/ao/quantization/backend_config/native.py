"""Configurations of PyTorch's own engines: x86 and fbgemm, qnnpack, and all of them together (native)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch

from . import _common_operator_config_utils as common
from .backend_config import BackendConfig, DTypeConfig, DTypeWithConstraints

__all__ = [
    "get_fbgemm_backend_config", "get_native_backend_config", "get_native_backend_config_dict", "get_qnnpack_backend_config",
    "get_test_only_legacy_native_backend_config", "get_test_only_legacy_native_backend_config_dict", "get_x86_backend_config",
]  # fmt: skip

_float, _half, _byte, _signed = torch.float, torch.float16, torch.quint8, torch.qint8
weighted_op_quint8_dtype_config = DTypeConfig(_byte, _byte, _signed, _float)
default_op_quint8_dtype_config = DTypeConfig(_byte, _byte)
default_op_fp16_dtype_config = DTypeConfig(_half, _half, _half, _half)
default_dynamic_int8_dtype_config = DTypeConfig(_byte, _float, _signed, _float, is_dynamic=True)
default_dynamic_float16_dtype_config = DTypeConfig(_half, _float, _half, _float, is_dynamic=True)
input_output_only_quint8_dtype_config = DTypeConfig(_byte, _byte, _float, _float)
weight_only_quint8_dtype_config = DTypeConfig(_float, _float, _byte)
weight_only_quint4x2_dtype_config = DTypeConfig(_float, _float, torch.quint4x2)


def _backend(
    name: str, weighted: list, dynamic: list, plain: list, fixed: list, linear: Sequence = (), more: Sequence = ()
) -> BackendConfig:
    """Make a BackendConfig of all patterns, with the dtypes for layers with weights, for dynamic quantization, and for the rest."""
    config = BackendConfig(name)
    operators = [*plain, *more]
    groups: list[Any] = [
        common._get_conv_configs(weighted),
        common._get_linear_configs([*weighted, *dynamic, *linear]),
        common._get_binary_op_configs(operators),
        [common._get_cat_config(plain)],
        common._get_default_op_configs(plain),
        common._get_fixed_qparams_op_configs([*fixed, *more]),
        common._get_share_qparams_op_configs(operators),
        common._get_tensor_info_op_configs(plain),
        common._get_bn_configs(plain),
        common._get_ln_configs([input_output_only_quint8_dtype_config]),
        common._get_rnn_op_configs(dynamic),
        common._get_embedding_op_configs([weight_only_quint8_dtype_config, weight_only_quint4x2_dtype_config]),
    ]
    for group in groups:
        config.set_backend_pattern_configs(group)
    return config


_DYNAMIC = [default_dynamic_int8_dtype_config, default_dynamic_float16_dtype_config]
_PLAIN = [default_op_quint8_dtype_config]


def get_native_backend_config() -> BackendConfig:
    """Return the patterns that any engine of PyTorch runs quantized."""
    return _backend("native", [weighted_op_quint8_dtype_config], _DYNAMIC, _PLAIN, _PLAIN)


def get_test_only_legacy_native_backend_config() -> BackendConfig:
    """`get_native_backend_config` with float16 as a quantized dtype."""
    half = [default_op_fp16_dtype_config]
    return _backend("_native_and_fp16", [weighted_op_quint8_dtype_config], _DYNAMIC, _PLAIN, _PLAIN, half, half)


def get_fbgemm_backend_config() -> BackendConfig:
    """Return the patterns that fbgemm runs quantized."""
    return _backend("fbgemm", [weighted_op_quint8_dtype_config], _DYNAMIC, _PLAIN, _PLAIN)


def get_x86_backend_config() -> BackendConfig:
    """Return the patterns that the engine x86 runs quantized."""
    return _backend("x86", [weighted_op_quint8_dtype_config], _DYNAMIC, _PLAIN, _PLAIN)


def get_qnnpack_backend_config() -> BackendConfig:
    """Return the patterns that qnnpack runs quantized, also with signed activations, whose scales have a lower limit."""
    activation = DTypeWithConstraints(_signed, scale_min_lower_bound=2**-12)
    weight = DTypeWithConstraints(_signed, -127, 127, scale_min_lower_bound=2**-12)
    signed = DTypeConfig(activation, activation, weight, _float)
    return _backend(
        "qnnpack",
        [signed, weighted_op_quint8_dtype_config],
        _DYNAMIC,
        [DTypeConfig(activation, activation), default_op_quint8_dtype_config],
        _PLAIN,
    )


def get_native_backend_config_dict() -> dict[str, Any]:
    return get_native_backend_config().to_dict()


def get_test_only_legacy_native_backend_config_dict() -> dict[str, Any]:
    return get_test_only_legacy_native_backend_config().to_dict()
