"""Reference recurrent layers: the float layer is called with quantized and dequantized weights."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ...... import nn
from ......core.tensor import Tensor
from .utils import _NO_QPARAMS, _quantize_and_dequantize_weight, _quantize_weight, as_buffer

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNNCell", "get_quantized_weight"]


def _parameters_of(module: Any, name: str) -> list:
    suffixes = ("_qscheme", "_dtype", "_scale", "_zero_point", "_axis_int")
    return [getattr(module, name), *(getattr(module, name + s, None) for s in suffixes)]


def get_quantized_weight(module: Any, wn: str) -> Tensor | None:
    """Return a weight of a recurrent layer as a quantized tensor."""
    return _quantize_weight(*_parameters_of(module, wn)) if hasattr(module, wn) else None


class _RecurrentBase(nn.Module):
    """Base of the reference recurrent layers: stores scale and zero point of each weight as `<name>_scale` and so on."""

    _weight_names: list[str]

    def _init_weight_qparams_dict(self, weight_qparams_dict: dict[str, Any] | None, device: Any) -> None:
        if weight_qparams_dict is None:
            weight_qparams_dict = {"is_decomposed": False, **dict.fromkeys(self._weight_names, _NO_QPARAMS)}
        self.is_decomposed = weight_qparams_dict["is_decomposed"]
        for name, qparams in weight_qparams_dict.items():
            if name == "is_decomposed":
                continue
            qscheme = qparams["qscheme"]
            setattr(self, name + "_qscheme", qscheme)
            setattr(self, name + "_dtype", qparams["dtype"])
            if qscheme not in (None, torch.per_tensor_affine, torch.per_channel_affine):
                raise AssertionError(f"qscheme: {qscheme} is not supported in {self._get_name()}")
            if qscheme is None:
                continue
            self.register_buffer(name + "_scale", as_buffer(qparams["scale"], torch.float, device))
            self.register_buffer(name + "_zero_point", as_buffer(qparams["zero_point"], torch.int, device))
            axis = qparams["axis"] if qscheme == torch.per_channel_affine else 0
            self.register_buffer(name + "_axis", as_buffer(axis, torch.int, device))
            setattr(self, name + "_axis_int", int(axis))

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}(Reference)"

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        rounded = {name: _quantize_and_dequantize_weight(*_parameters_of(self, name)) for name in self._weight_names}
        float_class = next(c for c in type(self).__mro__ if c in _FLOAT)
        return _call_float_forward(self, rounded, float_class, args, kwargs)


_FLOAT = (nn.RNNCell, nn.LSTMCell, nn.GRUCell, nn.LSTM, nn.GRU)


def _call_float_forward(module: Any, rounded: dict[str, Tensor], float_class: Any, args: tuple, kwargs: dict) -> Any:
    """Call the float layer's forward with other weights."""
    own = {name: module._parameters[name] for name in rounded}
    try:
        module._parameters.update(rounded)
        return float_class.forward(module, *args, **kwargs)
    finally:
        module._parameters.update(own)


class _ReferenceCell(_RecurrentBase):
    _weight_names = ["weight_ih", "weight_hh"]

    def __init__(self, *args: Any, weight_qparams_dict: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if weight_qparams_dict is not None and len(weight_qparams_dict) != 3:
            raise AssertionError(
                "Expected length for weight_qparams_dict to be 3 for QuantizedRNNCellBase(Reference), "
                f"got {len(weight_qparams_dict)}"
            )
        self._init_weight_qparams_dict(weight_qparams_dict, self.weight_ih.device)

    def get_quantized_weight_ih(self) -> Tensor | None:
        return get_quantized_weight(self, "weight_ih")

    def get_quantized_weight_hh(self) -> Tensor | None:
        return get_quantized_weight(self, "weight_hh")

    def get_weight_ih(self) -> Tensor:
        return _quantize_and_dequantize_weight(*_parameters_of(self, "weight_ih"))

    def get_weight_hh(self) -> Tensor:
        return _quantize_and_dequantize_weight(*_parameters_of(self, "weight_hh"))

    @classmethod
    def from_float(cls, mod: Any, weight_qparams_dict: dict[str, Any], use_precomputed_fake_quant: bool = False) -> Any:
        """Make the reference form of a float cell, with its parameters."""
        more = {"nonlinearity": mod.nonlinearity} if isinstance(mod, nn.RNNCell) else {}
        made = cls(
            mod.input_size, mod.hidden_size, mod.bias, device=mod.weight_ih.device, dtype=mod.weight_ih.dtype,
            weight_qparams_dict=weight_qparams_dict, **more,
        )  # fmt: skip
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(made, name, getattr(mod, name))
        return made


class RNNCell(_ReferenceCell, nn.RNNCell):
    """nn.RNNCell whose weights are quantized and dequantized."""


class LSTMCell(_ReferenceCell, nn.LSTMCell):
    """nn.LSTMCell whose weights are quantized and dequantized."""


class GRUCell(_ReferenceCell, nn.GRUCell):
    """nn.GRUCell whose weights are quantized and dequantized."""


class _ReferenceLayers(_RecurrentBase):
    def __init__(self, *args: Any, weight_qparams_dict: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._weight_names = [name for name in self._flat_weights_names if name.startswith("weight")]
        self._init_weight_qparams_dict(weight_qparams_dict, None)

    def get_quantized_weight_bias_dict(self) -> dict[str, Tensor | None]:
        """Return the weights as quantized tensors, and the biases, by name."""
        return {
            name: get_quantized_weight(self, name) if name.startswith("weight") else getattr(self, name, None)
            for name in self._flat_weights_names
        }

    @classmethod
    def from_float(cls, mod: Any, weight_qparams_dict: dict[str, Any]) -> Any:
        """Make the reference form of a float layer, with its parameters."""
        made = cls(
            mod.input_size, mod.hidden_size, mod.num_layers, mod.bias, mod.batch_first, mod.dropout, mod.bidirectional,
            weight_qparams_dict=weight_qparams_dict,
        )  # fmt: skip
        for name in mod._flat_weights_names:
            setattr(made, name, getattr(mod, name))
        return made


class LSTM(_ReferenceLayers, nn.LSTM):
    """nn.LSTM whose weights are quantized and dequantized."""


class GRU(_ReferenceLayers, nn.GRU):
    """nn.GRU whose weights are quantized and dequantized."""
