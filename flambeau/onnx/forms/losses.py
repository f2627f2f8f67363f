"""Losses."""

from __future__ import annotations

from typing import Any

import flambeau

from ..builder import Builder, Value
from ..registry import aten, form
from .neural import convolved
from .pointwise import add, clamp, div, mul, sub
from .reductions import log_softmax, mean, sum_
from .shapes import permute


def _collected(g: Builder, x: Value, reduction: int) -> Value:
    return x if reduction == 0 else mean(g, x) if reduction == 1 else sum_(g, x)


@form(aten.l1_loss)
def l1_loss(g: Builder, self: Value, target: Value, reduction: int = 1) -> Value:
    off = sub(g, self, target)
    return _collected(g, g.op("Abs", off).known(off.dtype, off.shape), reduction)


@form(aten.smooth_l1_loss, aten.huber_loss)
def smooth_l1_loss(
    g: Builder, self: Value, target: Value, reduction: int = 1, beta: float = 1.0, delta: Any = None, name: str = ""
) -> Value:
    off = sub(g, self, target)
    size = g.op("Abs", off).known(off.dtype, off.shape)
    edge = beta if delta is None else delta
    low = mul(g, mul(g, off, off), 0.5 if delta is not None else 0.5 / edge)
    high = sub(g, size, 0.5 * edge)
    if delta is not None:
        high = mul(g, high, delta)
    made = g.op("Where", g.op("Less", size, g.number(edge, size)), low, high).known(off.dtype, off.shape)
    return _collected(g, made, reduction)


@form(aten.binary_cross_entropy)
def binary_cross_entropy(g: Builder, self: Value, target: Value, weight: Any = None, reduction: int = 1) -> Value:
    logs = [clamp(g, g.op("Log", x).known(self.dtype, self.shape), -100) for x in (self, sub(g, 1, self))]
    made = add(g, mul(g, target, logs[0]), mul(g, sub(g, 1, target), logs[1]))
    made = g.op("Neg", made).known(self.dtype, self.shape)
    return _collected(g, made if weight is None else mul(g, made, weight), reduction)


@form(aten.binary_cross_entropy_with_logits)
def binary_cross_entropy_with_logits(
    g: Builder, self: Value, target: Value, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Value:
    inside = g.op("Neg", g.op("Softplus", g.op("Neg", self))).known(self.dtype, self.shape)  # log of the sigmoid
    first = mul(g, sub(g, 1, target), self)
    if pos_weight is not None:
        scale = add(g, mul(g, sub(g, pos_weight, 1), target), 1)
        inside = mul(g, inside, scale)
    made = sub(g, first, inside)
    return _collected(g, made if weight is None else mul(g, made, weight), reduction)


def _reduction(number: int) -> str:
    return ("none", "mean", "sum")[number]


@form(aten.nll_loss, aten.nll_loss2d, aten.nll_loss_nd, since=12)
def nll_loss(
    g: Builder, self: Value, target: Value, weight: Any = None, reduction: int = 1, ignore_index: int = -100
) -> Value:
    x, t = (g.unsqueeze(v, [0]) for v in (self, target)) if self.rank == 1 else (self, target)
    made = g.op(
        "NegativeLogLikelihoodLoss", x, t, weight, reduction_s=_reduction(reduction), ignore_index_i=ignore_index
    )
    made.known(self.dtype, t.shape if reduction == 0 else ())
    return g.squeeze(made, [0]) if self.rank == 1 and reduction == 0 else made


def _by_class(g: Builder, weight: Value, rank: int) -> Value:
    return weight if rank == 1 else g.unsqueeze(weight, [0, *range(2, rank)])


def _soft_cross_entropy(g: Builder, x: Value, target: Value, weight: Any, reduction: int, smoothing: float) -> Value:
    """The target says how probable each class is."""
    dim = 1 if x.rank > 1 else 0
    if smoothing:
        target = add(g, mul(g, target, 1 - smoothing), smoothing / x.shape[dim])
    logs = mul(g, log_softmax(g, x, dim), target)
    if weight is not None:
        logs = mul(g, logs, _by_class(g, weight, x.rank))
    made = sum_(g, logs, dim)
    made = g.op("Neg", made).known(x.dtype, made.shape)
    if reduction != 1:
        return _collected(g, made, reduction)
    count = g.size(x, 0) if dim else 1
    for d in range(2, x.rank):
        count = g.arithmetic("Mul", count, g.size(x, d))
    return div(g, sum_(g, made), g.number(count, x.dtype))


def _smoothed_cross_entropy(
    g: Builder, x: Value, target: Value, weight: Any, reduction: int, ignore_index: int, smoothing: float
) -> Value:
    """Part of the loss is that of all classes alike."""
    dim = 1 if x.rank > 1 else 0
    logs = log_softmax(g, x, dim)
    hard = nll_loss(g, logs, target, weight, reduction, ignore_index)
    every = sum_(g, logs if weight is None else mul(g, logs, _by_class(g, weight, x.rank)), dim)
    used = g.op("Equal", target, g.number(ignore_index, target)).known(flambeau.bool, target.shape)
    smooth = g.op("Where", used, g.number(0, x), g.op("Neg", every)).known(x.dtype, every.shape)
    if reduction == 1:
        if weight is None:
            count = sum_(g, g.cast(g.op("Not", used).known(flambeau.bool, used.shape), x.dtype))
        else:
            own = g.op("Gather", weight, g.op("Where", used, g.number(0, target), target), axis_i=0)
            count = sum_(g, g.op("Where", used, g.number(0, x), own).known(x.dtype, target.shape))
        smooth = div(g, sum_(g, smooth), count)
    elif reduction == 2:
        smooth = sum_(g, smooth)
    return add(g, mul(g, hard, 1 - smoothing), mul(g, smooth, smoothing / x.shape[dim]))


@form(aten.soft_margin_loss)
def soft_margin_loss(g: Builder, self: Value, target: Value, reduction: int = 1) -> Value:
    inner = mul(g, g.op("Neg", self).known(self.dtype, self.shape), target)
    return _collected(g, g.op("Softplus", inner).known(inner.dtype, inner.shape), reduction)


@form(aten.cross_entropy_loss, since=12)
def cross_entropy_loss(
    g: Builder,
    self: Value,
    target: Value,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:
    if target.dtype.is_floating_point:
        return _soft_cross_entropy(g, self, target, weight, reduction, label_smoothing)
    if label_smoothing:
        return _smoothed_cross_entropy(g, self, target, weight, reduction, ignore_index, label_smoothing)
    if self.rank == 1:
        return nll_loss(g, log_softmax(g, self, 0), target, weight, reduction, ignore_index)
    made = g.op(
        "SoftmaxCrossEntropyLoss", self, target, weight, reduction_s=_reduction(reduction), ignore_index_i=ignore_index
    )
    return made.known(self.dtype, target.shape if reduction == 0 else ())


@form(aten.kl_div)
def kl_div(g: Builder, self: Value, target: Value, reduction: int = 1, log_target: bool = False) -> Value:
    if log_target:
        made = mul(g, g.op("Exp", target).known(target.dtype, target.shape), sub(g, target, self))
    else:
        term = mul(g, target, sub(g, g.op("Log", target).known(target.dtype, target.shape), self))
        positive = g.op("Greater", target, g.number(0, target))
        made = g.op("Where", positive, term, g.number(0, target)).known(target.dtype, term.shape)
    return _collected(g, made, reduction)


@form(aten.conv_tbc)
def conv_tbc(g: Builder, self: Value, weight: Value, bias: Value, pad: int = 0) -> Value:
    x = permute(g, self, [1, 2, 0])
    w = permute(g, weight, [2, 1, 0])
    return permute(g, convolved(g, x, w, bias, 1, pad, 1, False, 0, 1), [2, 0, 1])
