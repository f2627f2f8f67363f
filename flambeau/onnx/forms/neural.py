"""Layers: matrix products, convolutions, batch normalisation, global pooling, a loss, sampling of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau

from ..builder import Builder, Value
from ..dtypes import NUMBER
from ..registry import aten, form
from .pointwise import broadcast


def _product_shape(a: Value, b: Value) -> Any:
    if a.shape is None or b.shape is None:
        return None
    x = (1, *a.shape) if len(a.shape) == 1 else a.shape
    y = (*b.shape, 1) if len(b.shape) == 1 else b.shape
    lead = broadcast(Value(shape=x[:-2]), Value(shape=y[:-2]))
    return [*(lead or ()), *([] if len(a.shape) == 1 else [x[-2]]), *([] if len(b.shape) == 1 else [y[-1]])]


@form(aten.linear)
def linear(g: Builder, input: Value, weight: Value, bias: Any = None) -> Value:
    if input.rank == 2 and weight.rank == 2 and bias is not None:
        shape = (input.shape[0], weight.shape[0])
        return g.op("Gemm", input, weight, bias, transB_i=1, alpha_f=1.0, beta_f=1.0).known(input.dtype, shape)
    if weight.rank == 2:
        weight = g.op("Transpose", weight, perm_i=[1, 0]).known(weight.dtype, weight.shape[::-1])
    made = g.op("MatMul", input, weight).known(input.dtype, _product_shape(input, weight))
    if bias is None:
        return made
    return g.op("Add", *((bias, made) if g.older else (made, bias))).known(made.dtype, made.shape)


@form(aten.bilinear, since=12)
def bilinear(g: Builder, input1: Value, input2: Value, weight: Value, bias: Any = None) -> Value:
    made = g.op("Einsum", input1, weight, input2, equation_s="...i,oij,...j->...o")
    made.known(input1.dtype, [*input1.shape[:-1], weight.shape[0]])
    return made if bias is None else g.op("Add", made, bias).known(made.dtype, made.shape)


@form(aten.convolution, aten._convolution)
def convolution(
    g: Builder, input: Value, weight: Value, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int, benchmark: Any = None, deterministic: Any = None, cudnn_enabled: Any = None, allow_tf32: Any = None,
) -> Value:  # fmt: skip
    spatial = (weight.rank or 3) - 2
    extra: dict[str, Any] = {
        "dilations_i": dilation,
        "group_i": groups,
        "kernel_shape_i": weight.shape[2:] if all(isinstance(n, int) for n in weight.shape[2:]) else None,
        "strides_i": stride,
    }
    extra = {
        key: value * spatial if isinstance(value, list) and len(value) == 1 else value for key, value in extra.items()
    }
    if transposed and any(output_padding):
        extra["output_padding_i"] = output_padding
    extra["pads_i"] = (padding * spatial if len(padding) == 1 else padding) * 2
    made = g.op("ConvTranspose" if transposed else "Conv", input, weight, bias, **extra)
    channels = g.arithmetic("Mul", weight.shape[1], groups) if transposed else weight.shape[0]
    return made.known(input.dtype, (input.shape[0], channels, *[None] * spatial))


@form(aten.adaptive_avg_pool1d, aten.adaptive_avg_pool2d, aten.adaptive_avg_pool3d)
def global_average(g: Builder, self: Value, output_size: Any) -> Value:
    return g.op("GlobalAveragePool", self).known(self.dtype, (*self.shape[:2], *output_size))


@form(aten.nll_loss, aten.nll_loss2d, aten.nll_loss_nd, since=12)
def nll_loss(
    g: Builder, self: Value, target: Value, weight: Any = None, reduction: int = 1, ignore_index: int = -100
) -> Value:
    x, t = (g.unsqueeze(v, [0]) for v in (self, target)) if self.rank == 1 else (self, target)
    word = ("none", "mean", "sum")[reduction]
    made = g.op("NegativeLogLikelihoodLoss", x, t, weight, reduction_s=word, ignore_index_i=ignore_index)
    made.known(self.dtype, t.shape if reduction == 0 else ())
    return g.squeeze(made, [0]) if self.rank == 1 and reduction == 0 else made


@form(aten.batch_norm, aten._native_batch_norm_legit_no_training)
def batch_norm(
    g: Builder, input: Value, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool = False, momentum: float = 0.1,
    eps: float = 1e-5, cudnn_enabled: Any = None, name: str = "",
) -> Any:  # fmt: skip
    if weight is None or bias is None:
        held = next((v for v in (weight, bias, running_mean) if v is not None and v.shape), None)
        channels = held.shape[0] if held is not None else input.shape[min(1, input.rank - 1)]
        if not isinstance(channels, int):
            raise NotImplementedError("batch_norm without weights of channels whose number is not known")
        ones, zeros = (g.constant(np.full(channels, v).tolist(), input.dtype) for v in (1.0, 0.0))
        weight, bias = weight if weight is not None else ones, bias if bias is not None else zeros
    own = training and running_mean is not None and g.opset >= 14 and g.training
    if not own and (training or running_mean is None):
        return _normalise(g, input, weight, bias, eps)
    extra = {"training_mode_i": int(own)} if g.opset >= 15 or own else {}
    made = g.op(
        "BatchNormalization", input, weight, bias, running_mean, running_var, epsilon_f=eps, momentum_f=1 - momentum,
        outputs=3 if own else 1, **extra,
    )  # fmt: skip
    made = (made[0] if own else made).known(input.dtype, input.shape)
    return (made, *[g.value(flambeau.empty(0, dtype=input.dtype))] * 2) if name.endswith("no_training") else made


def _normalise(g: Builder, x: Value, weight: Value, bias: Value, eps: float) -> Value:
    dims = [d for d in range(x.rank) if d != 1]
    off = g.op("Sub", x, g.reduce("ReduceMean", x, dims, True)).known(x.dtype, x.shape)
    square = g.op("Mul", off, off).known(x.dtype, x.shape)
    spread = g.op("Sqrt", g.op("Add", g.reduce("ReduceMean", square, dims, True), g.number(eps, x)))
    shaped = [g.reshape(value, [1, -1, *[1] * (x.rank - 2)]) for value in (weight, bias)]
    made = g.op("Add", g.op("Mul", g.op("Div", off, spread), shaped[0]), shaped[1])
    return made.known(x.dtype, x.shape)


@form(aten.multinomial)
def multinomial(g: Builder, self: Value, num_samples: Any, replacement: bool = False) -> Value:
    if not isinstance(num_samples, int) or not (replacement or num_samples == 1):
        raise NotImplementedError(f"num_samples={num_samples!r} with replacement={replacement}")
    made = g.op("Multinomial", g.op("Log", self), dtype_i=NUMBER[flambeau.int64], sample_size_i=num_samples)
    return made.known(flambeau.int64, (self.shape[0], num_samples))
