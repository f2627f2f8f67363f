"""Convolutions with batch norm and relu, for quantization-aware training."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch

from ...... import nn
from ......core.tensor import Tensor
from ......nn import init
from ......nn.modules.conv import _ConvNd
from ......nn.modules.settings import extending
from ......nn.utils.fusion import fuse_conv_bn_weights
from ....qat.modules import conv as nnqat
from ....qat.modules.origin import check_float_module, require_qconfig
from ...modules import fused as nni
from .norm_folding import NormFolding

__all__ = [
    "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d", "ConvBnReLU3d", "ConvReLU1d", "ConvReLU2d",
    "ConvReLU3d", "freeze_bn_stats", "update_bn_stats",
]  # fmt: skip

_NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
_FORMER_NAMES = {
    "bn.weight": "gamma",
    "bn.bias": "beta",
    "bn.running_mean": "running_mean",
    "bn.running_var": "running_var",
    "bn.num_batches_tracked": "num_batches_tracked",
}


class _ConvBnNd(NormFolding, _ConvNd, nni._FusedModule):
    """Base of QAT convolutions with a batch norm."""

    _version = 2  # 1: the norm's state had other names
    _FLOAT_MODULE: type
    _FLOAT_CONV_MODULE: type
    _FLOAT_BN_MODULE: type
    _FLOAT_RELU_MODULE: type | None = None
    _FUSED_FLOAT_MODULE: type

    @extending(nn.Conv2d, without=("device", "dtype"))
    def __init__(
        self,
        bias: Any = None,
        eps: float = 1e-05,
        momentum: float = 0.1,
        freeze_bn: bool = False,
        qconfig: Any = None,
        **settings: Any,
    ):
        super().__init__(bias=False, **settings)
        self.qconfig = require_qconfig(qconfig)
        self._start_norm(_NORMS[self._spatial](self.out_channels, eps, momentum, True, True), freeze_bn)
        self.weight_fake_quant = self.qconfig.weight()
        if bias:
            self.bias = nn.Parameter(torch.empty(self.out_channels))
        else:
            self.register_parameter("bias", None)
        self._begin_training(freeze_bn)
        self._enable_slow_path_for_better_numerical_stability = False

    def reset_bn_parameters(self) -> None:
        super().reset_bn_parameters()
        if self.bias is not None:
            bound = 1 / math.sqrt(init._calculate_fan_in_and_fan_out(self.weight)[0])
            init.uniform_(self.bias, -bound, bound)

    def _forward(self, input: Tensor) -> Tensor:
        zero_bias = torch.zeros(self.out_channels, device=self.weight.device, dtype=input.dtype)
        if self._enable_slow_path_for_better_numerical_stability:
            return self._forward_slow(input, zero_bias)
        weight, scale, _ = self._scaled_weight()
        return self._apply_norm(self._conv_forward(input, weight, zero_bias), scale)

    def _forward_slow(self, input: Tensor, zero_bias: Tensor) -> Tensor:
        """Compute without dividing by the weight's scale, which may be zero; convolves twice in training."""
        along = self._along_channels
        if self.bn.training:
            plain = self._conv_forward(input, self.weight, zero_bias)
            with torch.no_grad():
                self.bn(plain if self.bias is None else plain + along(self.bias))
            weight, _, running_deviation = self._scaled_weight()
            dims = [0] + list(range(2, self.weight.dim()))
            mean = plain.mean(dims)
            deviation = torch.sqrt(torch.square(plain - along(mean)).mean(dims) + self.bn.eps)
            result = self._conv_forward(input, weight, zero_bias) * along(running_deviation / deviation)
        else:
            weight, _, deviation = self._scaled_weight()
            result = self._conv_forward(input, weight, zero_bias)
            mean = self.bn.running_mean - (self.bias if self.bias is not None else 0)
        result = result + along(self.bn.bias - self.bn.weight * mean / deviation)
        if self.bias is not None:
            # The norm takes the bias away; its gradient is zero, not missing.
            result = result + along(self.bias - self.bias)
        return result

    def forward(self, input: Tensor) -> Tensor:
        result = self._forward(input)
        return result if self._FLOAT_RELU_MODULE is None else nn.functional.relu(result)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, *lists) -> None:
        if local_metadata.get("version", None) in (None, 1):
            for name, former in _FORMER_NAMES.items():
                if prefix + former in state_dict:
                    state_dict[prefix + name] = state_dict.pop(prefix + former)
                elif prefix + name not in state_dict and strict:
                    missing_keys.append(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, *lists)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Make the layer from a fused float layer, whose parameters it shares."""
        check_float_module(cls, mod, cls._FLOAT_MODULE, with_found=False)
        conv, bn = mod[0], mod[1]
        made = cls(
            conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.groups,
            conv.bias is not None, conv.padding_mode, bn.eps, bn.momentum, False, mod.qconfig,
        )  # fmt: skip
        return made._set_batch_norm(conv, bn)

    def to_float(self) -> nn.Module:
        """Return the layers without fake quantization, with the norm folded into the convolution's weight."""
        conv = self._FLOAT_CONV_MODULE(
            self.in_channels, self.out_channels, self.kernel_size, self.stride, self.padding, self.dilation, self.groups,
            self.bias is not None, self.padding_mode,
        )  # fmt: skip
        bias = None if self.bias is None else self.bias.detach()
        conv.weight, conv.bias = fuse_conv_bn_weights(
            nn.Parameter(self.weight.detach()), bias, self.bn.running_mean, self.bn.running_var, self.bn.eps, self.bn.weight,
            self.bn.bias,
        )  # fmt: skip
        made = conv if self._FLOAT_RELU_MODULE is None else self._FUSED_FLOAT_MODULE(conv, nn.ReLU())
        made.train(self.training)
        return made


class ConvBn1d(_ConvBnNd, nn.Conv1d):
    """intrinsic.ConvBn1d with a fake-quantized weight."""

    _FLOAT_MODULE, _FLOAT_CONV_MODULE, _FLOAT_BN_MODULE = nni.ConvBn1d, nn.Conv1d, nn.BatchNorm1d


class ConvBn2d(_ConvBnNd, nn.Conv2d):
    """intrinsic.ConvBn2d with a fake-quantized weight."""

    _FLOAT_MODULE, _FLOAT_CONV_MODULE, _FLOAT_BN_MODULE = nni.ConvBn2d, nn.Conv2d, nn.BatchNorm2d


class ConvBn3d(_ConvBnNd, nn.Conv3d):
    """intrinsic.ConvBn3d with a fake-quantized weight."""

    _FLOAT_MODULE, _FLOAT_CONV_MODULE, _FLOAT_BN_MODULE = nni.ConvBn3d, nn.Conv3d, nn.BatchNorm3d


class ConvBnReLU1d(ConvBn1d):
    """intrinsic.ConvBnReLU1d with a fake-quantized weight."""

    _FLOAT_MODULE, _FLOAT_RELU_MODULE, _FUSED_FLOAT_MODULE = nni.ConvBnReLU1d, nn.ReLU, nni.ConvReLU1d


class ConvBnReLU2d(ConvBn2d):
    """intrinsic.ConvBnReLU2d with a fake-quantized weight."""

    _FLOAT_MODULE, _FLOAT_RELU_MODULE, _FUSED_FLOAT_MODULE = nni.ConvBnReLU2d, nn.ReLU, nni.ConvReLU2d


class ConvBnReLU3d(ConvBn3d):
    """intrinsic.ConvBnReLU3d with a fake-quantized weight."""

    _FLOAT_MODULE, _FLOAT_RELU_MODULE, _FUSED_FLOAT_MODULE = nni.ConvBnReLU3d, nn.ReLU, nni.ConvReLU3d


class _WithReLU(nn.Module):
    """Mixin before a convolution's class: applies ReLU to its results."""

    _FLOAT_BN_MODULE, _FLOAT_RELU_MODULE = None, nn.ReLU

    def forward(self, input: Tensor) -> Tensor:
        return nn.functional.relu(super().forward(input))


class ConvReLU1d(_WithReLU, nnqat.Conv1d, nni._FusedModule):
    """intrinsic.ConvReLU1d with a fake-quantized weight."""

    _FLOAT_MODULE: Any = nni.ConvReLU1d


class ConvReLU2d(_WithReLU, nnqat.Conv2d, nni._FusedModule):
    """intrinsic.ConvReLU2d with a fake-quantized weight."""

    _FLOAT_MODULE: Any = nni.ConvReLU2d


class ConvReLU3d(_WithReLU, nnqat.Conv3d, nni._FusedModule):
    """intrinsic.ConvReLU3d with a fake-quantized weight."""

    _FLOAT_MODULE: Any = nni.ConvReLU3d


_WITH_NORM = (ConvBn1d, ConvBn2d, ConvBn3d, ConvBnReLU1d, ConvBnReLU2d, ConvBnReLU3d)


def update_bn_stats(mod: nn.Module) -> None:
    """Unfreeze the running averages of a fused convolution's norm; for `model.apply`."""
    if type(mod) in _WITH_NORM:
        mod.update_bn_stats()


def freeze_bn_stats(mod: nn.Module) -> None:
    """Freeze the running averages of a fused convolution's norm; for `model.apply`."""
    if type(mod) in _WITH_NORM:
        mod.freeze_bn_stats()
