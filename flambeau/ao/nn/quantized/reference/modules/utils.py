"""Quantization parameters of a reference layer's weight, and their storage."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ...... import nn
from ......core.tensor import Tensor

__all__ = ["ReferenceQuantizedModule"]

_BY_CHANNEL = (torch.per_channel_affine, torch.per_channel_affine_float_qparams)
_QUANTIZED_DTYPES = (torch.quint8, torch.qint8, torch.quint4x2, torch.qint32)
_NO_QPARAMS: dict[str, Any] = {"qscheme": torch.per_tensor_affine, "dtype": torch.quint8, "scale": 1.0, "zero_point": 0}


def as_buffer(value: Any, dtype: Any, device: Any) -> Tensor:
    """Copy a scale, zero point or axis, given as a tensor or a number, to a new tensor."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return torch.tensor(value, dtype=dtype, device=device)


class ReferenceQuantizedModule(nn.Module):
    """A layer with `weight`, and scale and zero point for it."""

    weight: Any
    weight_scale: Tensor
    weight_zero_point: Tensor
    weight_axis: Tensor

    def _init_weight_qparams(self, weight_qparams: dict[str, Any] | None, device: Any) -> None:
        qparams = _NO_QPARAMS if weight_qparams is None else weight_qparams
        self.weight_qscheme, self.weight_dtype = qparams["qscheme"], qparams["dtype"]
        if self.weight_qscheme not in (None, torch.per_tensor_affine, *_BY_CHANNEL):
            raise AssertionError(
                f"qscheme: {self.weight_qscheme} is not supported in reference quantized {self._get_name()}"
            )
        coded = self.weight_dtype in _QUANTIZED_DTYPES
        axis = qparams["axis"] if coded and self.weight_qscheme in _BY_CHANNEL else 0
        for name, value, dtype in (
            ("weight_scale", qparams["scale"] if coded else 1.0, torch.float),
            ("weight_zero_point", qparams["zero_point"] if coded else 0, torch.int),
            ("weight_axis", axis, torch.int),
        ):
            self.register_buffer(name, as_buffer(value, dtype, device))
        self.is_decomposed: bool = qparams.get("is_decomposed", False)
        self.weight_axis_int: int = int(self.weight_axis)
        self.weight_quant_min, self.weight_quant_max = qparams.get("quant_min"), qparams.get("quant_max")

    def _weight_parts(self) -> tuple:
        return (
            self.weight, self.weight_qscheme, self.weight_dtype, self.weight_scale, self.weight_zero_point,
            self.weight_axis_int,
        )  # fmt: skip

    def get_weight(self) -> Tensor:
        """Return the weight, quantized and dequantized."""
        if self.is_decomposed and self.weight_dtype != torch.float16:
            return self._quantize_dequantize(self.get_quantized_weight(), "dequantize")
        return _quantize_and_dequantize_weight(*self._weight_parts())

    def _quantize_dequantize(self, weight: Tensor, way: str) -> Tensor:
        kind = torch.iinfo(self.weight_dtype)
        low = kind.min if self.weight_quant_min is None else self.weight_quant_min
        high = kind.max if self.weight_quant_max is None else self.weight_quant_max
        by_channel = self.weight_qscheme in _BY_CHANNEL
        function = getattr(torch.ops.quantized_decomposed, f"{way}_per_{'channel' if by_channel else 'tensor'}")
        axis = (self.weight_axis_int,) if by_channel else ()
        whole = self.weight_dtype.codes
        return function(weight, self.weight_scale, self.weight_zero_point, *axis, low, high, whole)

    def get_quantized_weight(self) -> Tensor:
        """Return the weight as a quantized tensor; as an integer tensor if the model is decomposed."""
        if self.is_decomposed and self.weight_dtype != torch.float16:
            return self._quantize_dequantize(self.weight, "quantize")
        return _quantize_weight(*self._weight_parts())

    def _save_to_state_dict(self, destination, prefix, keep_vars) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight_qscheme"] = self.weight_qscheme
        destination[prefix + "weight_dtype"] = self.weight_dtype

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, *lists) -> None:
        names = ["weight_qscheme", "weight_dtype"]
        if state_dict[prefix + "weight_qscheme"] is not None:
            names += ["weight_scale", "weight_zero_point"]
        for name in names:
            setattr(self, name, state_dict.pop(prefix + name))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, missing_keys, *lists)


def _quantize_weight(weight: Tensor, qscheme: Any, dtype: Any, scale: Any, zero_point: Any, axis: int) -> Tensor:
    if dtype == torch.float16:
        return weight.to(dtype)
    if qscheme == torch.per_tensor_affine and dtype in (torch.quint8, torch.qint8, torch.qint32):
        return torch.quantize_per_tensor(weight, scale, zero_point, dtype)
    if qscheme in _BY_CHANNEL and dtype in _QUANTIZED_DTYPES:
        return torch.quantize_per_channel(weight, scale, zero_point, axis, dtype)
    raise ValueError(f"Unsupported dtype and qscheme: {dtype}, {qscheme}")


def _quantize_and_dequantize_weight(
    weight: Tensor, qscheme: Any, dtype: Any, scale: Any, zero_point: Any, axis: int
) -> Tensor:
    if qscheme not in (torch.per_tensor_affine, *_BY_CHANNEL):
        return weight
    return _quantize_weight(weight, qscheme, dtype, scale, zero_point, axis).dequantize()


def take_parameters(made: Any, float_module: Any) -> Any:
    """Copy the weight and bias of a float layer into a reference layer."""
    made.weight = nn.Parameter(float_module.weight.detach())
    if getattr(float_module, "bias", None) is not None:
        made.bias = nn.Parameter(float_module.bias.detach())
    return made
