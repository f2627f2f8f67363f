"""Recurrent layers: LSTM, GRU and plain RNN over whole sequences, packed or not, and their single-step cells.

A layer in one direction is one operator: the input's share of all gates is one matrix product over all time steps, each
step adds the hidden state's share and runs one fused kernel, and the weights' gradients are again one product over all
steps."""

from __future__ import annotations

import functools
from typing import Any

from ...core.aliases import AnyFunction
from ...core.dtype import uint8
from ...core.graph import grad_mode
from ...core.tensor import Tensor
from ...kernels.library.rnn import GATES
from ..linalg.linear import linear
from ..machinery.declare import composite, internal
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensors
from ..shape.joining import cat, stack
from .dropout import dropout as apply_dropout
from .rnn_layer import Weights, cell_step, check_shapes, composed_layer, gate_share, rnn_layer, steps_of

# -- whole networks ---------------------------------------------------------------------------------------------------------

# Devices whose library computes all layers at once: (kind, data, h0, sizes, layers, both, biased, training) -> bytes that it keeps for
# the backward computation, or None if it has no such network.
fused_networks: dict[str, AnyFunction] = {}


def _network_backward(
    g: tuple[Any, ...], kind: str, data: Tensor, h0: Tensor, c0: Any, weights: Tensor, sizes: tuple[int, ...], layers: int, both: bool, biased: bool,
    out: list[Tensor], reserve: Tensor,
) -> tuple[Any, ...]:  # fmt: skip
    if grad_mode.enabled:
        raise NotImplementedError(
            "the derivative for '_cudnn_rnn_backward' is not implemented. Double backwards is not supported for CuDNN RNNs due to"
            " limitations in the CuDNN API. To run double backwards, please disable the CuDNN backend temporarily while running the"
            " forward pass of your RNN. For example: \nwith torch.backends.cudnn.flags(enabled=False):\n    output = model(inputs)"
        )
    dout, dhn, dcn = g if len(g) == 3 else (*g, None)
    dx, dh, *dc, dw = rnn_network_grads(
        dout, dhn, dcn, kind, data, h0, c0, weights, out[0], reserve, sizes, layers, both, biased
    )
    return dx, dh, dc[0] if dc else None, dw


@internal(
    saves=("reserve",),
    grads={("data", "h0", "c0", "weights"): _network_backward},
    quirks=Quirks(label="CudnnRnnBackward0"),
    batching="each",
)
def rnn_network(
    kind: str,
    data: Tensor,
    h0: Tensor,
    c0: Tensor | None,
    weights: Tensor,
    sizes: tuple[int, ...],
    layers: int,
    both: bool,
    biased: bool,
    kept: int,
) -> NewTensors:
    """All layers and directions over rows of `data`, `sizes` of them at each time step; weights are one block: the matrices, then the
    biases."""
    d, where, state = data.dtype, data.device, (h0.shape, data.dtype, data.device)
    out = ((data.shape[0], h0.shape[2] * (2 if both else 1)), d, where)
    return [out, state, *([state] if kind == "lstm" else []), ((kept,), uint8, where)]


def _network_grads_layout(
    dout: Any, dhn: Any, dcn: Any, kind: str, data: Tensor, h0: Tensor, c0: Any, weights: Tensor, *settings: Any
) -> list[Any]:
    return [(t.shape, t.dtype, t.device) for t in (data, h0, *([h0] if kind == "lstm" else []), weights)]


@internal(layout=_network_grads_layout, batching="each")
def rnn_network_grads(
    dout: Tensor | None,
    dhn: Tensor | None,
    dcn: Tensor | None,
    kind: str,
    data: Tensor,
    h0: Tensor,
    c0: Tensor | None,
    weights: Tensor,
    out: Tensor,
    reserve: Tensor,
    sizes: tuple[int, ...],
    layers: int,
    both: bool,
    biased: bool,
) -> tuple[Any, ...]:
    """The gradients of `rnn_network` with respect to data, first states and weights."""


def _fitting(
    kind: str, data: Tensor, h0: Tensor, c0: Any, params: Any, sizes: tuple[int, ...], settings: tuple[Any, ...]
) -> bool:
    """Return whether these are the tensors of such a network, whose shapes libraries do not check."""
    has_biases, layers, _, _, both = settings
    directions, hidden, per = 2 if both else 1, h0.shape[2], 4 if has_biases else 2
    if len(params) != layers * directions * per or any(
        t.dtype is not data.dtype or t.device is not data.device for t in (h0, *params)
    ):
        return False
    for i, p in enumerate(params):
        width = hidden if i % per == 1 else data.shape[1] if i < per * directions else hidden * directions
        if tuple(p.shape) != ((GATES[kind] * hidden,) if i % per > 1 else (GATES[kind] * hidden, width)):
            return False
    states = (layers * directions, sizes[0] if sizes else 0, hidden)
    return (
        all(tuple(t.shape) == states for t in (h0, *(() if c0 is None else (c0,))))
        and 0 not in (*states, *data.shape)
        and sum(sizes) == data.shape[0]
        and list(sizes) == sorted(sizes, reverse=True)
    )


def _run_fused(
    kind: str, data: Tensor, sizes: tuple[int, ...], h0: Tensor, c0: Any, settings: tuple[Any, ...]
) -> tuple[Tensor, Tensor, Any] | None:
    """Run the whole network by the device's library; return None if it has none for this."""
    params, has_biases, layers, dropout, train, both = settings
    find = fused_networks.get(data.device.type)
    if find is None or (dropout > 0 and train and layers > 1):
        return None
    if not _fitting(kind, data, h0, c0, params, sizes, (has_biases, layers, dropout, train, both)):
        return None
    trains = grad_mode.enabled and any(t.requires_grad for t in (data, h0, *params, *(() if c0 is None else (c0,))))
    kept = find(kind, data, h0, sizes, layers, bool(both), bool(has_biases), trains)
    if kept is None:
        return None
    per = 4 if has_biases else 2
    order = [p for i, p in enumerate(params) if i % per < 2] + [p for i, p in enumerate(params) if i % per > 1]
    weights = cat([p.reshape(-1) for p in order], 0)
    out, h, *c = rnn_network(kind, data, h0, c0, weights, sizes, layers, bool(both), bool(has_biases), kept)
    return out, h, c[0] if c else None


def _run_stack(
    kind: str, data: Tensor, sizes: tuple[int, ...], h0: Tensor, c0: Any, settings: tuple[Any, ...], composed: bool
) -> tuple[Tensor, Tensor, Any]:
    """Run all layers and directions over packed rows: (output rows, h_n, c_n). `composed`: by ordinary operators."""
    params, has_biases, num_layers, dropout, train, bidirectional = settings
    projected = c0 is not None and h0.shape[2] != c0.shape[2]
    if fused_networks and not composed and not projected:
        found = _run_fused(kind, data, sizes, h0, c0, settings)
        if found is not None:
            return found
    orders = [steps_of(sizes, reverse) for reverse in ((False, True) if bidirectional else (False,))]
    per = (4 if has_biases else 2) + projected
    final_h: list[Tensor] = []
    final_c: list[Tensor] = []
    for layer in range(num_layers):
        outputs = []
        for direction, steps in enumerate(orders):
            index = layer * len(orders) + direction
            w = list(params[index * per : (index + 1) * per])
            w_hr = w.pop() if projected else None
            weights, c = Weights(*w), None if c0 is None else c0[index]
            if composed or projected:
                result = composed_layer(kind, data, h0[index], c, weights, steps, w_hr)
            else:
                result = rnn_layer(kind, data, h0[index], c, *weights, steps)
            outputs.append(result[0])
            final_h.append(result[1])
            final_c += result[2:]
        data = outputs[0] if len(outputs) == 1 else cat(outputs, 1)
        if dropout > 0 and train and layer < num_layers - 1:
            data = apply_dropout(data, dropout, True)
    return data, stack(final_h, 0), stack(final_c, 0) if final_c else None


def _sequence(input: Tensor, batch_first: bool) -> tuple[Tensor, tuple[int, ...]]:
    """Return (rows, sizes) of a dense (T, B, F) input."""
    x = input.transpose(0, 1) if batch_first else input
    t, b, f = x.shape
    return x.reshape(t * b, f), (b,) * t


def _network(kind: str, args: tuple[Any, ...], composed: bool = False) -> tuple[Any, ...]:
    """Run a network in the two call forms of torch.lstm and its relatives: dense, or packed with batch sizes."""
    if len(args) != 9:
        raise TypeError(
            f"{kind}() takes (input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first) or"
            f" (data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional), but got {len(args)}"
            " arguments"
        )
    if isinstance(args[1], Tensor) and isinstance(args[3], (tuple, list)):  # data, batch_sizes, hx, params, ...
        data, batch_sizes, hx, *settings = args
        sizes = tuple(int(n) for n in batch_sizes.tolist())
        shape, batch_first = None, False
    else:
        input, hx, *settings, batch_first = args
        data, sizes = _sequence(input, batch_first)
        shape = (len(sizes), sizes[0] if sizes else 0)
    h0, c0 = (hx[0], hx[1]) if kind == "lstm" else (hx, None)
    out, hn, cn = _run_stack(kind, data, sizes, h0, c0, tuple(settings), composed)
    if shape is not None:
        out = out.reshape(*shape, out.shape[-1])
        out = out.transpose(0, 1) if batch_first else out
    return (out, hn, cn) if kind == "lstm" else (out, hn)


def _autocast_lstm(run: AnyFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, AnyFunction]:
    """Choose how an lstm runs under autocast: as a whole in the lower precision; packed or projected, step by step."""
    packed = isinstance(args[1], Tensor)
    h, c = args[2] if packed else args[1]
    if packed or h.shape[-1] != c.shape[-1]:
        return "parts", functools.partial(composed_network, "lstm")
    return "lower", run


def _autocast_steps(kind: str, cell: bool = False) -> AnyFunction:
    """Choose the products of every step in the lower precision, the gates in what follows from the state's dtype."""
    return lambda run, args, kwargs: ("parts", functools.partial(composed_cell if cell else composed_network, kind))


@composite(method=False, autocast=_autocast_lstm, autocast_cuda="lower")
def lstm(*args: Any) -> tuple[Tensor, ...]:
    """lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first): long short-term memory.
    Packed: `lstm(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)`."""
    return _network("lstm", args)


@composite(method=False, autocast=_autocast_steps("gru"), autocast_cuda="lower")
def gru(*args: Any) -> tuple[Tensor, ...]:
    """gru(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first): gated recurrent units, as `lstm` with
    one hidden state."""
    return _network("gru", args)


@composite(method=False, autocast=_autocast_steps("tanh"), autocast_cuda="lower")
def rnn_tanh(*args: Any) -> tuple[Tensor, ...]:
    """rnn_tanh(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first): a plain recurrent network."""
    return _network("tanh", args)


@composite(method=False, autocast=_autocast_steps("relu"), autocast_cuda="lower")
def rnn_relu(*args: Any) -> tuple[Tensor, ...]:
    """rnn_relu(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first): a plain recurrent network."""
    return _network("relu", args)


def composed_network(kind: str, *args: Any) -> tuple[Any, ...]:
    """Run lstm and its relatives by ordinary operators, each of which may choose its precision."""
    return _network(kind, args, composed=True)


def composed_cell(kind: str, input: Tensor, hx: Any, *weights: Any, **named: Any) -> Any:
    """Compute one step of a recurrent cell (lstm_cell and its relatives) with ordinary operators."""
    h, c = hx if kind == "lstm" else (hx, None)
    w = Weights(*weights, **named)
    check_shapes(kind, input, h, c, w, steps_of((input.shape[0],), False))
    new_h, new_c = cell_step(kind, gate_share(kind, linear(input, w.w_ih, w.b_ih)), linear(h, w.w_hh, w.b_hh), h, c)
    return (new_h, new_c) if kind == "lstm" else new_h


def _cell(kind: str, input: Tensor, h: Tensor, c: Any, *weights: Any) -> tuple[Any, ...]:
    return rnn_layer(kind, input, h, c, *weights, steps_of((input.shape[0],), False))[1:]


@composite(method=False, autocast=_autocast_steps("lstm", cell=True), autocast_cuda="lower")
def lstm_cell(
    input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> tuple[Any, ...]:
    """A single LSTM step: (h, c)."""
    return _cell("lstm", input, hx[0], hx[1], w_ih, w_hh, b_ih, b_hh)


@composite(method=False, autocast=_autocast_steps("gru", cell=True), autocast_cuda="lower")
def gru_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    """A single GRU step."""
    return _cell("gru", input, hx, None, w_ih, w_hh, b_ih, b_hh)[0]


@composite(method=False, autocast=_autocast_steps("tanh", cell=True), autocast_cuda="lower")
def rnn_tanh_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    """A single step of a plain recurrent network with tanh."""
    return _cell("tanh", input, hx, None, w_ih, w_hh, b_ih, b_hh)[0]


@composite(method=False, autocast=_autocast_steps("relu", cell=True), autocast_cuda="lower")
def rnn_relu_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    """A single step of a plain recurrent network with relu."""
    return _cell("relu", input, hx, None, w_ih, w_hh, b_ih, b_hh)[0]
