"""Fusion of successive layers: convolution, batch norm and relu, and similar groups."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from ... import nn
from ...nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from ..nn import intrinsic as nni
from .utils import MatchAllNode, Pattern, get_combined_dict

__all__ = [
    "fuse_conv_bn", "fuse_conv_bn_relu", "fuse_convtranspose_bn", "fuse_linear_bn", "get_fuser_method", "get_fuser_method_new",
]  # fmt: skip

_TRAINED = {nn.Conv1d: nni.ConvBn1d, nn.Conv2d: nni.ConvBn2d, nn.Conv3d: nni.ConvBn3d}
_TRAINED_RELU = {nn.Conv1d: nni.ConvBnReLU1d, nn.Conv2d: nni.ConvBnReLU2d, nn.Conv3d: nni.ConvBnReLU3d}
_RELU = {nn.Conv1d: nni.ConvReLU1d, nn.Conv2d: nni.ConvReLU2d, nn.Conv3d: nni.ConvReLU3d}


def _check_norm(bn: Any, channels: int, what: str, number: int) -> None:
    """Check that a batch norm trained together with the layer before it has weights and running averages."""
    if bn.num_features != channels:
        raise AssertionError(f"Output {what} must match num_features of BatchNorm{number}d")
    if not bn.affine:
        raise AssertionError(f"Only support fusing BatchNorm{number}d with affine set to True")
    if not bn.track_running_stats:
        raise AssertionError(f"Only support fusing BatchNorm{number}d with tracking_running_stats set to True")


def _check_modes(what: str, *modules: nn.Module) -> None:
    if len({m.training for m in modules}) > 1:
        raise AssertionError(f"{what} and BN both must be in the same mode (train or eval).")


def fuse_conv_bn(is_qat: bool, conv: Any, bn: Any) -> nn.Module:
    """Fuse a convolution and its batch norm into one module; in evaluation mode, into a convolution with other weights."""
    _check_modes("Conv", conv, bn)
    if not is_qat:
        return fuse_conv_bn_eval(conv, bn)
    _check_norm(bn, conv.out_channels, "channel of Conv2d", 2)
    if type(conv) not in _TRAINED:
        raise NotImplementedError(f"Cannot fuse train modules: {(conv, bn)}")
    return _TRAINED[type(conv)](conv, bn)


def fuse_conv_bn_relu(is_qat: bool, conv: Any, bn: Any, relu: Any) -> nn.Module:
    """Fuse a convolution, its batch norm and a relu into one module."""
    _check_modes("Conv", conv, bn, relu)
    if is_qat:
        _check_norm(bn, conv.out_channels, "channel of Conv2d", 2)
    kinds = _TRAINED_RELU if is_qat else _RELU
    if type(conv) not in kinds:
        raise NotImplementedError(f"Cannot fuse {'train' if is_qat else 'eval'} modules: {(conv, bn, relu)}")
    return kinds[type(conv)](conv, bn, relu) if is_qat else kinds[type(conv)](fuse_conv_bn_eval(conv, bn), relu)


def fuse_linear_bn(is_qat: bool, linear: Any, bn: Any) -> nn.Module:
    """Fuse a linear layer and its batch norm into one module; in evaluation mode, into a linear layer with other weights."""
    _check_modes("Linear", linear, bn)
    if not is_qat:
        return fuse_linear_bn_eval(linear, bn)
    _check_norm(bn, linear.out_features, "features of Linear", 1)
    return nni.LinearBn1d(linear, bn)


def fuse_convtranspose_bn(is_qat: bool, convt: Any, bn: Any) -> nn.Module:
    """Fold a batch norm into the weights of a transposed convolution."""
    _check_modes("ConvTranspose", convt, bn)
    if is_qat:
        raise Exception("Fusing ConvTranspose+BatchNorm not yet supported in QAT.")
    return fuse_conv_bn_eval(convt, bn, transpose=True)


def _sequential_wrapper2(sequential: Any) -> Callable:
    def fuser_method(is_qat: bool, m1: nn.Module, m2: nn.Module) -> nn.Module:
        return sequential(m1, m2)

    return fuser_method


_CONVS = ((nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d), (nn.Conv3d, nn.BatchNorm3d))
_DEFAULT_OP_LIST_TO_FUSER_METHOD: dict[tuple, Any] = {
    **dict.fromkeys(_CONVS, fuse_conv_bn),
    **{(*pair, nn.ReLU): fuse_conv_bn_relu for pair in _CONVS},
    **{(conv, nn.ReLU): _sequential_wrapper2(fused) for conv, fused in _RELU.items()},
    (nn.Linear, nn.BatchNorm1d): fuse_linear_bn,
    (nn.Linear, nn.ReLU): _sequential_wrapper2(nni.LinearReLU),
    (nn.BatchNorm2d, nn.ReLU): _sequential_wrapper2(nni.BNReLU2d),
    (nn.BatchNorm3d, nn.ReLU): _sequential_wrapper2(nni.BNReLU3d),
    (nn.ConvTranspose1d, nn.BatchNorm1d): fuse_convtranspose_bn,
    (nn.ConvTranspose2d, nn.BatchNorm2d): fuse_convtranspose_bn,
    (nn.ConvTranspose3d, nn.BatchNorm3d): fuse_convtranspose_bn,
}


def get_fuser_method(op_list: tuple[Any, ...], additional_fuser_method_mapping: dict[Any, Any] | None = None) -> Any:
    """Return the function `f(is_qat, *modules)` that fuses modules of these types."""
    method = get_combined_dict(_DEFAULT_OP_LIST_TO_FUSER_METHOD, additional_fuser_method_mapping or {}).get(op_list)
    if method is None:
        raise AssertionError(f"did not find fuser method for: {op_list} ")
    return method


def _reverse2(f: Callable) -> Callable:
    def reversed(is_qat: bool, x: Any, y: Any) -> Any:
        return f(is_qat, y, x)

    return reversed


def _reverse3(f: Callable) -> Callable:
    def reversed(is_qat: bool, x: Any, w: Any) -> Any:
        y, z = w
        return f(is_qat, z, y, x)

    return reversed


def _get_valid_patterns(op_pattern: Any) -> list:
    """Return a pattern, and its variants with a wildcard in place of some of its parts."""
    if isinstance(op_pattern, (tuple, list)):
        return list(itertools.product(*map(_get_valid_patterns, op_pattern)))
    return [op_pattern, MatchAllNode]


def get_fuser_method_new(op_pattern: Pattern, fuser_method_mapping: dict[Any, Any]) -> Any:
    """Return the fuser of a pattern that is written from the last operator to the first."""
    for pattern in _get_valid_patterns(op_pattern):
        if fuser_method_mapping.get(pattern) is not None:
            return fuser_method_mapping[pattern]
    raise AssertionError(f"did not find fuser method for: {pattern} ")
