"""LSTM and attention composed of quantized layers, converted from observed ones."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ... import quantizable

__all__ = ["LSTM", "MultiheadAttention"]


class LSTM(quantizable.LSTM):
    """An LSTM of quantized tensors, converted from an observed `quantizable.LSTM`."""

    _FLOAT_MODULE: Any = quantizable.LSTM

    def _get_name(self) -> str:
        return "QuantizedLSTM"

    @classmethod
    def from_float(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            "It looks like you are trying to convert a non-observed LSTM module. Please, see the examples on quantizable LSTMs."
        )

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """Convert an observed layer."""
        if not isinstance(other, cls._FLOAT_MODULE):
            raise AssertionError(f"Expected module type {cls._FLOAT_MODULE}, got {type(other)}")
        made: Any = torch.ao.quantization.convert(other, inplace=False, remove_qconfig=True)
        made.__class__ = cls
        return made


class MultiheadAttention(quantizable.MultiheadAttention):
    """Attention on quantized values, converted from an observed module."""

    _FLOAT_MODULE: Any = quantizable.MultiheadAttention

    def _get_name(self) -> str:
        return "QuantizedMultiheadAttention"

    @classmethod
    def from_float(cls, other: Any) -> Any:
        raise NotImplementedError(
            "It looks like you are trying to convert a non-observed MHA module. Please, see the examples on quantizable MHAs."
        )

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """Convert an observed layer."""
        made: Any = torch.ao.quantization.convert(
            other, mapping=None, inplace=False, remove_qconfig=True, convert_custom_config_dict=None
        )
        made.__class__ = cls
        key = made.bias_k  # whose scale serves both
        for name in ("bias_k", "bias_v"):
            if getattr(made, name) is not None:
                bias = made._parameters.pop(name)
                scale, zero_point = torch._choose_qparams_per_tensor(key)
                setattr(made, name, torch.quantize_per_tensor(bias, scale, zero_point, torch.quint8))
        del made.in_proj_weight
        del made.in_proj_bias
        return made
