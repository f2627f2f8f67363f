"""Recurrent networks as ONNX's own nodes, one node per layer."""

from __future__ import annotations

from typing import Any

import flambeau

from ..builder import Absent, Builder, Value
from ..registry import aten, form
from .shapes import cat, permute

_GATE_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}  # where ONNX's gates stand in PyTorch's weights


def _gates(g: Builder, weight: Value, kind: str) -> Value:
    order = _GATE_ORDER[kind]
    if len(order) == 1:
        return weight
    size = weight.shape[0] // len(order)
    return cat(g, [g.slice(weight, [0], [i * size], [(i + 1) * size]) for i in order], 0)


def _layer(
    g: Builder, kind: str, x: Value, states: list[Value], weights: list[list[Value]], hidden: int,
    activation: str | None, sizes: Value | None,
) -> tuple[Value, list[Value]]:  # fmt: skip
    """Add one recurrent layer, in one or both directions; x is (time, batch, features). Returns the output and the last states."""
    w = cat(g, [g.unsqueeze(_gates(g, d[0], kind), [0]) for d in weights], 0)
    r = cat(g, [g.unsqueeze(_gates(g, d[1], kind), [0]) for d in weights], 0)
    b = None
    if len(weights[0]) > 2:
        b = cat(g, [g.unsqueeze(cat(g, [_gates(g, d[2], kind), _gates(g, d[3], kind)], 0), [0]) for d in weights], 0)
    extra: dict[str, Any] = {"direction_s": "bidirectional"} if len(weights) == 2 else {}
    if kind == "GRU":
        extra["linear_before_reset_i"] = 1
    if activation:
        extra["activations_s"] = [activation] * len(weights)
    made = g.op(
        kind, x, w, r, b, sizes, *states, hidden_size_i=hidden, outputs=1 + (2 if kind == "LSTM" else 1), **extra
    )
    out = made[0].known(x.dtype, (x.shape[0], len(weights), x.shape[1], hidden))
    for value in made[1:]:
        value.known(x.dtype, (len(weights), x.shape[1], hidden))
    if len(weights) == 1:
        return g.squeeze(out, [1]), list(made[1:])
    turned = permute(g, out, [0, 2, 1, 3])
    joined = g.reshape(turned, [0, 0, -1]).known(x.dtype, (x.shape[0], x.shape[1], 2 * hidden))
    return joined, list(made[1:])


def _run(
    g: Builder, kind: str, x: Value, states: list[Value] | None, params: list[Value], has_biases: bool, layers: int, bidirectional: bool,
    batch_first: bool, activation: str | None = None, sizes: Value | None = None, count: int = 0,
) -> tuple[Value, ...]:  # fmt: skip
    directions = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if len(params) != each * layers * directions:
        raise NotImplementedError("recurrent networks with projections")
    unbatched = x.rank == 2
    if unbatched:
        x = g.unsqueeze(x, [1])
        states = [g.unsqueeze(s, [1]) for s in states or ()]
    elif batch_first:
        x = permute(g, x, [1, 0, 2])
    hidden = params[1].shape[1]
    finals: list[list[Value]] = [[] for _ in range(len(states) if states else count)]
    for layer in range(layers):
        at = layer * directions
        weights = [params[(at + d) * each : (at + d + 1) * each] for d in range(directions)]
        mine = list(states or ())
        if layers > 1:
            mine = [g.slice(s, [0], [at], [at + directions]) for s in mine]
        x, last = _layer(g, kind, x, mine, weights, hidden, activation, sizes)
        for list_, value in zip(finals, last):
            list_.append(value)
    ends = [f[0] if len(f) == 1 else cat(g, f, 0) for f in finals]
    if unbatched:
        x = g.squeeze(x, [1])
        ends = [g.squeeze(e, [1]) for e in ends]
    elif batch_first:
        x = permute(g, x, [1, 0, 2])
    return (x, *ends)


class Packed(Absent):
    """A packed sequence. ONNX has it only as the input of a recurrent layer: padded, with the lengths."""

    def __init__(self, padded: Value, lengths: Value) -> None:
        super().__init__("packed sequences can only be read by recurrent layers and pad_packed_sequence")
        self.padded, self.lengths = padded, lengths  # (time, batch, features), (batch,)


@form(aten._pack_padded_sequence)
def pack_padded_sequence(g: Builder, input: Value, lengths: Value, batch_first: bool) -> tuple[Value, Value]:
    x = permute(g, input, [1, 0, *range(2, input.rank)]) if batch_first else input
    return Packed(x, lengths), Packed(x, lengths)


@form(aten._pad_packed_sequence)
def pad_packed_sequence(
    g: Builder, data: Packed, batch_sizes: Value, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Value, Value]:
    if padding_value or total_length > 0:
        raise NotImplementedError("pad_packed_sequence with a padding_value or a total_length")
    longest = g.reduce("ReduceMax", data.lengths, None, False)
    x = g.slice(data.padded, [0], [0], [longest])
    return (permute(g, x, [1, 0, *range(2, x.rank)]) if batch_first else x), data.lengths


def _is_new_zeros(state: Value) -> bool:
    """Return whether a state is a tensor of zeros created for this call, which is ONNX's default."""
    maker = state.producer
    fill = maker.attributes.get("value") if maker is not None and maker.op_type == "ConstantOfShape" else state.constant
    return fill is not None and not fill.any()


@form(aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu)
def network(
    g: Builder, input: Any = None, hx: Any = None, params: Any = None, has_biases: bool = True, num_layers: int = 1, dropout: float = 0.0,
    train: bool = False, bidirectional: bool = False, batch_first: bool = False, data: Any = None, batch_sizes: Any = None, name: str = "",
) -> Any:  # fmt: skip
    if train and dropout:
        raise NotImplementedError("recurrent networks with dropout while training")
    kind, activation = _KINDS[name]
    states = list(hx) if isinstance(hx, list) else [hx]
    options = (list(params), has_biases, num_layers, bidirectional)
    if not isinstance(data, Packed):
        return _run(g, kind, input, states, *options, batch_first, activation)
    given = None if all(map(_is_new_zeros, states)) else states
    sizes = g.cast(data.lengths, flambeau.int32)
    out, *ends = _run(g, kind, data.padded, given, *options, False, activation, sizes, len(states))
    return Packed(out, data.lengths), *ends


_KINDS = {
    "aten::lstm": ("LSTM", None),
    "aten::gru": ("GRU", None),
    "aten::rnn_tanh": ("RNN", "Tanh"),
    "aten::rnn_relu": ("RNN", "Relu"),
}


@form(aten.lstm_cell)
def lstm_cell(
    g: Builder, input: Value, hx: list[Value], w_ih: Value, w_hh: Value, b_ih: Any = None, b_hh: Any = None
) -> Any:
    x = g.unsqueeze(input, [0])
    states = [g.unsqueeze(s, [0]) for s in hx]
    weights = [[w_ih, w_hh] if b_ih is None else [w_ih, w_hh, b_ih, b_hh]]
    _, ends = _layer(g, "LSTM", x, states, weights, w_hh.shape[1], None, None)
    return tuple(g.squeeze(e, [0]) for e in ends)


@form(aten.gru_cell, aten.rnn_tanh_cell, aten.rnn_relu_cell)
def gru_cell(
    g: Builder, input: Value, hx: Value, w_ih: Value, w_hh: Value, b_ih: Any = None, b_hh: Any = None, name: str = ""
) -> Value:
    weights = [[w_ih, w_hh] if b_ih is None else [w_ih, w_hh, b_ih, b_hh]]
    kind = "GRU" if "gru" in name else "RNN"
    activation = {"aten::rnn_tanh_cell": "Tanh", "aten::rnn_relu_cell": "Relu"}.get(name)
    _, ends = _layer(g, kind, g.unsqueeze(input, [0]), [g.unsqueeze(hx, [0])], weights, w_hh.shape[1], activation, None)
    return g.squeeze(ends[0], [0])
