"""Recurrent layers taken apart: a step for each element of the sequence, as PyTorch's own decompositions have it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.tensor import Tensor
from ..library.aten import aten
from .composites import composite

Layer = Callable[[Tensor, Any, Sequence[Tensor], bool], tuple[Tensor, Any]]


def _steps(input: Tensor, weights: Sequence[Tensor], reverse: bool) -> Sequence[Tensor]:
    """What the input contributes to each step, for all steps at once."""
    found = aten.linear.default(input, weights[0], weights[2] if len(weights) > 2 else None)
    return aten.unbind.int(aten.flip.default(found, [0]) if reverse else found)


def _recurrent(state: Tensor, weights: Sequence[Tensor]) -> Tensor:
    return aten.linear.default(state, weights[1], weights[3] if len(weights) > 2 else None)


def _joined(outputs: list[Tensor], reverse: bool) -> Tensor:
    return aten.cat.default(list(reversed(outputs)) if reverse else outputs, 0)


def _lstm_layer(input: Tensor, state: Any, weights: Sequence[Tensor], reverse: bool) -> tuple[Tensor, Any]:
    hidden, cell = (aten.unsqueeze.default(s, 0) for s in state)
    outputs = []
    for given in _steps(input, weights, reverse):
        gates = aten.add.Tensor(_recurrent(hidden, weights), given)
        enter, forget, new, leave = aten.chunk.default(gates, 4, 2)
        enter, forget = aten.sigmoid.default(enter), aten.sigmoid.default(forget)
        new, leave = aten.tanh.default(new), aten.sigmoid.default(leave)
        cell = aten.add.Tensor(aten.mul.Tensor(forget, cell), aten.mul.Tensor(enter, new))
        hidden = aten.mul.Tensor(leave, aten.tanh.default(cell))
        if len(weights) in (3, 5):  # a projection comes last
            hidden = aten.linear.default(hidden, weights[-1])
        outputs.append(hidden)
    out = _joined(outputs, reverse)
    return out, (aten.squeeze.dim(hidden, 0), aten.squeeze.dim(cell, 0))


def _gru_layer(input: Tensor, state: Any, weights: Sequence[Tensor], reverse: bool) -> tuple[Tensor, Any]:
    first = aten.linear.default(input, weights[0], weights[2] if len(weights) > 2 else None)
    first = aten.flip.default(first, [0]) if reverse else first
    hidden = aten.unsqueeze.default(state, 0)
    outputs = []
    for given in aten.unbind.int(first):
        reset_in, update_in, new_in = aten.chunk.default(given, 3, 1)
        reset, update, new = aten.chunk.default(_recurrent(hidden, weights), 3, 2)
        reset = aten.sigmoid.default(aten.add.Tensor(reset, reset_in))
        update = aten.sigmoid.default(aten.add.Tensor(update, update_in))
        new = aten.tanh.default(aten.add.Tensor(new_in, aten.mul.Tensor(new, reset)))
        hidden = aten.add.Tensor(aten.mul.Tensor(aten.sub.Tensor(hidden, new), update), new)
        outputs.append(hidden)
    return _joined(outputs, reverse), aten.squeeze.dim(hidden, 0)


def _rnn_layer(activation: Callable) -> Layer:
    def layer(input: Tensor, state: Any, weights: Sequence[Tensor], reverse: bool) -> tuple[Tensor, Any]:
        first = aten.linear.default(input, weights[0], weights[2] if len(weights) > 2 else None)
        first = aten.flip.default(first, [0]) if reverse else first
        hidden = aten.unsqueeze.default(state, 0)
        outputs = []
        for given in aten.unbind.int(first):
            hidden = activation(aten.add.Tensor(_recurrent(hidden, weights), given))
            outputs.append(hidden)
        return _joined(outputs, reverse), aten.squeeze.dim(hidden, 0)

    return layer


def _layers(
    layer: Layer, input: Tensor, states: list[Any], params: list[Tensor], count: int, dropout: float, train: bool, both: bool, batch_first: bool
) -> tuple[Tensor, list[Any]]:  # fmt: skip
    """All layers, in one or both directions; the states after the last step."""
    if batch_first:
        input = aten.transpose.int(input, 0, 1)
    directions = 2 if both else 1
    size = len(params) // (count * directions)
    last = []
    for number in range(count):
        outputs = []
        for direction in range(directions):
            place = number * directions + direction
            out, state = layer(input, states[place], params[place * size : (place + 1) * size], bool(direction))
            outputs.append(out)
            last.append(state)
        input = outputs[0] if len(outputs) == 1 else aten.cat.default(outputs, outputs[0].dim() - 1)
        if dropout and train and number < count - 1:
            input = aten.dropout.default(input, dropout, True)
    return (aten.transpose.int(input, 0, 1) if batch_first else input), last


@composite("lstm.input")
def _lstm(
    input: Tensor, hx: list, params: list, biases: bool, count: int, dropout: float, train: bool, both: bool, batch_first: bool
) -> tuple:  # fmt: skip
    states = list(zip(aten.unbind.int(hx[0]), aten.unbind.int(hx[1])))
    out, last = _layers(_lstm_layer, input, states, params, count, dropout, train, both, batch_first)
    return out, aten.stack.default([h for h, _ in last], 0), aten.stack.default([c for _, c in last], 0)


def _plain(layer: Layer) -> Callable:
    def run(input: Tensor, hx: Tensor, params: list, biases: bool, count: int, dropout: float, train: bool, both: bool, batch_first: bool) -> tuple:  # fmt: skip
        out, last = _layers(layer, input, list(aten.unbind.int(hx)), params, count, dropout, train, both, batch_first)
        return out, aten.stack.default(last, 0)

    return run


composite("gru.input")(_plain(_gru_layer))
composite("rnn_tanh.input")(_plain(_rnn_layer(lambda x: aten.tanh.default(x))))
composite("rnn_relu.input")(_plain(_rnn_layer(lambda x: aten.relu.default(x))))
