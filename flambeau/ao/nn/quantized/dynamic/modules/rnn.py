"""Recurrent layers with dynamic quantization: inputs and hidden states are quantized at each step, gates are floats."""

from __future__ import annotations

import numbers
import warnings
from typing import Any, ClassVar

import flambeau as torch

from ...... import nn
from ......core.tensor import Tensor
from ......jit.marks import overload as _overload_method
from ......nn.modules.utils import _non_defaults
from ......nn.utils.rnn import PackedSequence
from ......ops.quantizing.operators import quantized as Q
from ...modules.utils import _hide_packed_params_repr
from .rnn_weights import PackedParameter, cell_weights, observer_of, pack_weight_bias, packed_weight

__all__ = [
    "GRU", "GRUCell", "LSTM", "LSTMCell", "PackedParameter", "RNNBase", "RNNCell", "RNNCellBase", "apply_permutation",
    "pack_weight_bias",
]  # fmt: skip


def apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """Deprecated: use `tensor.index_select(dim, permutation)`."""
    warnings.warn(
        "`apply_permutation` is deprecated, please use `tensor.index_select(dim, permutation)` instead",
        FutureWarning,
        stacklevel=2,
    )
    return tensor.index_select(dim, permutation)


class RNNBase(nn.Module):
    """Base of LSTM and GRU. `_GATES` is the number of gates by mode, `_STATES` that of hidden states."""

    _FLOAT_MODULE: ClassVar[Any] = nn.RNNBase
    _GATES: ClassVar[dict[str, int]] = {"LSTM": 4, "GRU": 3}
    _version = 2

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, dtype: Any = torch.qint8,
    ):  # fmt: skip
        super().__init__()
        if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers greater"
                f" than 1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=2,
            )
        if mode not in self._GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.dtype = bidirectional, dtype
        self.version: int | None = 2
        self.training = False
        self._pack(lambda rows, columns, *_: (torch.randn(rows, columns), torch.randn(rows)), None)

    def _places(self) -> Any:
        """Yield layer, input size and name suffix for each layer and direction."""
        ends = ("", "_reverse") if self.bidirectional else ("",)
        for layer in range(self.num_layers):
            for end in ends:
                yield layer, self.input_size if layer == 0 else self.hidden_size * len(ends), end

    def _pack(self, weights: Any, make_observer: Any) -> None:
        """Pack the weights and biases that `weights(rows, columns, "ih" or "hh", suffix such as "l0_reverse")` returns."""
        rows, cells = self._GATES[self.mode] * self.hidden_size, []
        for layer, inputs, end in self._places():
            parts = []
            for columns, which in ((inputs, "ih"), (self.hidden_size, "hh")):
                weight, bias = weights(rows, columns, which, f"l{layer}{end}")
                if self.dtype is torch.qint8 and make_observer is None and not weight.is_quantized:
                    weight = torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8)
                packed = pack_weight_bias(weight, bias, self.dtype) if make_observer is None else packed_weight(weight, bias, make_observer, self.dtype)  # fmt: skip
                parts.append((packed, bias))
            (ih, b_ih), (hh, b_hh) = parts
            cells.append(PackedParameter(cell_weights(ih, hh, b_ih, b_hh, self.dtype, self.version)))
        self._all_weight_values = nn.ModuleList(cells)

    def _get_name(self) -> str:
        return f"DynamicQuantized{self.mode}"

    def extra_repr(self) -> str:
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False}
        return f"{self.input_size}, {self.hidden_size}" + _non_defaults(self, **usual)

    def __repr__(self) -> str:
        return _hide_packed_params_repr(self, (PackedParameter, nn.ModuleList))

    # -- checks ------------------------------------------------------------------------------------------------------

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        expected = 2 if batch_sizes is not None else 3
        if input.dim() != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}"
            )

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        batch = int(batch_sizes[0]) if batch_sizes is not None else input.size(0 if self.batch_first else 1)
        return self.num_layers * (2 if self.bidirectional else 1), batch, self.hidden_size

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: tuple[int, int, int], msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        layers, batch, size = expected_hidden_size
        if list(hx.size()) != [layers, batch, size]:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def check_forward_args(self, input: Tensor, hidden: Tensor, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Tensor, permutation: Tensor | None) -> Tensor:
        return hx if permutation is None else hx.index_select(1, permutation)

    def _zeros(self, input: Tensor, batch: int) -> Tensor:
        shape = (self.num_layers * (2 if self.bidirectional else 1), batch, self.hidden_size)
        return torch.zeros(shape, dtype=input.dtype, device=input.device)

    # -- weights -----------------------------------------------------------------------------------------------------

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        self.version = local_metadata.get("version", None)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *lists)

    def set_weight_bias(self, weight_bias_dict: dict[str, Any]) -> None:
        def given(rows: int, columns: int, which: str, place: str) -> tuple:
            return weight_bias_dict[f"weight_{which}_{place}"], weight_bias_dict[f"bias_{which}_{place}"]

        self._pack(given, None)

    def _weight_bias(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {"weight": {}, "bias": {}}
        for held, (layer, _, end) in zip(self._all_weight_values, self._places()):
            for which, packed in (("ih", held.param.w_ih), ("hh", held.param.w_hh)):
                weight, bias = packed.unpack()
                found["weight"][f"weight_{which}_l{layer}{end}"] = weight
                found["bias"][f"bias_{which}_l{layer}{end}"] = bias
        return found

    def get_weight(self) -> dict[str, Any]:
        return self._weight_bias()["weight"]

    def get_bias(self) -> dict[str, Any]:
        return self._weight_bias()["bias"]

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Make the layer from a float one, its weights quantized by the observer of its qconfig."""
        if type(mod) not in (nn.LSTM, nn.GRU):
            raise AssertionError("nn.quantized.dynamic.RNNBase.from_float only works for nn.LSTM and nn.GRU")
        if not hasattr(mod, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined")
        if not mod.bias:
            raise AssertionError("mod.bias must be True")
        make_observer, dtype = observer_of(mod)
        kind = LSTM if mod.mode == "LSTM" else GRU
        sizes = (mod.input_size, mod.hidden_size, mod.num_layers, mod.bias, mod.batch_first)
        made = kind(*sizes, mod.dropout, mod.bidirectional, dtype)

        def given(rows: int, columns: int, which: str, place: str) -> tuple:
            return getattr(mod, f"weight_{which}_{place}"), getattr(mod, f"bias_{which}_{place}")

        made._pack(given, make_observer)
        return made

    @classmethod
    def from_reference(cls, ref_mod: Any) -> Any:
        """Make the quantized layer from a reference layer."""
        if not hasattr(ref_mod, "weight_ih_l0_dtype"):
            raise AssertionError(
                "We are assuming weight_ih_l0 exists in LSTM, may need to relax the assumption to support the use case"
            )
        sizes: tuple = (ref_mod.input_size, ref_mod.hidden_size, ref_mod.num_layers, ref_mod.bias, ref_mod.batch_first)
        make: Any = cls
        made = make(*sizes, 0.0, ref_mod.bidirectional, ref_mod.weight_ih_l0_dtype)
        made.set_weight_bias(ref_mod.get_quantized_weight_bias_dict())
        return made


class LSTM(RNNBase):
    """LSTM with 8-bit weights; inputs and results are floats."""

    _FLOAT_MODULE: ClassVar[Any] = nn.LSTM

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__("LSTM", *args, **kwargs)

    def check_forward_args(  # type: ignore[override]
        self, input: Tensor, hidden: tuple[Tensor, Tensor], batch_sizes: Tensor | None
    ) -> None:
        self.check_input(input, batch_sizes)
        expected = self.get_expected_hidden_size(input, batch_sizes)
        self.check_hidden_size(hidden[0], expected, "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(hidden[1], expected, "Expected hidden[1] size {}, got {}")

    def permute_hidden(  # type: ignore[override]
        self, hx: tuple[Tensor, Tensor], permutation: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if permutation is None:
            return hx
        return hx[0].index_select(1, permutation), hx[1].index_select(1, permutation)

    def forward_impl(
        self,
        input: Tensor,
        hx: tuple[Tensor, Tensor] | None,
        batch_sizes: Tensor | None,
        max_batch_size: int,
        sorted_indices: Tensor | None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if hx is None:
            zeros = self._zeros(input, max_batch_size)
            hx = (zeros, zeros)
        else:
            hx = self.permute_hidden(hx, sorted_indices)
        self.check_forward_args(input, hx, batch_sizes)
        cells = [m.param for m in self._all_weight_values]
        if batch_sizes is None:
            output, hidden, cell = torch.quantized_lstm(
                input, hx, cells, self.bias, self.num_layers, float(self.dropout), self.training, self.bidirectional, self.batch_first,
                dtype=self.dtype, use_dynamic=True,
            )  # fmt: skip
        else:
            output, hidden, cell = torch.quantized_lstm(
                input, batch_sizes, hx, cells, self.bias, self.num_layers, float(self.dropout), self.training, self.bidirectional,
                dtype=self.dtype, use_dynamic=True,
            )  # fmt: skip
        return output, (hidden, cell)

    def forward_tensor(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        return self.forward_impl(input, hx, None, input.size(0 if self.batch_first else 1), None)

    def forward_packed(
        self, input: PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]:
        data, sizes, order, back = input
        output, hidden = self.forward_impl(data, hx, sizes, int(sizes[0]), order)
        return PackedSequence(output, sizes, order, back), self.permute_hidden(hidden, back)

    @_overload_method
    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...

    @_overload_method  # type: ignore[no-redef]
    def forward(  # noqa: F811
        self, input: PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]: ...

    def forward(self, input, hx=None):  # type: ignore[no-redef]  # noqa: F811
        if isinstance(input, PackedSequence):
            return self.forward_packed(input, hx)
        return self.forward_tensor(input, hx)


class GRU(RNNBase):
    """GRU with 8-bit weights; inputs and results are floats."""

    _FLOAT_MODULE: ClassVar[Any] = nn.GRU

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__("GRU", *args, **kwargs)

    def forward_impl(
        self,
        input: Tensor,
        hx: Tensor | None,
        batch_sizes: Tensor | None,
        max_batch_size: int,
        sorted_indices: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        hx = self._zeros(input, max_batch_size) if hx is None else self.permute_hidden(hx, sorted_indices)
        self.check_forward_args(input, hx, batch_sizes)
        cells = [m.param for m in self._all_weight_values]
        if batch_sizes is None:
            return torch.quantized_gru(
                input, hx, cells, self.bias, self.num_layers, float(self.dropout), self.training, self.bidirectional, self.batch_first
            )  # fmt: skip
        return torch.quantized_gru(
            input, batch_sizes, hx, cells, self.bias, self.num_layers, float(self.dropout), self.training, self.bidirectional
        )  # fmt: skip

    def forward_tensor(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.forward_impl(input, hx, None, input.size(0 if self.batch_first else 1), None)

    def forward_packed(self, input: PackedSequence, hx: Tensor | None = None) -> tuple[PackedSequence, Tensor]:
        data, sizes, order, back = input
        output, hidden = self.forward_impl(data, hx, sizes, int(sizes[0]), order)
        return PackedSequence(output, sizes, order, back), self.permute_hidden(hidden, back)

    @_overload_method
    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]: ...

    @_overload_method  # type: ignore[no-redef]
    def forward(self, input: PackedSequence, hx: Tensor | None = None) -> tuple[PackedSequence, Tensor]: ...  # noqa: F811

    def forward(self, input, hx=None):  # type: ignore[no-redef]  # noqa: F811
        if isinstance(input, PackedSequence):
            return self.forward_packed(input, hx)
        return self.forward_tensor(input, hx)


class RNNCellBase(nn.Module):
    """Base class of the recurrent cells, which compute one time step."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, num_chunks: int = 4, dtype: Any = torch.qint8
    ):
        super().__init__()
        self.input_size, self.hidden_size, self.bias, self.weight_dtype = input_size, hidden_size, bias, dtype
        rows = num_chunks * hidden_size
        self.bias_ih = torch.randn(rows) if bias else None
        self.bias_hh = torch.randn(rows) if bias else None
        weights = torch.randn(rows, input_size), torch.randn(rows, hidden_size)
        if dtype is torch.qint8:
            weights = tuple(torch.quantize_per_tensor(w, 1, 0, torch.qint8) for w in weights)
        self._packed_weight_ih = pack_weight_bias(weights[0], self.bias_ih, dtype)
        self._packed_weight_hh = pack_weight_bias(weights[1], self.bias_hh, dtype)

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    extra_repr = nn.RNNCellBase.extra_repr

    def check_forward_input(self, input: Tensor) -> None:
        if input.size(1) != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.size(1)}, expected {self.input_size}")

    def check_forward_hidden(self, input: Tensor, hx: Tensor, hidden_label: str = "") -> None:
        if input.size(0) != hx.size(0):
            raise RuntimeError(
                f"Input batch size {input.size(0)} doesn't match hidden{hidden_label} batch size {hx.size(0)}"
            )
        if hx.size(1) != self.hidden_size:
            raise RuntimeError(
                f"hidden{hidden_label} has inconsistent hidden_size: got {hx.size(1)}, expected {self.hidden_size}"
            )

    def _hidden(self, input: Tensor, hx: Tensor | None, label: str = "") -> Tensor:
        """Return the hidden state of a step, zeros if none is given."""
        if hx is None:
            hx = torch.zeros(input.size(0), self.hidden_size, dtype=input.dtype, device=input.device)
        self.check_forward_hidden(input, hx, label)
        return hx

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Make the cell from a float one, its weights quantized by the observer of its qconfig."""
        kinds = {nn.LSTMCell: LSTMCell, nn.GRUCell: GRUCell, nn.RNNCell: RNNCell}
        if type(mod) not in kinds:
            raise AssertionError(
                "nn.quantized.dynamic.RNNCellBase.from_float only works for nn.LSTMCell, nn.GRUCell and nn.RNNCell"
            )
        if not hasattr(mod, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined")
        if not mod.bias:
            raise AssertionError("mod.bias must be True")
        make_observer, dtype = observer_of(mod)
        more = {"nonlinearity": mod.nonlinearity} if type(mod) is nn.RNNCell else {}
        made: Any = kinds[type(mod)](mod.input_size, mod.hidden_size, bias=mod.bias, dtype=dtype, **more)
        made._packed_weight_ih = packed_weight(mod.weight_ih, mod.bias_ih, make_observer, dtype)
        made._packed_weight_hh = packed_weight(mod.weight_hh, mod.bias_hh, make_observer, dtype)
        return made

    @classmethod
    def from_reference(cls, ref_mod: Any) -> Any:
        """Make the quantized cell from a reference cell."""
        if not hasattr(ref_mod, "weight_ih_dtype"):
            raise AssertionError(
                "We are assuming weight_ih exists in reference module, may need to relax the assumption to support the use case"
            )
        more = {"nonlinearity": ref_mod.nonlinearity} if hasattr(ref_mod, "nonlinearity") else {}
        made = cls(ref_mod.input_size, ref_mod.hidden_size, ref_mod.bias, dtype=ref_mod.weight_ih_dtype, **more)
        made.set_weight_bias(
            {
                "weight": {
                    "weight_ih": ref_mod.get_quantized_weight_ih(),
                    "weight_hh": ref_mod.get_quantized_weight_hh(),
                },
                "bias": {"bias_ih": ref_mod.bias_ih, "bias_hh": ref_mod.bias_hh},
            }
        )
        return made

    def _weight_bias(self) -> dict[str, dict[str, Any]]:
        (w_ih, b_ih), (w_hh, b_hh) = self._packed_weight_ih.unpack(), self._packed_weight_hh.unpack()
        return {"weight": {"weight_ih": w_ih, "weight_hh": w_hh}, "bias": {"bias_ih": b_ih, "bias_hh": b_hh}}

    def get_weight(self) -> dict[str, Any]:
        return self._weight_bias()["weight"]

    def get_bias(self) -> dict[str, Any]:
        return self._weight_bias()["bias"]

    def set_weight_bias(self, weight_bias_dict: dict[str, dict[str, Any]]) -> None:
        weights, biases = weight_bias_dict["weight"], weight_bias_dict["bias"]
        self._packed_weight_ih = pack_weight_bias(weights["weight_ih"], biases["bias_ih"], self.weight_dtype)
        self._packed_weight_hh = pack_weight_bias(weights["weight_hh"], biases["bias_hh"], self.weight_dtype)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "_packed_weight_ih"] = self._packed_weight_ih
        destination[prefix + "_packed_weight_hh"] = self._packed_weight_hh

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        self._packed_weight_ih = state_dict.pop(prefix + "_packed_weight_ih")
        self._packed_weight_hh = state_dict.pop(prefix + "_packed_weight_hh")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *lists)


class RNNCell(RNNCellBase):
    """Time step of a plain recurrent layer with 8-bit weights."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", dtype: Any = torch.qint8
    ):
        super().__init__(input_size, hidden_size, bias, num_chunks=1, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        self.check_forward_input(input)
        hx = self._hidden(input, hx)
        if self.nonlinearity == "tanh":
            return Q.quantized_rnn_tanh_cell_dynamic(
                input, hx, self._packed_weight_ih, self._packed_weight_hh, self.bias_ih, self.bias_hh
            )
        if self.nonlinearity == "relu":
            return Q.quantized_rnn_relu_cell_dynamic(
                input, hx, self._packed_weight_ih, self._packed_weight_hh, self.bias_ih, self.bias_hh
            )
        raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")


class LSTMCell(RNNCellBase):
    """Time step of an LSTM with 8-bit weights."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, num_chunks=4, **kwargs)  # type: ignore[misc]

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        self.check_forward_input(input)
        if hx is None:
            hidden, cell = self._hidden(input, None), self._hidden(input, None)
        else:
            hidden, cell = self._hidden(input, hx[0], "[0]"), self._hidden(input, hx[1], "[1]")
        return Q.quantized_lstm_cell_dynamic(
            input, [hidden, cell], self._packed_weight_ih, self._packed_weight_hh, self.bias_ih, self.bias_hh
        )


class GRUCell(RNNCellBase):
    """Time step of a GRU with 8-bit weights."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = torch.qint8):
        super().__init__(input_size, hidden_size, bias, num_chunks=3, dtype=dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        self.check_forward_input(input)
        hx = self._hidden(input, hx)
        return Q.quantized_gru_cell_dynamic(
            input, hx, self._packed_weight_ih, self._packed_weight_hh, self.bias_ih, self.bias_hh
        )
