"""Recurrent layers in one direction, over all time steps: by kernels, or by differentiable operators."""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

from ...backends.cpu import heavy
from ...core.aliases import AnyFunction, Values
from ...core.graph import grad_mode
from ...core.size import make_size
from ...core.tensor import Tensor, empty, new_tensor
from ...kernels.library import rnn as kernels
from ..creation.filled import fill_raw
from ..linalg.linear import linear
from ..machinery import work
from ..machinery.aten_form import aten_parts
from ..machinery.declare import internal
from ..machinery.inplace import raw_copy
from ..machinery.memory import dense
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensors
from ..shape.joining import cat, stack
from .dropout import dropout as apply_dropout

Steps = tuple[tuple[int, int], ...]  # (first row, rows) of every time step, in the order they are computed


class Weights(NamedTuple):
    """The weights of a layer: weights and biases (or None) of all gates, for the input and for the hidden state."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Any = None
    b_hh: Any = None


def _rows(t: Tensor, start: int, count: int) -> Tensor:
    """Return a part of a packed matrix. It is taken at every step, without recording: no need for `narrow`'s checks."""
    step = t._strides[0]
    return new_tensor(
        t._storage, make_size((count, t.shape[1])), t._strides, t._offset + start * step, t.dtype, t.device, True
    )


def _first_rows(t: Tensor, count: int) -> Tensor:
    return t if count == t.shape[0] else _rows(t, 0, count)


def steps_of(batch_sizes: tuple[int, ...], reverse: bool) -> Steps:
    starts = tuple(zip(itertools.accumulate(batch_sizes, initial=0), batch_sizes))
    return starts[::-1] if reverse else starts


def check_shapes(kind: str, input: Tensor, h: Tensor, c: Any, weights: Weights, steps: Steps) -> None:
    """Check the shapes that kernels rely on: a state or a bias that is too short would be read and written past its end."""
    w_ih, w_hh, b_ih, b_hh = weights
    if input.shape[-1] != w_ih.shape[1]:
        raise RuntimeError(f"input has inconsistent input_size: got {input.shape[-1]} expected {w_ih.shape[1]}")
    sizes = [n for _, n in steps]
    hidden_size, batch = w_hh.shape[1], max(sizes, default=0)
    if sum(sizes) != input.shape[0]:
        raise RuntimeError(f"Expected {sum(sizes)} rows for the batch sizes {sizes}, but got {input.shape[0]}")
    for i, state in enumerate((h,) if c is None else (h, c)):
        if state.shape[-1] != hidden_size:
            raise RuntimeError(f"hidden{i} has inconsistent hidden_size: got {state.shape[-1]}, expected {hidden_size}")
        if batch != state.shape[0]:
            raise RuntimeError(f"Input batch size {batch} doesn't match hidden{i} batch size {state.shape[0]}")
    gates = kernels.GATES[kind]
    for name, weight in (("weight_ih", w_ih), ("weight_hh", w_hh)):
        if weight.shape[0] != gates * hidden_size:
            times = f"{gates} * hidden_size" if gates > 1 else "hidden_size"
            raise RuntimeError(f"{name} first dim must be {times} = {gates * hidden_size}, but got {weight.shape[0]}")
    for name, bias in (("b_ih", b_ih), ("b_hh", b_hh)):
        if bias is not None and tuple(bias.shape) != (gates * hidden_size,):
            raise RuntimeError(f"{name} must have {gates * hidden_size} elements, but has the shape {list(bias.shape)}")


# -- the operators ----------------------------------------------------------------------------------------------------------


def _layer_backward(
    g: Values, kind: str, data: Tensor, h0: Tensor, c0: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any, steps: Steps,
    h_before: Tensor, gates: Tensor, c_before: Tensor, cells: Tensor, needs: dict[str, bool],
) -> tuple[Any, ...]:  # fmt: skip
    if grad_mode.enabled:
        return _composed_backward(g, kind, data, h0, c0, Weights(w_ih, w_hh, b_ih, b_hh), steps)
    dout, dhn, dcn = g if len(g) == 3 else (*g, None)
    grad_pre, grad_rec, dh, *dc = rnn_layer_gates(
        dout, dhn, dcn, kind, w_hh, h_before, gates, c_before, cells, steps, h0.shape[0]
    )
    grad_rec = grad_rec if kind == "gru" else grad_pre
    return (
        grad_pre.mm(w_ih) if needs["data"] else None,
        dh,
        dc[0] if dc else None,
        grad_pre.t().mm(data) if needs["w_ih"] else None,
        grad_rec.t().mm(h_before) if needs["w_hh"] else None,
        grad_pre.sum(0) if needs["b_ih"] else None,
        grad_rec.sum(0) if needs["b_hh"] else None,
    )


def _gradient_states(kind: str, **others: Any) -> dict[str, int] | None:
    """Return the gradients carried from step to step, with their widths (see `Op.states`); None for a gru, which adds to them between steps."""
    return None if kind == "gru" else {"dh": 1, "dc": 1} if kind == "lstm" else {"dh": 1}


@internal(batching="each", flops=work.recurrent_gradients, states=_gradient_states)
def rnn_layer_gates(
    dout: Tensor | None,
    dhn: Tensor | None,
    dcn: Tensor | None,
    kind: str,
    w_hh: Tensor,
    h_before: Tensor,
    gates: Tensor,
    c_before: Tensor,
    cells: Tensor,
    steps: Steps,
    batch: int,
) -> NewTensors:
    """Back-propagate through time, from the gradients of the results to those of the input's share of the gates, of the hidden state's share
    (for a gru, else it is the same), and of the first states."""
    rows, hidden = h_before.shape
    d, where = h_before.dtype, h_before.device
    width, state = kernels.GATES[kind] * hidden, ((batch, hidden), d, where)
    second = ((rows, width) if kind == "gru" else (0,), d, where)
    return [((rows, width), d, where), second, state, *([state] if kind == "lstm" else [])]


def _laid_out(pack: AnyFunction, weight: Tensor, steps: Steps) -> Any:
    """Return a weight packed for the products of all steps."""
    sizes = {n for _, n in steps}
    return pack(weight, sizes.pop(), len(steps)) if len(sizes) == 1 else weight


def run_gates(
    multiply: AnyFunction, pack: AnyFunction, out: list[Tensor], dout: Any, dhn: Any, dcn: Any, kind: str, w_hh: Tensor, h_before: Tensor, gates: Tensor,
    c_before: Tensor, cells: Tensor, steps: Steps, batch: int,
) -> None:  # fmt: skip
    """Compute rnn_layer_gates with `multiply(result, a, b)` for matrix products; `pack(b, rows, times)` prepares b for several of them."""
    grad_pre, grad_rec, dh, *more = out
    hidden, d, where = h_before.shape[1], h_before.dtype, h_before.device
    dout = fill_raw(empty(h_before.shape, d, where), 0) if dout is None else dense(dout)
    raw_copy(dh, 0 if dhn is None else dhn)
    dc = more[0] if more else None
    if dc is not None:
        raw_copy(dc, 0 if dcn is None else dcn)
    carry = empty(dh.shape, d, where) if kind == "gru" else None
    grad_rec, weight = grad_rec if kind == "gru" else grad_pre, _laid_out(pack, dense(w_hh), steps)
    for start, n in reversed(steps):
        if kind == "lstm":
            kernels.lstm_step_backward(grad_pre, dc, dout, dh, gates, cells, c_before, start, n, hidden)
        elif kind == "gru":
            kernels.gru_step_backward(grad_pre, grad_rec, carry, dout, dh, gates, h_before, start, n, hidden)
        else:
            kernels.plain_step_backward(grad_pre, dout, dh, cells, start, n, hidden, relu=kind == "relu")
        state = _first_rows(dh, n)
        multiply(state, _rows(grad_rec, start, n), weight)
        if carry is not None:
            state.add_(_first_rows(carry, n))


rnn_layer_gates.on("cpu")(functools.partial(run_gates, heavy.matmul, heavy.packed))


@internal(
    states=lambda kind, **others: {"h": 1, "rec": kernels.GATES[kind], **({"c": 1} if kind == "lstm" else {})},
    saves=("h_before", "gates", "c_before", "cells"),
    grads={("data", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh"): _layer_backward},
    quirks=Quirks(label="RnnLayerBackward0"),
    batching="each",
    flops=work.recurrent,
)
def rnn_layer(
    kind: str,
    data: Tensor,
    h0: Tensor,
    c0: Tensor | None,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    steps: Steps,
) -> NewTensors:
    """Run a layer in one direction over rows of `data`, time steps one after another: the outputs and the last states. Saved are the states
    before each step, the gates, and the cells (without cells, another copy of the outputs, since the returned ones may be changed)."""
    check_shapes(kind, data, h0, c0, Weights(w_ih, w_hh, b_ih, b_hh), steps)
    rows, hidden = data.shape[0], h0.shape[1]
    d, where = data.dtype, data.device
    each, state, nothing = ((rows, hidden), d, where), (h0.shape, d, where), ((0,), d, where)
    gates = nothing if kernels.GATES[kind] == 1 else ((rows, 4 * hidden), d, where)
    states = [state, state] if kind == "lstm" else [state]
    return [each, *states, each, gates, each if kind == "lstm" else nothing, nothing if kind == "gru" else each]


def run_layer(
    multiply: AnyFunction, pack: AnyFunction, results: list[Tensor], kind: str, data: Tensor, h0: Tensor, c0: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any,
    steps: Steps,
) -> None:  # fmt: skip
    """Compute rnn_layer with `multiply(result, a, b, bias)` for matrix products; see `run_gates`."""
    b_ih, b_hh = (None if b is None else dense(b) for b in (b_ih, b_hh))
    pre = empty((data.shape[0], w_ih.shape[0]), data.dtype, data.device)
    multiply(pre, dense(data), dense(w_ih).t(), b_ih)
    weight = _laid_out(pack, dense(w_hh).t(), steps)
    run_steps(lambda result, h: multiply(result, h, weight, b_hh), results, kind, pre, h0, c0, steps)
    if kernels.GATES[kind] == 1:
        raw_copy(results[-1], results[0])


def run_steps(
    product: AnyFunction, results: list[Any], kind: str, pre: Tensor, h0: Tensor, c0: Any, steps: Steps
) -> None:  # fmt: skip
    """Run all steps, from the input's share of the gates: `product(result, h)` computes the hidden state's. Results as those of `rnn_layer`;
    buffers for the gradient may be None."""
    out, h, *states, h_before, gates, c_before, cells = results
    hidden = h0.shape[1]
    raw_copy(h, h0)
    if kind == "lstm":
        raw_copy(states[0], c0)
    recurrent = empty((h0.shape[0], pre.shape[1]), pre.dtype, pre.device)
    for start, n in steps:
        product(_first_rows(recurrent, n), _first_rows(h, n))
        if kind == "lstm":
            kernels.lstm_step(out, h, states[0], gates, h_before, c_before, cells, pre, recurrent, start, n, hidden)
        elif kind == "gru":
            kernels.gru_step(out, h, gates, h_before, pre, recurrent, start, n, hidden)
        else:
            kernels.plain_step(out, h, h_before, pre, recurrent, start, n, hidden, relu=kind == "relu")


rnn_layer.on("cpu")(functools.partial(run_layer, heavy.matmul, heavy.packed))


# -- the same out of differentiable operators, for second derivatives and projections -------------------------------------


def gate_share(kind: str, pre: Tensor) -> Any:
    """Return the input's share of the gates of one step; those of a gru separately."""
    return pre.chunk(3, -1) if kind == "gru" else pre


def cell_step(kind: str, pre: Any, rec: Tensor, h: Tensor, c: Any) -> tuple[Any, ...]:
    """Compute one time step of a cell: (new h, new c)."""
    if kind == "lstm":
        i, f, u, o = (rec + pre).chunk(4, -1)
        i, f, u, o = i.sigmoid(), f.sigmoid(), u.tanh(), o.sigmoid()
        c = f * c + i * u
        return o * c.tanh(), c
    if kind == "gru":
        ri, zi, ni = pre
        rh, zh, nh = rec.chunk(3, -1)
        r, z = (rh + ri).sigmoid(), (zh + zi).sigmoid()
        u = (ni + nh * r).tanh()
        return (h - u) * z + u, None
    total = rec + pre
    return (total.tanh() if kind == "tanh" else total.relu()), None


def composed_layer(
    kind: str, data: Tensor, h0: Tensor, c0: Any, weights: Weights, steps: Steps, w_hr: Any = None
) -> tuple[Any, ...]:
    """Compute rnn_layer step by step with ordinary operators."""
    pre = linear(data, weights.w_ih, weights.b_ih)
    h, c = h0, c0
    outputs: dict[int, Tensor] = {}
    for start, n in steps:
        rec = linear(h[:n], weights.w_hh, weights.b_hh)
        share = gate_share(kind, pre[start : start + n])
        new_h, new_c = cell_step(kind, share, rec, h[:n], None if c is None else c[:n])
        if w_hr is not None:
            new_h = new_h.mm(w_hr.t())
        outputs[start] = new_h
        h = _joined(new_h, h[n:])
        c = None if c is None else _joined(new_c, c[n:])
    out = cat([outputs[k] for k in sorted(outputs)], 0)
    return (out, h, c) if kind == "lstm" else (out, h)


def _unrolled_layer(kind: str, data: Tensor, state: Values, weights: list[Tensor], reverse: bool) -> tuple[Any, ...]:
    """Run a layer over (T, B, F) in the steps of PyTorch's decomposition: return the outputs, and the last states."""
    w_ih, w_hh, b_ih, b_hh = weights[:4] if len(weights) > 3 else (*weights[:2], None, None)
    if kind == "lstm":
        h, c = (s.unsqueeze(0) for s in state)
    pre: Any = linear(data, w_ih, b_ih)
    pre = pre.flip([0]) if reverse else pre
    if kind != "lstm":
        h, c = state[0].unsqueeze(0), None
    outputs = []
    for x in pre.unbind(0):
        share = gate_share(kind, x)
        h, c = cell_step(kind, share, linear(h, w_hh, b_hh), h, c)
        h = linear(h, weights[-1]) if len(weights) in (3, 5) else h
        outputs.append(h)
    return cat(outputs[::-1] if reverse else outputs, 0), [s.squeeze(0) for s in (h, c) if s is not None]


def _unrolled(
    kind: str, input: Any, hx: Any, params: list[Any], has_biases: bool, layers: int, dropout: float, train: bool, both: bool, batch_first: bool
) -> tuple[Any, ...]:  # fmt: skip
    """Run a whole network by ordinary operators, in the order in which PyTorch's decompositions call them."""
    states = list(zip(*(s.unbind(0) for s in (hx if kind == "lstm" else (hx,)))))
    data, last, per = input.transpose(0, 1) if batch_first else input, [], len(params) // len(states)
    directions = 2 if both else 1
    for layer in range(layers):
        outputs = []
        for i in range(layer * directions, (layer + 1) * directions):
            out, state = _unrolled_layer(kind, data, states[i], params[i * per : (i + 1) * per], bool(i % directions))
            outputs.append(out)
            last.append(state)
        data = outputs[0] if len(outputs) == 1 else cat(outputs, 2)
        if dropout and train and layer < layers - 1:
            data = apply_dropout(data, dropout, True)
    return (data.transpose(0, 1) if batch_first else data), *(stack(list(s), 0) for s in zip(*last))


for _kind, _name in (("lstm", "lstm"), ("gru", "gru"), ("tanh", "rnn_tanh"), ("relu", "rnn_relu")):
    aten_parts(f"{_name}.input")(lambda aten, *args, kind=_kind: _unrolled(kind, *args))


def _joined(a: Tensor, b: Tensor) -> Tensor:
    return a if b.shape[0] == 0 else cat([a, b], 0)


def _composed_backward(
    g: Values, kind: str, data: Tensor, h0: Tensor, c0: Any, weights: Weights, steps: Steps
) -> tuple[Any, ...]:
    """Back-propagate through time by differentiable operators."""
    dout, dhn, dcn = g if len(g) == 3 else (*g, None)
    w_ih, w_hh, b_ih, b_hh = weights
    pre = linear(data, w_ih, b_ih)
    h, c = h0, c0
    trail = []
    for start, n in steps:
        x, hp, cp = pre[start : start + n], h[:n], None if c is None else c[:n]
        rec = linear(hp, w_hh, b_hh)
        new_h, new_c = cell_step(kind, gate_share(kind, x), rec, hp, cp)
        trail.append((start, n, x, rec, hp, cp, new_h, new_c))
        h = _joined(new_h, h[n:])
        c = None if c is None else _joined(new_c, c[n:])
    dh = h0.new_zeros(h0.shape) if dhn is None else dhn
    dc = None if c0 is None else (c0.new_zeros(c0.shape) if dcn is None else dcn)
    grads_pre: dict[int, Tensor] = {}
    grads_rec: dict[int, Tensor] = {}
    befores: dict[int, Tensor] = {}
    for start, n, x, rec, hp, cp, new_h, new_c in reversed(trail):
        d = dh[:n] if dout is None else dh[:n] + dout[start : start + n]
        gp, gr, past, dcell = _step_backward(kind, x, rec, hp, cp, new_h, new_c, d, None if dc is None else dc[:n])
        grads_pre[start], grads_rec[start], befores[start] = gp, gr, hp
        back = gr.mm(w_hh)
        dh = _joined(back if past is None else back + past, dh[n:])
        dc = None if dc is None else _joined(dcell, dc[n:])
    order = sorted(grads_pre)
    gp, gr = cat([grads_pre[k] for k in order], 0), cat([grads_rec[k] for k in order], 0)
    before = cat([befores[k] for k in order], 0)
    return (
        gp.mm(w_ih), dh, dc, gp.t().mm(data), gr.t().mm(before),
        None if b_ih is None else gp.sum(0), None if b_hh is None else gr.sum(0),
    )  # fmt: skip


def _step_backward(
    kind: str, x: Tensor, rec: Tensor, hp: Tensor, cp: Any, new_h: Tensor, new_c: Any, d: Tensor, dc: Any
) -> tuple[Any, ...]:
    """Return (gradient of pre, gradient of rec, the part that flows directly to the previous h, gradient of the previous c)."""
    if kind == "lstm":
        i, f, u, o = (x + rec).chunk(4, -1)
        i, f, u, o, t = i.sigmoid(), f.sigmoid(), u.tanh(), o.sigmoid(), new_c.tanh()
        dcell = dc + d * o * (1 - t * t)
        parts = [dcell * u * i * (1 - i), dcell * cp * f * (1 - f), dcell * i * (1 - u * u), d * t * o * (1 - o)]
        g = cat(parts, 1)
        return g, g, None, dcell * f
    if kind == "gru":
        ri, zi, ni = x.chunk(3, -1)
        rh, zh, nh = rec.chunk(3, -1)
        r, z = (ri + rh).sigmoid(), (zi + zh).sigmoid()
        u = (ni + r * nh).tanh()
        du = d * (1 - z) * (1 - u * u)
        dr, dz = du * nh * r * (1 - r), d * (hp - u) * z * (1 - z)
        return cat([dr, dz, du], 1), cat([dr, dz, du * r], 1), d * z, None
    g = d * (1 - new_h * new_h) if kind == "tanh" else d * (new_h > 0).to(d.dtype)
    return g, g, None, None
