"""Recurrent layers with quantized weights: products of dynamically quantized inputs, and gates in float32."""

from __future__ import annotations

from typing import Any, ClassVar

from ...backends.cpu import heavy
from ...core import dtype as dt
from ...core.tensor import Tensor, empty
from ..machinery.declare import composite, internal
from ..machinery.memory import dense
from ..machinery.record import NewTensors
from ..nn.dropout import dropout as drop
from ..nn.rnn_layer import Weights, check_shapes, run_steps, steps_of
from ..shape.joining import cat, stack
from .linear import (
    HalfLinearPackedParams,
    LinearPackedParams,
    check_packed,
    dynamic_product,
    most_code,
    quantized_operator,
)
from .packed import NativeObject, methods

_STATE = f"(str, Tensor[], float[], int[], {LinearPackedParams.script_name()}[])"


class CellParams(NativeObject):
    """The packed weights of one layer in one direction; the biases are packed with them."""

    __torch_class__ = "rnn.CellParamsBase"
    schemas: ClassVar[Any] = methods(
        __getstate__=f"(Any self) -> {_STATE}", __setstate__=f"(Any self, {_STATE} state) -> NoneType"
    )

    def __init__(self, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None, reduce_range: bool = False):
        for packed in (w_ih, w_hh):
            check_packed(packed, LinearPackedParams, "make_quantized_cell_params_dynamic")
        self.w_ih, self.w_hh, self.b_ih, self.b_hh, self.reduce_range = w_ih, w_hh, b_ih, b_hh, reduce_range

    def product(self, out: Tensor, x: Tensor, packed: Any) -> None:
        """Compute out = x times packed weights, plus their bias."""
        if isinstance(packed, HalfLinearPackedParams):
            heavy.matmul(out, x, packed.weight.t(), packed.given_bias)
        else:
            dynamic_product(out, x, packed, most_code(self.reduce_range), False)

    def state(self) -> tuple[Any, ...]:
        """Return (kind, biases, scalars, integers, packed weights), in the form of PyTorch's files."""
        packed = [self.w_ih, self.w_hh]
        if isinstance(self.w_ih, HalfLinearPackedParams):
            return "quantized_fp16", [], [], [], packed
        return "quantized_dynamic", [self.b_ih, self.b_hh], [], [int(self.reduce_range)], packed

    def set_state(self, state: Any) -> None:
        kind, biases, _, numbers, packed = state
        if kind not in ("quantized_dynamic", "quantized_fp16"):
            raise RuntimeError(f"the file has recurrent weights of kind {kind!r}, which Flambeau does not have")
        self.__init__(*packed, *(biases or (None, None)), bool(numbers and numbers[0]))  # type: ignore[misc]


@quantized_operator()
def make_quantized_cell_params_dynamic(
    w_ih: Any, w_hh: Any, bias_ih: Any, bias_hh: Any, reduce_range: bool = False
) -> Any:
    """The packed weights of one layer in one direction."""
    return CellParams(w_ih, w_hh, bias_ih, bias_hh, reduce_range)


@quantized_operator()
def make_quantized_cell_params_fp16(w_ih: Any, w_hh: Any) -> Any:
    """The weights of one layer in one direction, rounded to float16."""
    check_packed(w_ih, HalfLinearPackedParams, "make_quantized_cell_params_fp16")
    return CellParams(w_ih, w_hh)


# -- whole sequences ---------------------------------------------------------------------------------------------------------


@internal(batching="each")
def dynamic_layer(kind: str, data: Tensor, h0: Tensor, c0: Any, cell: Any, steps: Any) -> NewTensors:
    """Run one layer in one direction over rows of `data`, time steps one after another: the outputs and the last states."""
    check_shapes(kind, data, h0, c0, Weights(cell.w_ih.weight, cell.w_hh.weight), steps)
    state = h0.shape, dt.float32, data.device
    return [((data.shape[0], h0.shape[1]), dt.float32, data.device), *[state] * (2 if kind == "lstm" else 1)]


@dynamic_layer.on("cpu")
def _(results: list[Tensor], kind: str, data: Tensor, h0: Tensor, c0: Any, cell: Any, steps: Any) -> None:
    pre = empty((data.shape[0], cell.w_ih.outputs), dt.float32)
    cell.product(pre, dense(data), cell.w_ih)
    kept = [None] * 4  # of what gradients would need
    run_steps(lambda result, h: cell.product(result, h, cell.w_hh), [*results, *kept], kind, pre, h0, c0, steps)


def _layers(
    kind: str,
    x: Tensor,
    sizes: tuple[int, ...],
    states: list[tuple[Any, ...]],
    cells: Any,
    layers: int,
    ways: int,
    dropout: float,
) -> tuple[Any, ...]:
    """Run all layers over rows of x, `sizes` of them at each time; `states` has one for each layer and direction."""
    last: list[tuple[Any, ...]] = []
    for layer in range(layers):
        outputs = []
        for way in range(ways):
            at = layer * ways + way
            out, *state = dynamic_layer(kind, x, *states[at], cells[at], steps_of(sizes, bool(way)))
            outputs.append(out)
            last.append(state)
        x = outputs[0] if ways == 1 else cat(outputs, -1)
        if dropout and layer < layers - 1:
            x = drop(x, dropout, True)
    return x, [stack([state[i] for state in last], 0) for i in range(len(last[0]))]


def _run(
    kind: str,
    x: Any,
    sizes: Any,
    hidden: list[Any],
    cells: Any,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    batch_first: bool,
) -> tuple[Any, ...]:
    if x.dtype is not dt.float32:
        raise RuntimeError(f"quantized recurrent layers take an input of dtype torch.float32, got {x.dtype}")
    ways = 2 if both else 1
    if len(cells) != layers * ways:
        raise RuntimeError(
            f"got an incorrect number of quantized RNN parameters: expected {layers * ways}, got {len(cells)}"
        )
    states = [(hidden[0][i], hidden[1][i] if kind == "lstm" else None) for i in range(layers * ways)]
    settings = (states, cells, layers, ways, dropout if train else 0.0)
    if sizes is not None:
        return _layers(kind, x, tuple(sizes.tolist()), *settings)
    if batch_first:
        x = x.transpose(0, 1)
    steps, batch = x.shape[:2]
    y, last = _layers(kind, x.reshape(steps * batch, -1), (batch,) * steps, *settings)
    y = y.view(steps, batch, -1)
    return (y.transpose(0, 1) if batch_first else y), last


@composite(method=False)
def quantized_lstm(
    input: Tensor, hx: Any, params: Any, *rest: Any, dtype: Any = None, use_dynamic: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM with packed weights: (input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first), or for
    packed sequences (data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)."""
    y, (h, c) = _called("lstm", input, hx, params, rest)
    return y, h, c


@composite(method=False)
def quantized_gru(input: Tensor, hx: Any, params: Any, *rest: Any) -> tuple[Tensor, Tensor]:
    """A GRU with packed weights; the arguments are those of `quantized_lstm`, with one hidden state."""
    y, (h,) = _called("gru", input, hx, params, rest)
    return y, h


def _called(kind: str, input: Tensor, hx: Any, params: Any, rest: tuple[Any, ...]) -> tuple[Any, ...]:
    sizes = None
    if isinstance(params, Tensor) or (isinstance(params, (list, tuple)) and isinstance(params[0], Tensor)):
        sizes, hx, params, *rest = hx, params, *rest  # type: ignore[assignment]
    _, layers, dropout, train, both, *first = rest
    hidden = [hx] if isinstance(hx, Tensor) else list(hx)
    return _run(kind, input, sizes, hidden, params, layers, dropout, train, both, bool(first and first[0]))


# -- cells -------------------------------------------------------------------------------------------------------------------


def _cell(kind: str, input: Tensor, hx: Any, w_ih: Any, w_hh: Any) -> tuple[Any, ...]:
    h, c = hx if kind == "lstm" else (hx, None)
    cell = CellParams(w_ih, w_hh, reduce_range=True)
    return tuple(dynamic_layer(kind, input, h, c, cell, steps_of((input.shape[0],), False))[1:])


@quantized_operator()
def quantized_lstm_cell_dynamic(input: Tensor, hx: Any, w_ih: Any, w_hh: Any, bias_ih: Any, bias_hh: Any) -> Any:
    """A single step of an LSTM with packed weights."""
    return _cell("lstm", input, hx, w_ih, w_hh)


@quantized_operator()
def quantized_gru_cell_dynamic(input: Tensor, hx: Tensor, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Tensor:
    """A single step of a GRU with packed weights."""
    return _cell("gru", input, hx, w_ih, w_hh)[0]


@quantized_operator()
def quantized_rnn_tanh_cell_dynamic(input: Tensor, hx: Tensor, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Tensor:
    """A single step of a plain recurrent layer with packed weights."""
    return _cell("tanh", input, hx, w_ih, w_hh)[0]


@quantized_operator()
def quantized_rnn_relu_cell_dynamic(input: Tensor, hx: Tensor, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Tensor:
    """A single step of a plain recurrent layer with packed weights."""
    return _cell("relu", input, hx, w_ih, w_hh)[0]
