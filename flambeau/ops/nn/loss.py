"""Losses of nn.functional that compare two tensors element by element, and the cross entropy of a linear layer."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ...core.graph import unrecorded
from ...core.tensor import Tensor
from ..linalg.linear import linear
from ..machinery.arguments import need_tensors
from ..machinery.aten_form import aten_parts
from ..machinery.declare import composite
from ..machinery.dtype_rules import unsupported
from ..machinery.memory import raise_if_set
from . import element_loss as losses
from .cross_entropy import cross_entropy
from .element_loss import broadcast, same_shapes
from .loss_arguments import functional_loss, numbered_form, read_reduction, reduce_loss, reduction_number

_FUNCTIONAL: dict[str, Any] = {"namespaces": ("nn.functional",), "method": False}


def _need_floating(name: str, *tensors: Tensor) -> None:
    for t in tensors:
        if t.dtype.is_floating_point:
            return
    raise unsupported(f"{name}", tensors[0].dtype)


def _check_weight(input: Tensor, weight: Tensor) -> None:
    if weight.shape != input.shape:
        raise ValueError("Weights and input must have the same size.")


def _weighted(loss: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """Return losses times weights; their mean is relative to the sum of the weights."""
    product = loss * weight
    if reduction == "mean":
        return product.sum() / weight.sum()
    return reduce_loss(product, reduction)


def _of_both(text: str) -> tuple[str, str]:
    """Return the gradient declarations of a loss that is symmetric in input and target."""
    return text, text.replace("self, target", "target, self")


@functional_loss(
    "mse_loss(*broadcast_tensors(input, target), reduction)",
    batching="loss",
    aten_backward=_of_both("mse_loss_backward(grad, self, target, reduction)"),
)
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
    weight: Any = None,
) -> Tensor:
    """The squared difference of input and target.

    >>> mse_loss(tensor([1., 2.]), tensor([1., 4.]))
    tensor(2.)
    """
    reduction = read_reduction(reduction, size_average, reduce)
    input, target = same_shapes(input, target)
    _need_floating("mse_cpu", input, target)
    if weight is None:
        return losses.squared(input, target, reduction=reduction)
    _check_weight(input, weight)
    return _weighted(losses.squared(input, target, reduction="none"), weight, reduction)


@aten_parts("l1_loss")
def _(aten: Any, self: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    return _reduced_in_aten(aten, aten.abs.default(aten.sub.Tensor(self, target)), reduction)


def _reduced_in_aten(aten: Any, losses: Tensor, reduction: int) -> Tensor:
    return losses if reduction == 0 else aten.mean.default(losses) if reduction == 1 else aten.sum.default(losses)


@aten_parts("mse_loss")
def _(aten: Any, self: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    return _reduced_in_aten(aten, aten.pow.Tensor_Scalar(aten.sub.Tensor(self, target), 2), reduction)


@functional_loss("l1_loss(*broadcast_tensors(input, target), reduction)", batching="loss")
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
    weight: Any = None,
) -> Tensor:
    """The absolute difference of input and target."""
    reduction = read_reduction(reduction, size_average, reduce)
    input, target = same_shapes(input, target)
    if weight is not None:
        _check_weight(input, weight)
        return _weighted((input - target).abs(), weight, reduction)
    if input.dtype.is_complex or target.dtype.is_complex:
        return reduce_loss((input - target).abs(), reduction)
    return losses.absolute(input, target, reduction=reduction)


@functional_loss(
    "smooth_l1_loss(*broadcast_tensors(input, target), reduction, beta)",
    batching="loss",
    aten_backward=_of_both("smooth_l1_loss_backward(grad, self, target, reduction, beta)"),
)
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Squared where input and target differ by less than `beta`, absolute elsewhere."""
    reduction = read_reduction(reduction, size_average, reduce)
    input, target = same_shapes(input, target)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0:
        return losses.absolute(input, target, reduction=reduction)
    _need_floating("smooth_l1_cpu", input, target)
    return losses.smooth_absolute(input, target, float(beta), reduction=reduction)


@functional_loss(
    "huber_loss(*broadcast_tensors(input, target), reduction, delta)",
    batching="loss",
    aten_backward=_of_both("huber_loss_backward(grad, self, target, reduction, delta)"),
)
def huber_loss(
    input: Tensor, target: Tensor, reduction: Any = "mean", delta: float = 1.0, weight: Any = None
) -> Tensor:
    """Squared where input and target differ by less than `delta`, `delta` times absolute elsewhere."""
    if not isinstance(delta, (int, float)):
        raise TypeError(f"delta must be a float or int, got: {type(delta)}")
    reduction = read_reduction(reduction)
    input, target = same_shapes(input, target)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    _need_floating("huber_cpu", input, target)
    if weight is None:
        return losses.huber(input, target, float(delta), reduction=reduction)
    _check_weight(input, weight)
    return reduce_loss(losses.huber(input, target, float(delta), reduction="none") * weight, reduction)


# -- binary -----------------------------------------------------------------------------------------------------------


def _check_unit(input: Tensor, target: Tensor) -> None:
    for name, t in (("input", input), ("target", target)):
        error = RuntimeError(f"all elements of {name} should be between 0 and 1")
        raise_if_set(losses.outside_unit.over((t._bare_alias(),)), error, "binary_cross_entropy")


def _refused(run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Raise PyTorch's error for this loss under autocast on CUDA: a sigmoid in half precision before it would lose too much."""
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\nMany models use a sigmoid layer right"
        " before the binary cross entropy layer.\nIn this case, combine the two layers using"
        " torch.nn.functional.binary_cross_entropy_with_logits\nor torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and"
        " BCEWithLogits are\nsafe to autocast."
    )


@functional_loss(
    "binary_cross_entropy(input, target, weight, reduction)",
    batching="loss",
    autocast_cuda=_refused,
    aten_backward="binary_cross_entropy_backward(grad, self, target, weight, reduction)",
)
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Tensor:
    """Cross entropy of probabilities `input` against targets between 0 and 1."""
    reduction = read_reduction(reduction, size_average, reduce)
    if target.shape != input.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is deprecated. Please"
            " ensure they have the same size."
        )
    _need_floating("binary_cross_entropy", input)
    if target.dtype is not input.dtype:
        raise RuntimeError(f"Found dtype {target.dtype.scalar_type} but expected {input.dtype.scalar_type}")
    _check_unit(input, target)
    if weight is None:
        return losses.binary(input, target, reduction=reduction)
    if broadcast(input, weight)[0].shape != input.shape:
        raise RuntimeError(f"weight of shape {list(weight.shape)} does not broadcast to {list(input.shape)}")
    return losses.weighted_binary(input, target, weight.to(input.dtype), reduction=reduction)


@functional_loss("binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction)", batching="loss")
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
    pos_weight: Any = None,
) -> Tensor:
    """Cross entropy of sigmoid(input) against targets, without loss of precision for large inputs."""
    reduction = read_reduction(reduction, size_average, reduce)
    if target.shape != input.shape:
        raise ValueError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    return _logits(input, target, weight, pos_weight, reduction)


@numbered_form("binary_cross_entropy_with_logits", batching="loss")
def _logits(
    input: Tensor, target: Tensor, weight: Any = None, pos_weight: Any = None, reduction: str = "none"
) -> Tensor:
    need_tensors("binary_cross_entropy_with_logits", input=input, target=target)
    if not target.dtype.is_floating_point and input.dtype.is_floating_point:
        raise RuntimeError(
            f"result type {input.dtype.scalar_type} can't be cast to the desired output type {target.dtype.scalar_type}"
        )
    for extra in (weight, pos_weight):
        if extra is not None:  # a weight may also be what enlarges the result
            input, target = broadcast(input, target, extra)[:2]
    if weight is None and pos_weight is None:
        return losses.logits(input, target, reduction=reduction)
    if pos_weight is None:
        return losses.logits_weight(input, target, weight, reduction=reduction)
    if weight is None:
        return losses.logits_positive(input, target, pos_weight, reduction=reduction)
    return losses.logits_both(input, target, weight, pos_weight, reduction=reduction)


# -- distributions ----------------------------------------------------------------------------------------------------


@functional_loss("kl_div(input, target, reduction, log_target)", batching="loss")
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
    log_target: bool = False,
) -> Tensor:
    """target * (log target - input), input being log-probabilities; "batchmean" divides by the first dimension."""
    if reduction == "mean" and size_average is None and reduce is None:
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size.'batchmean' divides only"
            " by the batch size, and aligns with the KL div math definition.'mean' will be changed to behave the same as"
            " 'batchmean' in the next major release.",
            stacklevel=3,
        )
    by_batch = reduction == "batchmean" and size_average is None and reduce is None
    chosen = "sum" if by_batch else read_reduction(reduction, size_average, reduce)
    loss = _kl_div(input, target, chosen, log_target=log_target)
    return loss / input.shape[0] if by_batch and len(input.shape) else loss


@kl_div.op.as_aten
def _(
    recorder: Any, input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean", log_target: bool = False,
) -> Tensor:  # fmt: skip
    by_batch = reduction == "batchmean" and size_average is None and reduce is None
    number = 2 if by_batch else reduction_number(reduction, size_average, reduce)
    loss = recorder.aten.kl_div.default(input, target, number, log_target=log_target)
    if by_batch and input.dim() != 0:
        loss = recorder.aten.div.Tensor(loss, input.size(0))
    return loss


@numbered_form("kl_div", batching="loss")
def _kl_div(input: Tensor, target: Tensor, reduction: str = "none", *, log_target: bool = False) -> Tensor:
    need_tensors("kl_div", input=input, target=target)
    input, target = broadcast(input, target)
    return (losses.kl_log if log_target else losses.kl)(input, target, reduction=reduction)


@functional_loss("poisson_nll_loss(input, target, log_input, full, eps, reduction)", batching="loss")
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: Any = None,
    eps: float = 1e-8,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Tensor:
    """The negative log-likelihood of counts under a Poisson distribution with rate `input` (or its exponential)."""
    return _poisson(input, target, log_input, full, eps, read_reduction(reduction, size_average, reduce))


@numbered_form("poisson_nll_loss")
def _poisson(input: Any, target: Any, log_input: bool, full: bool, eps: float, reduction: str) -> Tensor:
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return reduce_loss(loss, reduction)


@composite(**_FUNCTIONAL)
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """The negative log-likelihood of targets under normal distributions with mean `input` and variance `var`."""
    if not isinstance(var, Tensor):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = input.new_full(input.shape, var)
    else:
        raise_if_set((var < 0).any(), ValueError("var has negative entry/entries"))
    if var.shape != input.shape:
        if input.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif not (
            len(var.shape) == len(input.shape)
            and sum(v != n for v, n in zip(var.shape, input.shape)) == 1
            and all(v in (n, 1) for v, n in zip(var.shape, input.shape))
        ):
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    var = unrecorded(var.clone().clamp_, min=eps)  # the bound takes no part in the derivative
    loss = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduce_loss(loss, reduction)


@composite(namespaces=("nn.functional",), method=False)
def linear_cross_entropy(
    input: Any,
    linear_weight: Any,
    target: Any,
    *,
    linear_bias: Any = None,
    weight: Any = None,
    reduction: Any = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """cross_entropy(linear(input, linear_weight, linear_bias), target); `options` of chunking are accepted, not needed."""
    need_tensors("linear_cross_entropy", input=input, linear_weight=linear_weight, target=target)
    if len(input.shape) not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {len(input.shape)}")
    if len(linear_weight.shape) < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {len(linear_weight.shape)}")
    *outputs, features = linear_weight.shape
    if input.shape[-1] != features:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got"
            f" {input.shape[-1]} and {features}, respectively"
        )
    if len(outputs) > 1 and len(input.shape) < 2:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input,"
            f" (N, {features}), got unbatched input with shape {tuple(input.shape)}"
        )
    scores = linear(input, linear_weight.reshape(-1, features))
    scores = scores.reshape(*input.shape[:-1], *outputs)
    if linear_bias is not None:
        missing = len(outputs) - len(linear_bias.shape)
        scores = scores + linear_bias.reshape(*linear_bias.shape, *(1,) * missing)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(scores, target, weight, None, ignored, None, reduction, label_smoothing)
