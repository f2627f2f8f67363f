"""Recurrent layers on NVIDIA GPUs: whole networks by cuDNN; single layers by matrix products of cuBLASLt and one kernel for the rest of
each step."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....core.settings import cudnn_switches
from ....core.tensor import Tensor
from ....ops.creation.filled import fill_raw
from ....ops.machinery.memory import dense
from ....ops.nn.rnn import fused_networks, rnn_network, rnn_network_grads
from ....ops.nn.rnn_layer import rnn_layer, rnn_layer_gates, run_gates, run_layer
from .. import cudnn_graph, cudnn_rnn
from .matmul import product


def _multiply(out: Tensor, a: Tensor, b: Tensor, bias: Tensor | None = None) -> None:
    product("addmm_cuda", out, a, b, bias)


def _unpacked(b: Tensor, rows: int, times: int) -> Tensor:
    """Return the matrix unchanged: cuBLASLt needs no packing."""
    return b


rnn_layer.on("cuda")(partial(run_layer, _multiply, _unpacked))
rnn_layer_gates.on("cuda")(partial(run_gates, _multiply, _unpacked))


def _network(kind: str, data: Tensor, h0: Tensor, sizes: tuple[int, ...], layers: int, both: bool, biased: bool) -> Any:
    return cudnn_rnn.network(
        kind, data.dtype, data.shape[1], h0.shape[2], layers, both, biased, tuple(sizes), data.device
    )


def _kept(
    kind: str, data: Tensor, h0: Tensor, sizes: tuple[int, ...], layers: int, both: bool, biased: bool, training: bool
) -> int | None:
    """Return the number of bytes that cuDNN keeps for the backward pass; None if cuDNN is switched off or lacks the network."""
    if not cudnn_switches.enabled or data.dtype not in cudnn_graph.DATA_TYPES:
        return None
    try:
        return _network(kind, data, h0, sizes, layers, both, biased).reserve[True] if training else 0
    except cudnn_graph.Unsupported:
        return None


fused_networks["cuda"] = _kept


def _at(t: Tensor | None) -> int:
    return 0 if t is None else t.data_ptr()


@rnn_network.on("cuda")
def _(
    results: list[Tensor], kind: str, data: Tensor, h0: Tensor, c0: Any, weights: Tensor, sizes: tuple[int, ...], layers: int, both: bool,
    biased: bool, kept: int,
) -> None:  # fmt: skip
    out, h, *c, reserve = results
    x, hx, cx, w = dense(data), dense(h0), None if c0 is None else dense(c0), dense(weights)
    found = _network(kind, data, h0, sizes, layers, both, biased)
    found.forward(_at(out), _at(h), _at(c[0]) if c else 0, _at(x), _at(hx), _at(cx), _at(w), _at(reserve), kept > 0)


@rnn_network_grads.on("cuda")
def _(
    results: list[Tensor], dout: Any, dhn: Any, dcn: Any, kind: str, data: Tensor, h0: Tensor, c0: Any, weights: Tensor, out: Tensor,
    reserve: Tensor, sizes: tuple[int, ...], layers: int, both: bool, biased: bool,
) -> None:  # fmt: skip
    dx, dh, *dc, dw = results
    fill_raw(dw, 0)
    if dout is None:
        dout = fill_raw(out.new_empty(out.shape), 0)
    given: list[Any] = [None if t is None else dense(t) for t in (out, dout, dhn, dcn, data, h0, c0, weights, reserve)]
    given[-1] = given[-1].clone()  # cuDNN writes to it, and there may be a second backward pass
    found = _network(kind, data, h0, sizes, layers, both, biased)
    found.backward(_at(dx), _at(dh), _at(dc[0]) if dc else 0, _at(dw), *map(_at, given))
