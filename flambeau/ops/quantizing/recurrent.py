"""Recurrent layers with quantized weights: products of inputs that are quantized as they come, and gates in float32."""

from __future__ import annotations

from typing import Any, ClassVar

from ...core import dtype as dt
from ...core.tensor import Tensor
from ..machinery.declare import composite
from ..nn.dropout import dropout as drop
from ..shape.joining import cat, stack
from .linear import HalfLinearPackedParams, LinearPackedParams, check_packed, quantized_operator, run_dynamic
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

    def of_input(self, x: Tensor) -> Tensor:
        return run_dynamic(x, self.w_ih, self.reduce_range, False, "linear_dynamic")

    def of_hidden(self, h: Tensor) -> Tensor:
        return run_dynamic(h, self.w_hh, self.reduce_range, False, "linear_dynamic")

    def state(self) -> tuple:
        """(kind, biases, scalars, whole numbers, packed weights), as PyTorch's files have it."""
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


# -- one step ----------------------------------------------------------------------------------------------------------------


def lstm_step(of_input: Tensor, state: tuple, cell: CellParams) -> tuple:
    h, c = state
    into, forget, new, out = (cell.of_hidden(h) + of_input).chunk(4, -1)
    c = forget.sigmoid() * c + into.sigmoid() * new.tanh()
    return out.sigmoid() * c.tanh(), c


def gru_step(of_input: Tensor, state: tuple, cell: CellParams) -> tuple:
    (h,) = state
    i_reset, i_update, i_new = of_input.chunk(3, -1)
    h_reset, h_update, h_new = cell.of_hidden(h).chunk(3, -1)
    reset, update = (h_reset + i_reset).sigmoid(), (h_update + i_update).sigmoid()
    new = (i_new + h_new * reset).tanh()
    return ((h - new) * update + new,)


def _plain_step(kind: str) -> Any:
    def step(of_input: Tensor, state: tuple, cell: CellParams) -> tuple:
        total = cell.of_hidden(state[0]) + of_input
        return (total.relu() if kind == "relu" else total.tanh(),)

    return step


# -- whole sequences ---------------------------------------------------------------------------------------------------------


def _line(x: Tensor, state: tuple, cell: CellParams, step: Any, backwards: bool) -> tuple[Tensor, tuple]:
    """One layer in one direction over (time, batch, features)."""
    steps = cell.of_input(x).unbind(0)
    outputs = []
    for of_input in reversed(steps) if backwards else steps:
        state = step(of_input, state, cell)
        outputs.append(state[0])
    return stack(outputs[::-1] if backwards else outputs, 0), state


def _packed_line(
    x: Tensor, sizes: list[int], state: tuple, cell: CellParams, step: Any, backwards: bool
) -> tuple[Tensor, tuple]:
    """The same over packed sequences, longest first: at each time the first `sizes[t]` of them go on."""
    parts = cell.of_input(x).split(sizes, 0)
    if backwards:
        return _packed_backwards(parts, sizes, state, cell, step)
    outputs, finished = [], []
    for of_input, size in zip(parts, sizes):
        gone = state[0].shape[0] - size
        if gone:
            finished.append(tuple(s[size:] for s in state))
            state = tuple(s[:size] for s in state)
        state = step(of_input, state, cell)
        outputs.append(state[0])
    last = [state, *reversed(finished)]
    return cat(outputs, 0), tuple(cat([part[i] for part in last], 0) for i in range(len(state)))


def _packed_backwards(parts: Any, sizes: list[int], start: tuple, cell: CellParams, step: Any) -> tuple[Tensor, tuple]:
    state = tuple(s[: sizes[-1]] for s in start)
    outputs = []
    for of_input, size in zip(reversed(parts), reversed(sizes)):
        have = state[0].shape[0]
        if size > have:
            state = tuple(cat([s, first[have:size]], 0) for s, first in zip(state, start))
        state = step(of_input, state, cell)
        outputs.append(state[0])
    return cat(outputs[::-1], 0), state


def _layers(
    x: Tensor, sizes: Any, states: list[tuple], cells: Any, step: Any, layers: int, ways: int, dropout: float
) -> tuple:
    """All layers; `states` holds one for each layer and direction."""
    last: list[tuple] = []
    for layer in range(layers):
        outputs = []
        for way in range(ways):
            at = layer * ways + way
            run = _line(x, states[at], cells[at], step, bool(way)) if sizes is None else _packed_line(x, sizes, states[at], cells[at], step, bool(way))  # fmt: skip
            outputs.append(run[0])
            last.append(run[1])
        x = outputs[0] if ways == 1 else cat(outputs, -1)
        if dropout and layer < layers - 1:
            x = drop(x, dropout, True)
    return x, [stack([state[i] for state in last], 0) for i in range(len(last[0]))]


def _run(
    x: Any,
    sizes: Any,
    hidden: list,
    cells: Any,
    step: Any,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    batch_first: bool,
) -> tuple:
    if x.dtype is not dt.float32:
        raise RuntimeError(f"quantized recurrent layers take an input of dtype torch.float32, got {x.dtype}")
    ways = 2 if both else 1
    if len(cells) != layers * ways:
        raise RuntimeError(
            f"got an incorrect number of quantized RNN parameters: expected {layers * ways}, got {len(cells)}"
        )
    if sizes is not None:
        sizes = sizes.tolist()
    elif batch_first:
        x = x.transpose(0, 1)
    states = [tuple(h[i] for h in hidden) for i in range(layers * ways)]
    y, last = _layers(x, sizes, states, cells, step, layers, ways, dropout if train else 0.0)
    return (y.transpose(0, 1) if batch_first and sizes is None else y), last


@composite(method=False)
def quantized_lstm(input: Tensor, hx: Any, params: Any, *rest: Any, **options: Any) -> Any:
    """An LSTM with packed weights: (input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first), or for
    packed sequences (data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)."""
    y, last = _called(input, hx, params, rest, lstm_step)
    return (y, *last)


@composite(method=False)
def quantized_gru(input: Tensor, hx: Any, params: Any, *rest: Any) -> Any:
    """A GRU with packed weights; the arguments are those of `quantized_lstm`, with one hidden state."""
    y, last = _called(input, hx, params, rest, gru_step)
    return (y, *last)


def _called(input: Tensor, hx: Any, params: Any, rest: tuple, step: Any) -> tuple:
    sizes = None
    if isinstance(params, Tensor) or (isinstance(params, (list, tuple)) and isinstance(params[0], Tensor)):
        sizes, hx, params, *rest = hx, params, *rest  # type: ignore[assignment]
    _, layers, dropout, train, both, *first = rest
    hidden = [hx] if isinstance(hx, Tensor) else list(hx)
    return _run(input, sizes, hidden, params, step, layers, dropout, train, both, bool(first and first[0]))


# -- cells -------------------------------------------------------------------------------------------------------------------


def _cell(input: Tensor, hx: Any, w_ih: Any, w_hh: Any, step: Any) -> tuple:
    cell = CellParams(w_ih, w_hh, reduce_range=True)
    return step(cell.of_input(input), tuple(hx) if isinstance(hx, (list, tuple)) else (hx,), cell)


@quantized_operator()
def quantized_lstm_cell_dynamic(input: Tensor, hx: Any, w_ih: Any, w_hh: Any, bias_ih: Any, bias_hh: Any) -> Any:
    """One step of an LSTM with packed weights."""
    return _cell(input, hx, w_ih, w_hh, lstm_step)


@quantized_operator()
def quantized_gru_cell_dynamic(input: Tensor, hx: Tensor, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Tensor:
    """One step of a GRU with packed weights."""
    return _cell(input, hx, w_ih, w_hh, gru_step)[0]


@quantized_operator()
def quantized_rnn_tanh_cell_dynamic(input: Tensor, hx: Tensor, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Tensor:
    """One step of a plain recurrent layer with packed weights."""
    return _cell(input, hx, w_ih, w_hh, _plain_step("tanh"))[0]


@quantized_operator()
def quantized_rnn_relu_cell_dynamic(input: Tensor, hx: Tensor, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Tensor:
    """One step of a plain recurrent layer with packed weights."""
    return _cell(input, hx, w_ih, w_hh, _plain_step("relu"))[0]
