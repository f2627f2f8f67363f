"""Recurrent operators: RNN, GRU, LSTM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau

from ...core.tensor import Tensor
from ...nn import functional as F  # noqa: N812
from .elementwise import OF_ONE
from .table import Call, node

_ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    **{name.lower(): lambda x, a, b, name=name: OF_ONE[name](x) for name in ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")},
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: F.leaky_relu(x, 0.01 if a is None else a),
    "thresholdedrelu": lambda x, a, b: flambeau.where(x > (1.0 if a is None else a), x, flambeau.zeros_like(x)),
    "scaledtanh": lambda x, a, b: a * OF_ONE["Tanh"](b * x),
    "hardsigmoid": lambda x, a, b: flambeau.clamp((0.2 if a is None else a) * x + (0.5 if b is None else b), 0, 1),
    "elu": lambda x, a, b: F.elu(x, 1.0 if a is None else a),
}  # fmt: skip


class _Layer:
    """Base of ONNX's recurrent layers (RNN, GRU, LSTM): directions, lengths, clipping, activations."""

    def __init__(self, call: Call, names: list[str], given: dict[str, Any], directions: int) -> None:
        words = [w.lower() for w in given.get("activations") or names * directions]
        alphas, betas = list(given.get("activation_alpha") or []), list(given.get("activation_beta") or [])
        self.functions = []
        for word in words:
            takes = word in ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
            two = word in ("affine", "scaledtanh", "hardsigmoid")
            a = alphas.pop(0) if takes and alphas else None
            b = betas.pop(0) if two and betas else None
            self.functions.append(lambda x, w=word, a=a, b=b: _ACTIVATIONS[w](x, a, b))
        self.each = len(names)
        self.clip = given.get("clip")

    def of(self, direction: int) -> list[Callable[[Tensor], Tensor]]:
        wanted: list[Any] = self.functions[direction * self.each : (direction + 1) * self.each]
        if self.clip is None:
            return wanted
        limit = self.clip

        def clipped(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
            return lambda x: function(flambeau.clamp(x, -limit, limit))

        return [clipped(f) for f in wanted]


def _run(
    x: Tensor, lengths: Any, layout: int, direction: str, count: int, states: list[Tensor],
    step: Callable[..., list[Tensor]],
) -> tuple:  # fmt: skip
    """Run the time steps in each direction; `step(direction, x_t, states)` returns the new states, the first of which is the output."""
    steps, batch = x.shape[0], x.shape[1]
    outs, lasts = [], []
    for d in range(count):
        backwards = direction == "reverse" or d == 1
        now = [s[d] for s in states]
        made: list[Tensor | None] = [None] * steps
        for t in reversed(range(steps)) if backwards else range(steps):
            new = step(d, x[t], now)
            if lengths is not None:
                live = (lengths > t).reshape(batch, 1)
                new = [flambeau.where(live, n, o) for n, o in zip(new, now)]
                made[t] = flambeau.where(live, new[0], flambeau.zeros_like(new[0]))
            else:
                made[t] = new[0]
            now = new
        outs.append(flambeau.stack(made))  # type: ignore[arg-type]  # each step has been filled in
        lasts.append(now)
    y = flambeau.stack(outs, 1)
    ends = [flambeau.stack([last[i] for last in lasts]) for i in range(len(states))]
    if layout:
        return (y.permute(2, 0, 1, 3), *(e.transpose(0, 1) for e in ends))
    return (y, *ends)


def _prepare(x: Tensor, layout: int, w: Tensor, hidden: int, *states: Any) -> tuple[Tensor, list[Tensor]]:
    x = x.transpose(0, 1) if layout else x
    zero = x.new_zeros(w.shape[0], x.shape[1], hidden)
    return x, [zero if s is None else s.transpose(0, 1) if layout else s for s in states]


def _biases(b: Any, w: Tensor, direction: int) -> tuple[Tensor, Tensor]:
    rows = w.shape[1]
    both = w.new_zeros(2 * rows) if b is None else b[direction]
    return both[:rows], both[rows:]


# Where PyTorch's gates stand in ONNX's weights.
_ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}


def _run_layer(kind: str, x: Tensor, w: Tensor, r: Tensor, b: Any, states: list[Tensor]) -> tuple:
    """Run a layer in one call of PyTorch's counterpart."""

    def turned(rows: Tensor) -> Tensor:
        n = rows.shape[0] // len(_ORDER[kind])
        return flambeau.cat([rows[i * n : (i + 1) * n] for i in _ORDER[kind]])

    params: list[Tensor] = []
    for d in range(w.shape[0]):
        biases = [] if b is None else _biases(b, w, d)
        params += [turned(part) for part in (w[d], r[d], *biases)]
    run: Any = flambeau.lstm if kind == "LSTM" else flambeau.gru
    hx = tuple(states) if kind == "LSTM" else states[0]
    out, *ends = run(x, hx, params, b is not None, 1, 0.0, False, w.shape[0] == 2, False)
    return (out.unflatten(2, (w.shape[0], -1)).transpose(1, 2), *ends)


def _is_plain(direction: str, lengths: Any, layout: int, given: dict[str, Any]) -> bool:
    """Return whether a layer uses no feature that PyTorch's recurrent layers lack."""
    return direction != "reverse" and lengths is None and not layout and not given


@node("RNN")
def rnn(
    call: Call, x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None, h0: Any = None, *, direction: str = "forward",
    hidden_size: int = 0, layout: int = 0, **given: Any,
) -> tuple:  # fmt: skip
    layer = _Layer(call, ["Tanh"], given, w.shape[0])
    x, states = _prepare(x, layout, w, r.shape[-1], h0)

    def step(d: int, x_t: Tensor, now: list[Tensor]) -> list[Tensor]:
        wb, rb = _biases(b, w, d)
        return [layer.of(d)[0](x_t @ w[d].t() + now[0] @ r[d].t() + wb + rb)]

    return _run(x, lengths, layout, direction, w.shape[0], states, step)


@node("GRU")
def gru(
    call: Call, x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None, h0: Any = None, *, direction: str = "forward",
    hidden_size: int = 0, layout: int = 0, linear_before_reset: int = 0, **given: Any,
) -> tuple:  # fmt: skip
    layer = _Layer(call, ["Sigmoid", "Tanh"], given, w.shape[0])
    x, states = _prepare(x, layout, w, r.shape[-1], h0)
    if linear_before_reset and _is_plain(direction, lengths, layout, given):
        return _run_layer("GRU", x, w, r, b, states)
    n = r.shape[-1]

    def step(d: int, x_t: Tensor, now: list[Tensor]) -> list[Tensor]:
        (h,) = now
        f, g = layer.of(d)
        wb, rb = _biases(b, w, d)
        inner = x_t @ w[d].t() + wb
        gates = inner[:, : 2 * n] + h @ r[d][: 2 * n].t() + rb[: 2 * n]
        z, reset = f(gates[:, :n]), f(gates[:, n:])
        if linear_before_reset:
            new = g(inner[:, 2 * n :] + reset * (h @ r[d][2 * n :].t() + rb[2 * n :]))
        else:
            new = g(inner[:, 2 * n :] + (reset * h) @ r[d][2 * n :].t() + rb[2 * n :])
        return [(1 - z) * new + z * h]

    return _run(x, lengths, layout, direction, w.shape[0], states, step)


@node("LSTM")
def lstm(
    call: Call, x: Tensor, w: Tensor, r: Tensor, b: Any = None, lengths: Any = None, h0: Any = None, c0: Any = None, p: Any = None, *,
    direction: str = "forward", hidden_size: int = 0, input_forget: int = 0, layout: int = 0, **given: Any,
) -> tuple:  # fmt: skip
    layer = _Layer(call, ["Sigmoid", "Tanh", "Tanh"], given, w.shape[0])
    x, states = _prepare(x, layout, w, r.shape[-1], h0, c0)
    if p is None and not input_forget and _is_plain(direction, lengths, layout, given):
        return _run_layer("LSTM", x, w, r, b, states)

    def step(d: int, x_t: Tensor, now: list[Tensor]) -> list[Tensor]:
        h, c = now
        f, g, last = layer.of(d)
        wb, rb = _biases(b, w, d)
        i, o, forget, cell = (x_t @ w[d].t() + h @ r[d].t() + wb + rb).chunk(4, 1)
        pi, po, pf = p[d].chunk(3) if p is not None else (0.0, 0.0, 0.0)
        i = f(i + pi * c)
        forget = 1 - i if input_forget else f(forget + pf * c)
        new = forget * c + i * g(cell)
        return [f(o + po * new) * last(new), new]

    return _run(x, lengths, layout, direction, w.shape[0], states, step)
