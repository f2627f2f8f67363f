"""Recurrent layers on NVIDIA GPUs: matrix products by cuBLASLt, and one kernel for the rest of each step."""

from __future__ import annotations

from functools import partial

from ...core.tensor import Tensor
from ..nn.rnn import rnn_layer, rnn_layer_gates, run_gates, run_layer
from .matmul import product


def _multiply(out: Tensor, a: Tensor, b: Tensor, bias: Tensor | None = None) -> None:
    product("addmm_cuda", out, a, b, bias)


rnn_layer.on("cuda")(partial(run_layer, _multiply))
rnn_layer_gates.on("cuda")(partial(run_gates, _multiply))
