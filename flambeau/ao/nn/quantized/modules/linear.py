"""Quantized linear layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .....core import dtype as dt
from .....core.tensor import Tensor
from .....nn.modules.linear import Linear as FloatLinear
from .....nn.modules.linear import NonDynamicallyQuantizableLinear
from .....nn.modules.module import Module
from .....nn.utils.fusion import fuse_linear_bn_weights
from .....nn.utils.parametrize import type_before_parametrizations
from .....ops.creation.construct import tensor
from .....ops.creation.filled import zeros
from .....ops.quantizing import tensors
from .....ops.quantizing.operators import quantized as Q
from ... import intrinsic as nni
from ...intrinsic import qat as nniqat
from .utils import WeightedQuantizedModule, _hide_packed_params_repr, _quantize_weight

__all__ = ["Linear", "LinearPackedParams"]


class LinearPackedParams(Module):
    """Module that holds the packed weight and bias of a linear layer; files store them unpacked."""

    _version = 3

    def __init__(self, dtype: Any = dt.qint8):
        super().__init__()
        self.dtype = dtype
        if dtype is dt.qint8:
            self.set_weight_bias(tensors._empty_affine_quantized([1, 1], scale=1.0, zero_point=0, dtype=dt.qint8), None)
        elif dtype is dt.float16:
            self.set_weight_bias(zeros([1, 1]), None)

    def set_weight_bias(self, weight: Tensor, bias: Any) -> None:
        if self.dtype is dt.qint8:
            self._packed_params = Q.linear_prepack(weight, bias)
        elif self.dtype is dt.float16:
            self._packed_params = Q.linear_prepack_fp16(weight, bias)
        else:
            raise RuntimeError("Unsupported dtype on dynamic quantized linear!")

    def _weight_bias(self) -> Any:
        return self._packed_params.unpack()

    def forward(self, x: Any) -> Any:
        return x

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_params"] = self._weight_bias()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        """Load weight and bias; files before version 3 have them unpacked, and those of version 1 have no dtype."""
        version = local_metadata.get("version", None) or 1
        self.dtype = dt.qint8 if version < 2 else state_dict.pop(prefix + "dtype")
        if version < 3:
            weight, bias = state_dict.pop(prefix + "weight"), state_dict.pop(prefix + "bias")
        else:
            weight, bias = state_dict.pop(prefix + "_packed_params")
        self.set_weight_bias(weight, bias)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *lists)

    def __repr__(self) -> str:
        return repr(self._weight_bias())


class Linear(WeightedQuantizedModule):
    """A linear layer from codes to codes: `scale` and `zero_point` are those of its results.

    >>> import flambeau as torch
    >>> x = torch.quantize_per_tensor(torch.randn(8, 20), 0.1, 128, torch.quint8)
    >>> Linear(20, 30)(x).shape
    torch.Size([8, 30])
    """

    _version = 3
    _FLOAT_MODULE: Any = (FloatLinear, NonDynamicallyQuantizableLinear)

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = dt.qint8):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        if dtype is dt.qint8:
            weight = tensors._empty_affine_quantized([out_features, in_features], scale=1, zero_point=0, dtype=dt.qint8)
        elif dtype is dt.float16:
            weight = zeros([out_features, in_features])
        else:
            raise RuntimeError("Unsupported dtype specified for quantized Linear!")
        self._packed_params = LinearPackedParams(dtype)
        self._packed_params.set_weight_bias(weight, zeros(out_features) if bias_ else None)
        self.scale, self.zero_point = 1.0, 0

    def _get_name(self) -> str:
        return "QuantizedLinear"

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, scale={self.scale},"
            f" zero_point={self.zero_point}, qscheme={self.weight().qscheme()}"
        )

    def __repr__(self) -> str:
        return _hide_packed_params_repr(self, LinearPackedParams)

    def forward(self, x: Tensor) -> Tensor:
        return Q.linear(x, self._packed_params._packed_params, self.scale, self.zero_point)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = tensor(self.scale)
        destination[prefix + "zero_point"] = tensor(self.zero_point)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        self.scale = float(state_dict.pop(prefix + "scale"))
        self.zero_point = int(state_dict.pop(prefix + "zero_point"))
        if (local_metadata.get("version", None) or 1) == 1:  # before weights had a separate module
            for name in ("weight", "bias"):
                state_dict[f"{prefix}_packed_params.{name}"] = state_dict.pop(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *lists)

    def _weight_bias(self) -> Any:
        return self._packed_params._weight_bias()

    def weight(self) -> Tensor:
        return self._weight_bias()[0]

    def bias(self) -> Any:
        return self._weight_bias()[1]

    def set_weight_bias(self, w: Tensor, b: Any) -> None:
        self._packed_params.set_weight_bias(w, b)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Make the quantized layer from an observed or QAT layer."""
        observer = getattr(mod, "activation_post_process", None)
        if hasattr(mod, "weight_fake_quant"):
            if type_before_parametrizations(mod) is nniqat.LinearBn1d:
                bn = mod.bn
                statistics = (bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
                mod.weight, mod.bias = fuse_linear_bn_weights(mod.weight, mod.bias, *statistics)
            weights = mod.weight_fake_quant
        else:
            known = cls._FLOAT_MODULE if isinstance(cls._FLOAT_MODULE, Iterable) else (cls._FLOAT_MODULE,)
            if type_before_parametrizations(mod) not in known:
                names = ", ".join(kind.__name__ for kind in known)
                raise AssertionError(f"nnq.{cls.__name__}.from_float only works for {names}, but got: {type(mod)}")
            if not hasattr(mod, "qconfig"):
                raise AssertionError("Input float module must have qconfig defined")
            if type_before_parametrizations(mod) in (nni.LinearReLU, nni.LinearLeakyReLU, nni.LinearTanh):
                mod = mod[0]
            weights = mod.weight_fake_quant if hasattr(mod, "weight_fake_quant") else mod.qconfig.weight()
        if not use_precomputed_fake_quant:
            weights(mod.weight)
        if weights.dtype is not dt.qint8:
            raise AssertionError(f"Weight observer must have dtype torch.qint8, got {weights.dtype}")
        scale, zero_point = observer.calculate_qparams()  # type: ignore[union-attr]
        made = cls._from_float_sizes(mod, weights.dtype)
        made.set_weight_bias(_quantize_weight(mod.weight.float(), weights), mod.bias)
        made.scale, made.zero_point = float(scale), int(zero_point)
        return made

    @classmethod
    def _from_float_sizes(cls, mod: Any, dtype: Any) -> Any:
        return cls(mod.in_features, mod.out_features, dtype=dtype)

    @classmethod
    def from_reference(cls, ref_qlinear: Any, output_scale: Any, output_zero_point: Any) -> Any:
        """Make the quantized layer from a reference layer."""
        made = cls._from_float_sizes(ref_qlinear, dt.qint8)
        made.set_weight_bias(ref_qlinear.get_quantized_weight(), ref_qlinear.bias)
        made.scale, made.zero_point = float(output_scale), int(output_zero_point)
        return made
