"""Losses with margins: hinge, ranking, triplets, classes against each other, pairs by their angle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.tensor import Tensor, copy_of_array
from ..machinery.arguments import need_tensors
from ..machinery.aten_form import REDUCTIONS, aten_only, aten_parts
from ..machinery.declare import composite, internal
from ..machinery.dtype_rules import unsupported
from ..machinery.inplace import raw_copy
from ..machinery.memory import like_first
from ..machinery.record import NewTensor
from .distance import pairwise_distance
from .element_loss import logits, soft_margin
from .loss_arguments import functional_loss, numbered_form, read_reduction, reduce_loss, refuse_gradient

_FUNCTIONAL: dict[str, Any] = {"namespaces": ("nn.functional",), "method": False}
_COSINE_EPS = 1e-12


# -- two or three tensors -----------------------------------------------------------------------------------------------


@numbered_form("hinge_embedding_loss")
def _hinge(input: Any, target: Any, margin: float = 1.0, reduction: str = "none") -> Tensor:
    need_tensors("hinge_embedding_loss", input=input, target=target)
    far = (margin - input).clamp_min(0).masked_fill(target == 1, 0)
    return reduce_loss(far + input.masked_fill(target == -1, 0), reduction)


@functional_loss("hinge_embedding_loss(input, target, margin, reduction)", batching="loss")
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Tensor:
    """The distance `input` itself if the target is 1, and its shortfall from `margin` if the target is -1."""
    return _hinge(input, target, margin, read_reduction(reduction, size_average, reduce))


@numbered_form("margin_ranking_loss")
def _ranking(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "none") -> Tensor:
    need_tensors("margin_ranking_loss", input1=input1, input2=input2, target=target)
    if not len(input1.shape) == len(input2.shape) == len(target.shape):
        raise RuntimeError(
            f"margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: {input1.shape},"
            f" input2: {input2.shape}, target: {target.shape} "
        )
    return reduce_loss((-target * (input1 - input2) + margin).clamp_min(0), reduction)


@functional_loss("margin_ranking_loss(input1, input2, target, margin, reduction)", batching="loss")
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Tensor:
    """The amount by which input1 fails to exceed (stay below) input2 by `margin`, if the target is 1 (-1)."""
    return _ranking(input1, input2, target, margin, read_reduction(reduction, size_average, reduce))


@functional_loss(
    "soft_margin_loss(input, target, reduction)",
    batching="loss",
    aten_backward="soft_margin_loss_backward(grad, self, target, reduction)",
)
def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: Any = "mean"
) -> Tensor:
    """log(1 + exp(-target * input)) for targets 1 and -1."""
    reduction = read_reduction(reduction, size_average, reduce)
    refuse_gradient("soft_margin_loss", "target", target)
    if input.shape != target.shape:
        return reduce_loss(soft_margin(input, target, reduction="none"), reduction)
    return soft_margin(input, target, reduction=reduction)


@numbered_form("cosine_embedding_loss")
def _angle(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "none") -> Tensor:
    need_tensors("cosine_embedding_loss", input1=input1, input2=input2, target=target)
    if len(target.shape) > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    rank = len(target.shape) + 1
    if len(input1.shape) != rank or len(input2.shape) != rank:
        raise RuntimeError(
            f"{rank - 1}D target tensor expects {rank}D input tensors, but found inputs with sizes {list(input1.shape)} and"
            f" {list(input2.shape)}."
        )
    along = rank - 1
    product = (input1 * input2).sum(along)
    size1, size2 = ((x * x).sum(along) + _COSINE_EPS for x in (input1, input2))
    cosine = product / (size1 * size2).sqrt()
    near, far = 1 - cosine, (cosine - margin).clamp_min(0)
    return reduce_loss(near.masked_fill(target != 1, 0) + far.masked_fill(target != -1, 0), reduction)


@functional_loss("cosine_embedding_loss(input1, input2, target, margin, reduction)")
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Tensor:
    """1 - cos of the angle between the inputs where the target is 1, cos - margin where it is -1."""
    return _angle(input1, input2, target, margin, read_reduction(reduction, size_average, reduce))


# -- triplets -------------------------------------------------------------------------------------------------------------


def _triplet(
    anchor: Any, positive: Any, negative: Any, distance: Callable[..., Any], margin: float, swap: bool, reduction: str
) -> Tensor:
    ranks = [len(t.shape) for t in (anchor, positive, negative)]
    if len(set(ranks)) != 1:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: anchor"
            f" {ranks[0]}D, positive {ranks[1]}D, and negative {ranks[2]}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduce_loss((margin + near - far).clamp_min(0), reduction)


def _check_margin(margin: float) -> None:
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")


@numbered_form("triplet_margin_loss")
def _by_powers(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "none",
) -> Tensor:
    need_tensors("triplet_margin_loss", anchor=anchor, positive=positive, negative=negative)
    return _triplet(anchor, positive, negative, lambda a, b: pairwise_distance(a, b, p, eps), margin, swap, reduction)


@functional_loss("triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction)")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Tensor:
    """Triplet loss: by how much the distance to `positive` plus `margin` exceeds the distance to `negative`, if it does."""
    reduction = read_reduction(reduction, size_average, reduce)
    _check_margin(margin)
    return _by_powers(anchor, positive, negative, margin, p, eps, swap, reduction)


@composite(**_FUNCTIONAL)
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[..., Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: Any = "mean",
) -> Tensor:
    """Triplet loss like triplet_margin_loss with a given distance function."""
    _check_margin(margin)
    distance = pairwise_distance if distance_function is None else distance_function
    return _triplet(anchor, positive, negative, distance, margin, swap, read_reduction(reduction))


# -- classes --------------------------------------------------------------------------------------------------------------


def _rows(name: str, input: Any) -> Any:
    """Return scores as a matrix (N, C)."""
    if len(input.shape) > 2 or 0 in input.shape[-1:]:
        raise RuntimeError(
            f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}"
        )
    if not input.dtype.is_floating_point:
        raise unsupported(f"{name}", input.dtype)
    return input if len(input.shape) == 2 else input.reshape(1, -1)


@functional_loss(
    "multi_margin_loss(input, target, p, margin, weight, reduction)",
    aten_backward="multi_margin_loss_backward(grad, self, target, p, margin, weight, reduction)",
)
def multi_margin_loss(
    input: Any,
    target: Any,
    p: int = 1,
    margin: float = 1.0,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Tensor:
    """Multi-class hinge loss: the mean over other classes of the target score's shortfall from theirs plus `margin`."""
    reduction = read_reduction(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    scores = _rows("multi_margin_loss_cpu_kernel", input)
    samples, classes = scores.shape
    if weight is not None and len(weight.shape) != 1:
        raise ValueError("weight must be one-dimensional")
    if weight is not None and weight.shape != (classes,):
        raise RuntimeError(f"inconsistent weight size, expected {classes} but got {list(weight.shape)}")
    if len(target.shape) > 1 or target.numel() != samples:
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch size)."
            f" Expected target size [{samples}], but got {list(target.shape)}. Input has shape {list(input.shape)}."
        )
    if target.dtype is not dt.int64:
        raise RuntimeError(f"expected scalar type Long but found {target.dtype.scalar_type}")
    index = classes_of(target, classes).reshape(samples, 1)
    lacking = (margin - scores.gather(1, index) + scores).relu()
    if p == 2:
        lacking = lacking * lacking
    if weight is not None:
        lacking = lacking * weight[index]
    loss = lacking.scatter(1, index, 0.0).sum(1) / classes
    return reduce_loss(loss if target.shape else loss.squeeze(0), reduction)


@internal(layout=like_first, batching="each")
def classes_of(target: Tensor, classes: int) -> Tensor:
    """The target, after a check that every element is a class."""


@classes_of.on("any")
def _(out: Tensor, target: Tensor, classes: int) -> None:
    values = target.cpu()._array()
    if not (values.min() >= 0 and values.max() < classes):
        raise RuntimeError("target out of range")
    raw_copy(out, target)


@internal(batching="each")
def label_pairs(target: Tensor, classes: int) -> NewTensor:
    """Return a mask over each row of `target` and all classes: entries before the first -1, paired with classes that no such entry names."""
    return (*target.shape, classes), dt.bool_, target.device


@label_pairs.on("any")
def _(out: Tensor, target: Tensor, classes: int) -> None:
    values = target.cpu()._array()
    if not (values.min() >= -1 and values.max() < classes):
        raise RuntimeError("argument #2 'target' is out of range")
    listed = np.cumprod(values >= 0, axis=1).astype(bool)
    named = np.zeros(values.shape, bool)
    rows, places = np.nonzero(listed)
    named[rows, values[rows, places]] = True
    raw_copy(out, copy_of_array(listed[:, :, None] & ~named[:, None, :], dt.bool_))


@functional_loss("multilabel_margin_loss(input, target, reduction)")
def multilabel_margin_loss(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: Any = "mean"
) -> Tensor:
    """Multi-label hinge loss over pairs of target classes (listed up to the first -1) and other classes, with a margin of 1."""
    reduction = read_reduction(reduction, size_average, reduce)
    scores = _rows("multilabel_margin_loss_forward_out_frame", input)
    if target.shape != input.shape:
        raise RuntimeError(f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    if target.dtype is not dt.int64:
        raise RuntimeError(f"expected scalar type Long but found {target.dtype.scalar_type}")
    classes = scores.shape[1]
    labels = target.reshape(scores.shape)
    pairs = label_pairs(labels, classes)
    own = scores.gather(1, labels.clamp_min(0)).unsqueeze(2)  # (N, labels, 1)
    lacking = (1 - own + scores.unsqueeze(1)).relu().masked_fill(~pairs, 0)
    loss = lacking.sum((1, 2)) / classes
    return reduce_loss(loss if len(input.shape) == 2 else loss.squeeze(0), reduction)


@aten_parts("multilabel_margin_loss")
def _(aten: Any, self: Tensor, target: Tensor, reduction: int = 1) -> Tensor:
    return aten.multilabel_margin_loss_forward.default(self, target, reduction)[0]


@aten_only(
    "multilabel_margin_loss_forward", backward="multilabel_margin_loss_backward(grad, self, target, reduction, result1)"
)
def _with_targets(self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Return the loss, and ones at the classes that the target lists."""
    listed = (target >= 0).cumprod(-1).to(self.dtype)
    named = self.detach().new_zeros(self.shape).scatter_add(-1, target.clamp_min(0), listed).clamp_max(1)
    return multilabel_margin_loss(self, target, reduction=REDUCTIONS[reduction]), named


@composite(**_FUNCTIONAL)
def multilabel_soft_margin_loss(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None, reduction: Any = "mean"
) -> Tensor:
    """Mean over classes of the binary cross entropy with logits, for each sample."""
    need_tensors("multilabel_soft_margin_loss", input=input, target=target)
    reduction = read_reduction(reduction, size_average, reduce)
    loss = logits(input, target, reduction="none")
    if weight is not None:
        loss = loss * weight
    classes = len(input.shape) - 1
    return reduce_loss(loss.sum(classes) / input.shape[classes], reduction)
