"""Losses that are a formula per element, optionally followed by a mean or sum: one fused kernel forward, one backward."""

from __future__ import annotations

import warnings
from typing import Any

from ...core.aliases import AnyFunction
from ...core.graph import grad_mode
from ...core.layout import broadcast_shapes
from ...core.tensor import Tensor, numel_of
from ...expr import Expr, arg, arguments, as_expr, pullback, substitute
from ...expr import functions as f
from ..machinery.formula import Pointwise, camel, derived
from ..machinery.primitive import Primitive
from ..machinery.quirks import Quirks
from ..machinery.reduction import Reduction, mean_of
from .loss_arguments import reduce_loss


class ElementLoss:
    """A loss whose operands are tensors that broadcast to the first one's shape, and numbers.

    `formula` maps one element of each to its loss; `grad` as for pointwise operators, derived from the formula if None.
    """

    def __init__(
        self, name: str, formula: AnyFunction, grad: AnyFunction | None = None, labels: dict[str, str] | None = None
    ):
        self.name, self.formula, self.grad = name, formula, grad
        self._shares: dict[tuple[int, int, bool], tuple[Pointwise, tuple[int, ...]] | None] = {}
        self.map = Pointwise(name, formula, grad=grad, quirks=Quirks(label=(labels or {}).get("none")))
        self._mean = Reduction(name, formula, "sum", final=mean_of)
        self._sum = Reduction(name, formula, "sum")
        self._nodes = {
            kind: Primitive(
                self._reduced,
                {"operands": self._gradients},
                Quirks(label=(labels or {}).get(kind) or camel(name) + "Backward0"),
            )
            for kind in ("mean", "sum")
        }

    def __call__(self, *operands: Any, reduction: str) -> Tensor:
        if reduction == "none":
            return self.map.call(operands)
        first = operands[0]
        # A fused reduction computes in the first operand's dtype and shape.
        mixed = any(isinstance(x, Tensor) and x.dtype is not first.dtype for x in operands)
        if mixed or first.dtype.is_complex or not first.dtype.is_floating_point or numel_of(first.shape) == 0:
            return reduce_loss(self.map.call(operands), reduction)
        return self._nodes[reduction](list(operands), reduction)

    def _reduced(self, operands: list[Any], reduction: str) -> Tensor:
        if grad_mode.enabled:
            operands = [x._bare_alias() if isinstance(x, Tensor) and x._autograd is not None else x for x in operands]
        return (self._mean if reduction == "mean" else self._sum).over(tuple(operands))

    def _gradients(self, g: Tensor, operands: list[Any], reduction: str, needs: dict[str, list[bool]]) -> list[Any]:
        values: dict[int, Any] = dict(enumerate(operands, 1))
        values[0] = g
        values[len(operands) + 1] = 1.0 / numel_of(operands[0].shape)
        shape = operands[0].shape
        shares: list[Any] = []
        for i, needed in enumerate(needs["operands"]):
            if not needed:
                shares.append(None)
                continue
            found = self._share(i, len(operands), reduction == "mean")
            if found is None:
                shares.append(None)
                continue
            op, used = found
            operand = operands[i]
            share = op.call(tuple(values[u] for u in used), (), operand.dtype)
            if share.shape != shape:
                share = share.expand(shape)
            if shape != operand.shape:
                share = share.sum_to_size(operand.shape)
            shares.append(share)
        return shares

    def _share(self, index: int, count: int, mean: bool) -> tuple[Pointwise, tuple[int, ...]] | None:
        """Return the pointwise operator that computes the gradient of operand `index`, and the values it reads: 0 is the incoming gradient,
        then come the operands, then the divisor of a mean."""
        key = (index, count, mean)
        if key not in self._shares:
            symbols = [arg(i + 1) for i in range(count)]
            g = arg(0) * arg(count + 1) if mean else arg(0)
            if self.grad is not None:
                share = self.grad(g, *symbols, out=None)[index]
            else:
                (share,) = pullback(as_expr(self.formula(*symbols)), g, (symbols[index],))
            self._shares[key] = None if share is None else self._operator(as_expr(share))
        return self._shares[key]

    def _operator(self, share: Expr) -> tuple[Pointwise, tuple[int, ...]]:
        used = tuple(sorted(arguments((share,)) | {0}))
        place = {a: i for i, a in enumerate(used)}
        (compact,) = substitute((share,), lambda e: arg(place[e.args[0]]) if e.op == "arg" else None)
        return derived(f"{self.name}_backward", compact, len(used)), used


def same_shapes(input: Tensor, target: Tensor, stacklevel: int = 4) -> tuple[Tensor, Tensor]:
    """Return input and target broadcast to each other, with PyTorch's warning if their shapes differ."""
    if input.shape == target.shape:
        return input, target
    warnings.warn(
        f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This will likely lead to"
        " incorrect results due to broadcasting. Please ensure they have the same size.",
        stacklevel=stacklevel,
    )
    first, second = broadcast(input, target)
    return first, second


def broadcast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return views of the tensors in their common shape."""
    shape: Any = broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t if t.shape == shape else t.expand(shape) for t in tensors)


# -- formulas ---------------------------------------------------------------------------------------------------------

squared = ElementLoss(
    "mse_loss", lambda x, t: (x - t) * (x - t), grad=lambda g, x, t, out: ((x - t) * (g * 2), (t - x) * (g * 2))
)
_MEAN_OF = {"mean": "MeanBackward0", "sum": "SumBackward0"}
absolute = ElementLoss("l1_loss", lambda x, t: f.abs_(x - t), labels={"none": "AbsBackward0", **_MEAN_OF})


def _smooth_l1(x: Any, t: Any, beta: Any) -> Any:
    z = f.abs_(x - t)
    return f.where(z < beta, 0.5 * z * z / beta, z - 0.5 * beta)


def _smooth_l1_grad(g: Any, x: Any, t: Any, beta: Any, out: Any) -> tuple[Any, ...]:
    d = x - t
    share = f.where(f.abs_(d) >= beta, f.sign(d), d / beta) * g  # nan stays nan
    return share, -share, None


smooth_absolute = ElementLoss("smooth_l1_loss", _smooth_l1, grad=_smooth_l1_grad)


def _huber(x: Any, t: Any, delta: Any) -> Any:
    z = f.abs_(x - t)
    return f.where(z <= delta, 0.5 * z * z, delta * (z - 0.5 * delta))


def _huber_grad(g: Any, x: Any, t: Any, delta: Any, out: Any) -> tuple[Any, ...]:
    d = x - t
    share = f.where(d <= -delta, -delta, f.where(d >= delta, delta, d)) * g
    return share, -share, None


huber = ElementLoss("huber_loss", _huber, grad=_huber_grad)

_LOWEST_LOG = -100.0  # PyTorch's bound on the logarithms of a binary cross entropy
_LEAST_SPREAD = 9.999999960041972e-13  # and on p * (1 - p): 1e-12 in single precision, in double precision, too


def _bce(x: Any, t: Any) -> Any:
    return (t - 1) * f.maximum(f.log1p(-x), _LOWEST_LOG) - t * f.maximum(f.log(x), _LOWEST_LOG)


def _bce_grad(g: Any, x: Any, t: Any, out: Any) -> tuple[Any, ...]:
    return g * (x - t) / f.maximum((1 - x) * x, _LEAST_SPREAD), g * (f.log1p(-x) - f.log(x))


binary = ElementLoss("binary_cross_entropy", _bce, grad=_bce_grad)
weighted_binary = ElementLoss(
    "binary_cross_entropy",
    lambda x, t, w: _bce(x, t) * w,
    grad=lambda g, x, t, w, out: (*_bce_grad(g * w, x, t, out), g * _bce(x, t)),
)
outside_unit = Reduction("outside_unit", lambda x: f.where((x >= 0) & (x <= 1), 0, 1), "max")


def _logits(x: Any, t: Any) -> Any:
    return (1 - t) * x + _softplus_of_minus(x)


def _softplus_of_minus(x: Any) -> Any:
    """log(1 + exp(-x))"""
    return f.maximum(-x, 0) + f.log1p(f.exp(-f.abs_(x)))


def _logits_grad(g: Any, x: Any, t: Any) -> tuple[Any, ...]:
    return (f.sigmoid(x) - t) * g, -x * g


def _logits_positive(x: Any, t: Any, p: Any) -> Any:
    return (1 - t) * x + (1 + (p - 1) * t) * _softplus_of_minus(x)


def _logits_positive_grad(g: Any, x: Any, t: Any, p: Any) -> tuple[Any, ...]:
    hits = p * t
    to_target = (p * _softplus_of_minus(x) - _softplus_of_minus(-x)) * g
    return ((hits + 1 - t) * f.sigmoid(x) - hits) * g, to_target, t * _softplus_of_minus(x) * g


_LOGITS = "binary_cross_entropy_with_logits"
logits = ElementLoss(_LOGITS, _logits, grad=lambda g, x, t, out: _logits_grad(g, x, t))
logits_weight = ElementLoss(
    _LOGITS,
    lambda x, t, w: _logits(x, t) * w,
    grad=lambda g, x, t, w, out: (*_logits_grad(g * w, x, t), g * _logits(x, t)),
)
logits_positive = ElementLoss(_LOGITS, _logits_positive, grad=lambda g, x, t, p, out: _logits_positive_grad(g, x, t, p))
logits_both = ElementLoss(
    _LOGITS,
    lambda x, t, w, p: _logits_positive(x, t, p) * w,
    grad=lambda g, x, t, w, p, out: _with_weight(g, x, t, w, p),
)


def _with_weight(g: Any, x: Any, t: Any, w: Any, p: Any) -> tuple[Any, ...]:
    to_input, to_target, to_positive = _logits_positive_grad(g * w, x, t, p)
    return to_input, to_target, g * _logits_positive(x, t, p), to_positive


def _kl(x: Any, t: Any) -> Any:
    return f.where(f.isnan(t), t, f.where(t == 0, 0, t * f.log(t))) - t * x


kl = ElementLoss("kl_div", _kl, labels={"none": "SubBackward0", **_MEAN_OF})
kl_log = ElementLoss("kl_div", lambda x, t: f.exp(t) * (t - x), labels={"none": "MulBackward0", **_MEAN_OF})

soft_margin = ElementLoss("soft_margin_loss", lambda x, t: _softplus_of_minus(t * x))
