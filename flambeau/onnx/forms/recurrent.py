"""Recurrent networks as ONNX's own nodes, a node for each layer."""

from __future__ import annotations

from typing import Any

from ..builder import Builder, Value
from ..registry import aten, form
from .shapes import cat, permute

_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}  # where ONNX's gates stand in PyTorch's weights


def _gates(g: Builder, weight: Value, kind: str) -> Value:
    order = _ORDER[kind]
    if len(order) == 1:
        return weight
    size = weight.shape[0] // len(order)
    return cat(g, [g.slice(weight, [0], [i * size], [(i + 1) * size]) for i in order], 0)


def _layer(
    g: Builder,
    kind: str,
    x: Value,
    states: list[Value],
    weights: list[list[Value]],
    hidden: int,
    activation: str | None,
    sizes: Value | None,
) -> tuple[Value, list[Value]]:
    """One layer: x is (time, batch, features)."""
    w = cat(g, [g.unsqueeze(_gates(g, d[0], kind), [0]) for d in weights], 0)
    r = cat(g, [g.unsqueeze(_gates(g, d[1], kind), [0]) for d in weights], 0)
    b = None
    if len(weights[0]) > 2:
        b = cat(g, [g.unsqueeze(cat(g, [_gates(g, d[2], kind), _gates(g, d[3], kind)], 0), [0]) for d in weights], 0)
    extra: dict[str, Any] = {"direction_s": "bidirectional" if len(weights) == 2 else "forward"}
    if kind == "GRU":
        extra["linear_before_reset_i"] = 1
    if activation:
        extra["activations_s"] = [activation] * len(weights)
    made = g.op(kind, x, w, r, b, sizes, *states, hidden_size_i=hidden, outputs=1 + len(states), **extra)
    out = made[0].known(x.dtype, (x.shape[0], len(weights), x.shape[1], hidden))
    for value in made[1:]:
        value.known(x.dtype, (len(weights), x.shape[1], hidden))
    if len(weights) == 1:
        return g.squeeze(out, [1]), list(made[1:])
    turned = permute(g, out, [0, 2, 1, 3])
    joined = g.reshape(turned, [0, 0, -1]).known(x.dtype, (x.shape[0], x.shape[1], 2 * hidden))
    return joined, list(made[1:])


def _run(
    g: Builder, kind: str, x: Value, states: list[Value], params: list[Value], has_biases: bool, layers: int, bidirectional: bool,
    batch_first: bool, activation: str | None = None, sizes: Value | None = None,
) -> tuple[Value, ...]:  # fmt: skip
    directions = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if len(params) != each * layers * directions:
        raise NotImplementedError("recurrent networks with projections")
    unbatched = x.rank == 2
    if unbatched:
        x = g.unsqueeze(x, [1])
        states = [g.unsqueeze(s, [1]) for s in states]
    elif batch_first:
        x = permute(g, x, [1, 0, 2])
    hidden = params[1].shape[1]
    finals: list[list[Value]] = [[] for _ in states]
    for layer in range(layers):
        at = layer * directions
        weights = [params[(at + d) * each : (at + d + 1) * each] for d in range(directions)]
        mine = states if layers == 1 else [g.slice(s, [0], [at], [at + directions]) for s in states]
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


@form(aten.lstm)
def lstm(
    g: Builder, input: Any = None, hx: Any = None, params: Any = None, has_biases: bool = True, num_layers: int = 1, dropout: float = 0.0,
    train: bool = False, bidirectional: bool = False, batch_first: bool = False, data: Any = None, batch_sizes: Any = None,
) -> Any:  # fmt: skip
    if data is not None:
        raise NotImplementedError("packed sequences")
    _check(train, dropout)
    return _run(g, "LSTM", input, list(hx), list(params), has_biases, num_layers, bidirectional, batch_first)


@form(aten.gru, aten.rnn_tanh, aten.rnn_relu)
def gru(
    g: Builder, input: Any = None, hx: Any = None, params: Any = None, has_biases: bool = True, num_layers: int = 1, dropout: float = 0.0,
    train: bool = False, bidirectional: bool = False, batch_first: bool = False, data: Any = None, batch_sizes: Any = None, name: str = "",
) -> Any:  # fmt: skip
    if data is not None:
        raise NotImplementedError("packed sequences")
    _check(train, dropout)
    kind = "GRU" if name.endswith("gru") else "RNN"
    activation = {"aten::rnn_tanh": "Tanh", "aten::rnn_relu": "Relu"}.get(name)
    return _run(g, kind, input, [hx], list(params), has_biases, num_layers, bidirectional, batch_first, activation)


def _check(train: bool, dropout: float) -> None:
    if train and dropout:
        raise NotImplementedError("recurrent networks with dropout while training")


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
