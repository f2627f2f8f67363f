"""RNN, LSTM, GRU and their cells."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

import flambeau

from ...core.casts import casts
from ...core.overrides import refuse_real_tensors
from ...core.settings import is_scripting
from ...core.tensor import Tensor
from ...ops.creation.filled import empty, zeros
from ...ops.nn import rnn as ops
from ..parameter import Parameter
from ..utils.rnn import PackedSequence
from .module import Module
from .utils import _non_defaults

_Sequences = TypeVar("_Sequences", Tensor, PackedSequence)  # what goes in comes out
_MODES = {"LSTM": ("lstm", 4), "GRU": ("gru", 3), "RNN_TANH": ("rnn_tanh", 1), "RNN_RELU": ("rnn_relu", 1)}


def _permute(t: Tensor, permutation: Tensor | None, dim: int = 1) -> Tensor:
    return t if permutation is None else t.index_select(dim, permutation)


def _rank_message(batched: bool, h: int, c: int | None = None) -> str:
    """Return the message about states with a wrong number of dimensions."""
    kind, rank = ("batched 3-D", 3) if batched else ("unbatched 2-D", 2)
    if c is None:
        return f"For {kind} input, hx should also be {rank}-D but got {h}-D tensor"
    return f"For {kind} input, hx and cx should also be {rank}-D but got ({h}-D, {c}-D) tensors"


class RNNBase(Module):
    """Base of recurrent networks: weights per layer and direction, packed input, hidden states."""

    __constants__ = [
        "mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional",
        "proj_size",
    ]  # fmt: skip
    __computed__ = ("_flat_weights",)
    _printed_name = "RNNBase"
    if TYPE_CHECKING:

        def __call__(self, input: _Sequences, hx: Any = None) -> tuple[_Sequences, Any]: ...

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional, self.proj_size = float(dropout), bidirectional, proj_size
        self._check_arguments(dropout)
        self._all_weights: list[list[str]] = []
        directions = 2 if bidirectional else 1
        width = _MODES[mode][1] * hidden_size
        real_size = proj_size if proj_size > 0 else hidden_size
        for layer in range(num_layers):
            for direction in range(directions):
                inputs = input_size if layer == 0 else real_size * directions
                shapes = self._layer_shapes(f"l{layer}" + ("_reverse" if direction else ""), width, inputs, real_size)
                self._all_weights.append(list(shapes))
                for name, shape in shapes.items():
                    setattr(self, name, Parameter(empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def _check_arguments(self, dropout: Any) -> None:
        if not isinstance(dropout, (int, float)) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
            )
        if dropout > 0 and self.num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers greater than 1,"
                f" but got dropout={dropout} and num_layers={self.num_layers}",
                stacklevel=4,
            )
        for name, kind in (("input_size", int), ("hidden_size", int), ("bias", bool), ("batch_first", bool)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(value).__name__}")
        for name in ("input_size", "hidden_size", "num_layers"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if self.proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if self.proj_size >= self.hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if self.mode not in _MODES:
            raise ValueError("Unrecognized RNN mode: " + self.mode)

    def _layer_shapes(self, layer: str, width: int, inputs: int, real_size: int) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {
            f"weight_ih_{layer}": (width, inputs),
            f"weight_hh_{layer}": (width, real_size),
        }
        if self.bias:
            shapes.update({f"bias_ih_{layer}": (width,), f"bias_hh_{layer}": (width,)})
        if self.proj_size > 0:
            shapes[f"weight_hr_{layer}"] = (self.proj_size, self.hidden_size)
        return shapes

    @property
    def all_weights(self) -> list[list[Parameter]]:
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Parameter]:
        return [getattr(self, name) for names in self._all_weights for name in names]

    def flatten_parameters(self) -> None:
        """Do nothing: weights need not be contiguous here."""

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        with flambeau.no_grad():
            for weight in self.parameters():
                weight.uniform_(-bound, bound)

    def extra_repr(self) -> str:
        usual = {
            "proj_size": 0,
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0,
            "bidirectional": False,
        }
        return f"{self.input_size}, {self.hidden_size}" + _non_defaults(self, **usual)

    # -- shapes -----------------------------------------------------------------------------------------------------------
    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        if input.dtype is not self._flat_weights[0].dtype and not casts.active:
            refuse_real_tensors([input])
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({self._flat_weights[0].dtype}). Convert input: input.to({self._flat_weights[0].dtype}), or convert model: model.to({input.dtype})"
            )
        expected = 2 if batch_sizes is not None else 3
        if input.dim() != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}"
            )

    def _state_shape(self, batch: int, size: int) -> tuple[int, int, int]:
        return self.num_layers * (2 if self.bidirectional else 1), batch, size

    def check_hidden_size(self, hx: Tensor, expected: tuple[Any, ...], msg: str = "Expected hidden size {}, got {}") -> None:  # fmt: skip
        if tuple(hx.shape) != tuple(expected):
            raise RuntimeError(msg.format(expected, list(hx.shape)))

    def _check_hidden(self, hx: Any, batch: int) -> None:
        real = self.proj_size if self.proj_size > 0 else self.hidden_size
        if self.mode == "LSTM":
            self.check_hidden_size(hx[0], self._state_shape(batch, real), "Expected hidden[0] size {}, got {}")
            self.check_hidden_size(
                hx[1], self._state_shape(batch, self.hidden_size), "Expected hidden[1] size {}, got {}"
            )
        else:
            self.check_hidden_size(hx, self._state_shape(batch, real))

    # -- running ------------------------------------------------------------------------------------------------------------
    def _add_batch_dim(self, input: Tensor) -> Tensor:
        """Return the input with a batch dimension."""
        if input.dim() != 2 and input.dim() != 3:  # noqa: PLR1714  as compiled code says it
            raise ValueError(f"{self._printed_name}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        if not is_scripting():
            refuse_real_tensors([input])
        return input if input.dim() == 3 else input.unsqueeze(0 if self.batch_first else 1)

    def _zeros(self, data: Tensor, size: int) -> Tensor:
        """Return the initial state: zeros."""
        layers = self.num_layers * (2 if self.bidirectional else 1)
        batch = data.size(0 if self.batch_first else 1)
        return zeros([layers, batch, size], dtype=data.dtype, device=data.device)

    def _run_packed(self, input: PackedSequence, hx: Any) -> Any:
        """Run the network on sequences of different lengths."""
        data, batch_sizes, sorted_indices, unsorted_indices = input
        batch = int(batch_sizes[0])
        if hx is None:
            real = self.proj_size if self.proj_size > 0 else self.hidden_size
            sizes = (real, self.hidden_size) if self.mode == "LSTM" else (real,)
            where = {"dtype": data.dtype, "device": data.device}
            states = tuple(zeros(self._state_shape(batch, n), **where) for n in sizes)
        else:
            states = hx if self.mode == "LSTM" else (hx,)
            if any(s.dim() != 3 for s in states):
                raise RuntimeError(_rank_message(True, *(s.dim() for s in states)))
            states = tuple(_permute(s, sorted_indices) for s in states)
        hx = states if self.mode == "LSTM" else states[0]
        self.check_input(data, batch_sizes)
        self._check_hidden(hx, batch)
        tail = (self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        out, *state = getattr(ops, _MODES[self.mode][0])(data, batch_sizes, hx, *tail)
        state = [_permute(s, unsorted_indices) for s in state]
        out = PackedSequence(out, batch_sizes, sorted_indices, unsorted_indices)
        return out, (tuple(state) if self.mode == "LSTM" else state[0])

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        if self.mode == "LSTM":
            return tuple(_permute(s, permutation) for s in hx)
        return _permute(hx, permutation)


class _SingleStateRNN(RNNBase):
    """A network whose hidden state is one tensor."""

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        if not is_scripting() and isinstance(input, PackedSequence):
            return self._run_packed(input, hx)
        data, batched = self._add_batch_dim(input), input.dim() == 3
        if hx is None:
            hx = self._zeros(data, self.hidden_size)
        elif hx.dim() != (3 if batched else 2):
            raise RuntimeError(_rank_message(batched, hx.dim()))
        elif not batched:
            hx = hx.unsqueeze(1)
        if not is_scripting():
            self.check_input(data, None)
            self._check_hidden(hx, data.shape[0 if self.batch_first else 1])
        out, state = self._network(data, hx)
        if not batched:
            out, state = out.squeeze(0 if self.batch_first else 1), state.squeeze(1)
        return out, state

    def _network(self, data: Tensor, hx: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError


class RNN(_SingleStateRNN):
    """A plain recurrent network with tanh or relu over whole sequences; returns all outputs and the last state."""

    _printed_name = "RNN"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            self.nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{self.nonlinearity}'. Select from 'tanh' or 'relu'.")
        nonlinearity = self.nonlinearity
        super().__init__(f"RNN_{nonlinearity.upper()}", *args, **kwargs)
        self.nonlinearity = nonlinearity

    def _network(self, data: Tensor, hx: Tensor) -> tuple[Tensor, Tensor]:
        if self.mode == "RNN_TANH":
            return ops.rnn_tanh(
                data, hx, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
                self.batch_first,
            )  # fmt: skip
        return ops.rnn_relu(
            data, hx, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
            self.batch_first,
        )  # fmt: skip


class LSTM(RNNBase):
    """Long short-term memory over whole sequences, in several layers and both directions if asked; returns all outputs and (h, c).

    >>> out, (h, c) = nn.LSTM(8, 16, num_layers=2)(torch.randn(5, 3, 8))
    """

    _printed_name = "LSTM"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if not is_scripting() and isinstance(input, PackedSequence):
            return self._run_packed(input, hx)
        data, batched = self._add_batch_dim(input), input.dim() == 3
        if hx is None:
            h = self._zeros(data, self.proj_size if self.proj_size > 0 else self.hidden_size)
            c = self._zeros(data, self.hidden_size)
        else:
            h, c = hx
            rank = 3 if batched else 2
            if h.dim() != rank or c.dim() != rank:
                raise RuntimeError(_rank_message(batched, h.dim(), c.dim()))
            if not batched:
                h, c = h.unsqueeze(1), c.unsqueeze(1)
        if not is_scripting():
            self.check_input(data, None)
            self._check_hidden((h, c), data.shape[0 if self.batch_first else 1])
        out, h, c = ops.lstm(
            data, [h, c], self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
            self.batch_first,
        )  # fmt: skip
        if not batched:
            out, h, c = out.squeeze(0 if self.batch_first else 1), h.squeeze(1), c.squeeze(1)
        return out, (h, c)


class GRU(_SingleStateRNN):
    """Gated recurrent units over whole sequences, in several layers and both directions if asked; returns all outputs and the last state."""

    _printed_name = "GRU"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)

    def _network(self, data: Tensor, hx: Tensor) -> tuple[Tensor, Tensor]:
        return ops.gru(
            data, hx, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
            self.batch_first,
        )  # fmt: skip


class RNNCellBase(Module):
    """Base of RNNCell, LSTMCell and GRUCell: their parameters and initialisation."""

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        width = num_chunks * hidden_size
        shapes = {
            "weight_ih": (width, input_size),
            "weight_hh": (width, hidden_size),
            "bias_ih": (width,),
            "bias_hh": (width,),
        }
        for name, shape in shapes.items():
            wanted = bias or name.startswith("weight")
            self.register_parameter(name, Parameter(empty(shape, device=device, dtype=dtype)) if wanted else None)
        self.reset_parameters()

    def extra_repr(self) -> str:
        usual = {"bias": True, "nonlinearity": "tanh"} if hasattr(self, "nonlinearity") else {"bias": True}
        return f"{self.input_size}, {self.hidden_size}" + _non_defaults(self, **usual)

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        with flambeau.no_grad():
            for weight in self.parameters():
                weight.uniform_(-bound, bound)

    def _check(self, input: Tensor, states: tuple) -> None:
        """Raise ValueError unless input and states have one or two dimensions."""
        if input.dim() not in (1, 2):
            raise ValueError(f"{type(self).__name__}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        for i, s in enumerate(states):
            if s is not None and s.dim() not in (1, 2):
                which = f"hx[{i}]" if len(states) > 1 else "hidden"
                raise ValueError(f"{type(self).__name__}: Expected {which} to be 1D or 2D, got {s.dim()}D instead")

    def _add_batch_dim(self, input: Tensor, hx: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return input and state, each with a batch dimension; zeros if no state is given."""
        if not is_scripting():
            self._check(input, (hx,))
        x = input if input.dim() == 2 else input.unsqueeze(0)
        if hx is None:
            return x, x.new_zeros(x.size(0), self.hidden_size)
        return x, hx if input.dim() == 2 else hx.unsqueeze(0)


class RNNCell(RNNCellBase):
    """A single step of a plain recurrent network: takes an input and the state before it, and returns the new state."""

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity != "tanh" and self.nonlinearity != "relu":  # noqa: PLR1714
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        x, h = self._add_batch_dim(input, hx)
        if self.nonlinearity == "tanh":
            h = ops.rnn_tanh_cell(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        else:
            h = ops.rnn_relu_cell(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return h if input.dim() == 2 else h.squeeze(0)


class LSTMCell(RNNCellBase):
    """A single step of an LSTM: takes an input and the state (h, c) before it, and returns the new one."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        if not is_scripting():
            self._check(input, (None, None) if hx is None else tuple(hx))
        batched = input.dim() == 2
        x = input if batched else input.unsqueeze(0)
        if hx is None:
            h = c = x.new_zeros(x.size(0), self.hidden_size)
        else:
            h, c = hx
            if not batched:
                h, c = h.unsqueeze(0), c.unsqueeze(0)
        h, c = ops.lstm_cell(x, [h, c], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return (h, c) if batched else (h.squeeze(0), c.squeeze(0))


class GRUCell(RNNCellBase):
    """A single step of a GRU: takes an input and the state before it, and returns the new state."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        x, h = self._add_batch_dim(input, hx)
        h = ops.gru_cell(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return h if input.dim() == 2 else h.squeeze(0)
