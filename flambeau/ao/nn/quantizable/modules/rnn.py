"""LSTM composed of linear layers, sums and products, each of which can be observed and quantized."""

from __future__ import annotations

import numbers
import warnings
from typing import Any

import flambeau as torch

from ..... import nn
from .....core import naming
from .....core.tensor import Tensor
from ...quantized.modules.functional_modules import FloatFunctional

__all__ = ["LSTM", "LSTMCell"]

_GATES = ("input", "forget", "cell", "output")


class LSTMCell(nn.Module):
    """Time step of an LSTM. With `split_gates`, each gate has its own linear layers (and scales)."""

    _FLOAT_MODULE = nn.LSTMCell
    __constants__ = ["split_gates"]

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        split_gates: bool = False,
    ) -> None:
        factory_kwargs = {"device": device, "dtype": dtype}
        super().__init__()
        self.input_size, self.hidden_size = input_dim, hidden_dim
        self.bias = bias
        self.split_gates = split_gates
        self.igates: Any
        self.hgates: Any
        self.gates: Any
        if split_gates:
            self.igates, self.hgates, self.gates = nn.ModuleDict(), nn.ModuleDict(), nn.ModuleDict()
            for gate in _GATES:
                self.igates[gate] = nn.Linear(input_dim, hidden_dim, bias=bias, **factory_kwargs)
                self.hgates[gate] = nn.Linear(hidden_dim, hidden_dim, bias=bias, **factory_kwargs)
                self.gates[gate] = FloatFunctional()
        else:
            self.igates = nn.Linear(input_dim, 4 * hidden_dim, bias=bias, **factory_kwargs)
            self.hgates = nn.Linear(hidden_dim, 4 * hidden_dim, bias=bias, **factory_kwargs)
            self.gates = FloatFunctional()
        self.input_gate = nn.Sigmoid()
        self.forget_gate = nn.Sigmoid()
        self.cell_gate = nn.Tanh()
        self.output_gate = nn.Sigmoid()
        self.fgate_cx = FloatFunctional()
        self.igate_cgate = FloatFunctional()
        self.fgate_cx_igate_cgate = FloatFunctional()
        self.ogate_cy = FloatFunctional()
        self.initial_hidden_state_qparams: tuple[float, int] = (1.0, 0)
        self.initial_cell_state_qparams: tuple[float, int] = (1.0, 0)
        self.hidden_state_dtype: Any = torch.quint8
        self.cell_state_dtype: Any = torch.quint8

    def _gate_sums(self, x: Tensor, hx: Tensor) -> Any:
        if self.split_gates:
            return [self.gates[g].add(self.igates[g](x), self.hgates[g](hx)) for g in _GATES]
        return self.gates.add(self.igates(x), self.hgates(hx)).chunk(4, 1)

    def forward(self, x: Tensor, hidden: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        if hidden is None or hidden[0] is None or hidden[1] is None:
            hidden = self.initialize_hidden(x.shape[0], x.is_quantized)
        hx, cx = hidden
        into, forget, cell, out = self._gate_sums(x, hx)
        into, forget = self.input_gate(into), self.forget_gate(forget)
        cell, out = self.cell_gate(cell), self.output_gate(out)
        kept = self.fgate_cx.mul(forget, cx)
        added = self.igate_cgate.mul(into, cell)
        cy = self.fgate_cx_igate_cgate.add(kept, added)
        return self.ogate_cy.mul(out, torch.tanh(cy)), cy

    def initialize_hidden(self, batch_size: int, is_quantized: bool = False) -> tuple[Tensor, Tensor]:
        """Return the initial hidden and cell state: zeros."""
        h, c = torch.zeros((batch_size, self.hidden_size)), torch.zeros((batch_size, self.hidden_size))
        if is_quantized:
            h = torch.quantize_per_tensor(h, *self.initial_hidden_state_qparams, dtype=self.hidden_state_dtype)
            c = torch.quantize_per_tensor(c, *self.initial_cell_state_qparams, dtype=self.cell_state_dtype)
        return h, c

    def _get_name(self) -> str:
        return "QuantizableLSTMCell"

    @classmethod
    def from_params(
        cls, wi: Tensor, wh: Tensor, bi: Tensor | None = None, bh: Tensor | None = None, split_gates: bool = False
    ) -> LSTMCell:
        """Make a cell with the weights and biases of a layer of an nn.LSTM."""
        if (bi is None) != (bh is None):
            raise AssertionError("bi and bh must both be None or both have values")
        cell = cls(wi.shape[1], wh.shape[1], bias=bi is not None, split_gates=split_gates)
        for weight, bias, layers in ((wi, bi, cell.igates), (wh, bh, cell.hgates)):
            linear = list(layers.values()) if split_gates else [layers]
            parts = weight.chunk(4, dim=0) if split_gates else [weight]
            biases: Any = [None] * 4 if bias is None else bias.chunk(4, dim=0) if split_gates else [bias]
            for layer, w, b in zip(linear, parts, biases):
                layer.weight = nn.Parameter(w)
                if b is not None:
                    layer.bias = nn.Parameter(b)
        return cell

    @classmethod
    def from_float(cls, other: Any, use_precomputed_fake_quant: bool = False, split_gates: bool = False) -> LSTMCell:
        """Make a quantizable cell from an nn.LSTMCell."""
        if type(other) is not cls._FLOAT_MODULE:
            raise AssertionError(f"Expected module type {cls._FLOAT_MODULE}, got {type(other)}")
        if not hasattr(other, "qconfig"):
            raise AssertionError("The float module must have 'qconfig'")
        made = cls.from_params(other.weight_ih, other.weight_hh, other.bias_ih, other.bias_hh, split_gates=split_gates)
        made.qconfig = made.igates.qconfig = made.hgates.qconfig = other.qconfig
        if split_gates:
            for layer in (*made.igates.values(), *made.hgates.values()):
                layer.qconfig = other.qconfig
        return made


class _LSTMSingleLayer(nn.Module):
    """A layer of an LSTM in one direction. The arguments are those of its cell."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.cell = LSTMCell(*args, **kwargs)

    def forward(self, x: Tensor, hidden: Any = None) -> Any:
        results = []
        for i in range(x.shape[0]):
            hidden = self.cell(x[i], hidden)
            results.append(hidden[0])
        return torch.stack(results, 0), hidden

    @classmethod
    def from_params(cls, *args: Any, **kwargs: Any) -> _LSTMSingleLayer:
        cell = LSTMCell.from_params(*args, **kwargs)
        layer = cls(cell.input_size, cell.hidden_size, cell.bias, split_gates=cell.split_gates)
        layer.cell = cell
        return layer


class _LSTMLayer(nn.Module):
    """A layer of an LSTM, in one or both directions."""

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        bias: bool = True,
        batch_first: bool = False,
        bidirectional: bool = False,
        *place: Any,
        **options: Any,
    ) -> None:
        super().__init__()
        self.batch_first, self.bidirectional = batch_first, bidirectional
        self.layer_fw = _LSTMSingleLayer(input_dim, hidden_dim, bias, *place, **options)
        if self.bidirectional:
            self.layer_bw = _LSTMSingleLayer(input_dim, hidden_dim, bias, *place, **options)

    def forward(self, x: Tensor, hidden: Any = None) -> Any:
        if self.batch_first:
            x = x.transpose(0, 1)
        hx: Any
        cx: Any
        hx, cx = (None, None) if hidden is None else hidden
        if not self.bidirectional:
            result, (h, c) = self.layer_fw(x, None if hx is None else (hx, cx))
        else:
            forward, backward = (None, None) if hx is None else ((hx[0], cx[0]), (hx[1], cx[1]))
            result_fw, state_fw = self.layer_fw(x, forward)
            result_bw, state_bw = self.layer_bw(x.flip(0), backward)
            result = torch.cat([result_fw, result_bw.flip(0)], result_fw.dim() - 1)
            h, c = (torch.stack([state_fw[i], state_bw[i]], 0) for i in range(2))
        if self.batch_first:
            result = result.transpose(0, 1)
        return result, (h, c)

    @classmethod
    def from_float(cls, other: Any, layer_idx: int = 0, qconfig: Any = None, **kwargs: Any) -> _LSTMLayer:
        """Make layer number `layer_idx` of an nn.LSTM quantizable."""
        if not hasattr(other, "qconfig") and qconfig is None:
            raise AssertionError("other must have qconfig or qconfig must be provided")
        names = ("input_size", "hidden_size", "bias", "batch_first", "bidirectional")
        split_gates = kwargs.get("split_gates", False)
        layer = cls(*(kwargs.get(name, getattr(other, name)) for name in names), split_gates=split_gates)
        layer.qconfig = getattr(other, "qconfig", qconfig)
        directions = {"layer_fw": "", "layer_bw": "_reverse"} if other.bidirectional else {"layer_fw": ""}
        for name, suffix in directions.items():
            parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            tensors = [getattr(other, f"{part}_l{layer_idx}{suffix}", None) for part in parts]
            setattr(layer, name, _LSTMSingleLayer.from_params(*tensors, split_gates=split_gates))
        return layer


class LSTM(nn.Module):
    """nn.LSTM built from modules that can be observed."""

    _FLOAT_MODULE = nn.LSTM

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        split_gates: bool = False,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.training = False
        if not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1 or isinstance(dropout, bool):
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if dropout > 0:
            warnings.warn(
                "dropout option for quantizable LSTM is ignored. "
                "If you are training, please, use nn.LSTM version followed by `prepare` step.",
                stacklevel=2,
            )
            if num_layers == 1:
                warnings.warn(
                    "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
                    f"greater than 1, but got dropout={dropout} and num_layers={num_layers}",
                    stacklevel=2,
                )
        self.layers = nn.ModuleList(
            _LSTMLayer(inputs, hidden_size, bias, False, bidirectional, device, dtype, split_gates=split_gates)
            for inputs in [input_size, *[hidden_size] * (num_layers - 1)]
        )

    def forward(self, x: Tensor, hidden: Any = None) -> Any:
        if self.batch_first:
            x = x.transpose(0, 1)
        batch, directions = x.size(1), 2 if self.bidirectional else 1
        if hidden is None:
            zeros = torch.zeros(directions, batch, self.hidden_size, dtype=torch.float, device=x.device).squeeze(0)
            if x.is_quantized:
                zeros = torch.quantize_per_tensor(zeros, scale=1.0, zero_point=0, dtype=x.dtype)
            states = [(zeros, zeros)] * self.num_layers
        elif isinstance(hidden[0], Tensor):
            shape = (self.num_layers, directions, batch, self.hidden_size)
            hx, cx = hidden[0].reshape(shape), hidden[1].reshape(shape)
            states = [(hx[i].squeeze(0), cx[i].squeeze(0)) for i in range(self.num_layers)]
        else:
            states = hidden
        lasts = []
        for layer, state in zip(self.layers, states):
            x, last = layer(x, state)
            lasts.append(last)
        h, c = (torch.stack([last[i] for last in lasts]) for i in range(2))
        if self.batch_first:
            x = x.transpose(0, 1)
        return x, (h.reshape(-1, h.shape[-2], h.shape[-1]), c.reshape(-1, c.shape[-2], c.shape[-1]))

    def _get_name(self) -> str:
        return "QuantizableLSTM"

    @classmethod
    def from_float(cls, other: Any, qconfig: Any = None, split_gates: bool = False) -> Any:
        """Make an observed, quantizable copy of an nn.LSTM."""
        quantization = naming.above("ao.quantization")  # which swaps modules for this one

        if not isinstance(other, cls._FLOAT_MODULE):
            raise AssertionError(f"Expected module type {cls._FLOAT_MODULE}, got {type(other)}")
        if not hasattr(other, "qconfig") and not qconfig:
            raise AssertionError("other must have qconfig or qconfig must be provided")
        observed: Any = cls(
            other.input_size, other.hidden_size, other.num_layers, other.bias, other.batch_first, other.dropout,
            other.bidirectional, split_gates=split_gates,
        )  # fmt: skip
        observed.qconfig = getattr(other, "qconfig", qconfig)
        for i in range(other.num_layers):
            observed.layers[i] = _LSTMLayer.from_float(other, i, qconfig, batch_first=False, split_gates=split_gates)
        if other.training:
            return quantization.prepare_qat(observed.train(), inplace=True)
        return quantization.prepare(observed.eval(), inplace=True)

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        raise NotImplementedError(
            "It looks like you are trying to convert a non-quantizable LSTM module. "
            "Please, see the examples on quantizable LSTMs."
        )
