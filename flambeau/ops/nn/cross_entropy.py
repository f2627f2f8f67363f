"""Cross entropy, fused with its softmax."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...core import dtype as dt
from ...core.aliases import AnyFunction
from ...core.caching import remember
from ...core.dtype import opmath
from ...core.graph import grad_mode
from ...core.tensor import Tensor, numel_of
from ...kernels.library import loss as kernels
from ..machinery.arguments import need_tensors
from ..machinery.aten_form import REDUCTIONS
from ..machinery.declare import internal
from ..machinery.memory import dense
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
from .loss_arguments import check_classes, functional_loss, read_reduction
from .nll_loss import declare_kernels, loss_layouts, nll, nll_loss_backward, plane_layout
from .softmax import softmax_backward

_accepted: dict[tuple[Any, ...], bool] = {}  # shapes and dtypes of scores and targets that have passed the checks


# -- cross entropy with class indices -----------------------------------------------------------------------------------


def _classes(scores: Tensor) -> int:
    """Return the dimension of the classes."""
    return 1 if len(scores.shape) > 1 else 0


def _kept_gradient(
    v: Tensor,
    grad: Tensor,
    soft: Tensor,
    target: Tensor,
    weight: Any,
    reduction: str,
    ignore_index: int,
    smoothing: float,
) -> tuple[Tensor, Tensor]:
    """Return second derivatives by ordinary operators: gradients of `grad` and of the probabilities."""
    classes = _classes(soft)
    hit, spread, level = _shares(soft, target, weight, reduction, ignore_index, smoothing)
    scale = grad.unsqueeze(classes) if reduction == "none" else grad
    inner = soft * level - spread - hit
    to_grad = (v * inner).sum(classes) if reduction == "none" else (v * inner).sum()
    return to_grad, v * level * scale


def _shares(
    input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return level, spread and hit for one unit of incoming gradient: the gradient of the loss is softmax * level - spread - hit."""
    classes = _classes(input)
    n = input.shape[classes]
    kept = (target != ignore_index).unsqueeze(classes)
    index = target.to(dt.int64).unsqueeze(classes).where(kept, 0)
    weights = input.new_ones((n,)) if weight is None else weight
    per_class = weights.reshape([n if d == classes else 1 for d in range(len(input.shape))]).expand(input.shape)
    own = per_class.gather(classes, index) * kept
    unit = 1 / own.sum() if reduction == "mean" else input.new_ones(())
    hit = input.new_zeros(input.shape).scatter(classes, index, own * ((1 - smoothing) * unit))
    spread = per_class * kept * (smoothing / n * unit)
    return hit, spread, hit.sum(classes, True) + spread.sum(classes, True)


def _scores_gradient(
    v: Tensor, grad: Tensor, input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, smoothing: float
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return second derivatives if the scores were saved."""
    classes, full = _classes(input), opmath(input.dtype)
    soft = input.to(full).softmax(classes)
    to_grad, to_soft = _kept_gradient(v.to(full), grad, soft, target, weight, reduction, ignore_index, smoothing)
    return to_grad, softmax_backward(to_soft, soft, classes, full).to(input.dtype)


@internal(grads={("grad", "input"): _scores_gradient}, batching="each", loads=("input",), stores=(0,), over="input")
def cross_entropy_gradient(
    grad: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    stats: Tensor,
    reduction: str,
    ignore_index: int,
    smoothing: float,
) -> NewTensor:
    """The gradient with respect to the scores, from the scores and the statistics that the forward kernel saved."""
    return input.shape, input.dtype, input.device


cross_entropy_gradient.op.remade = ("input", "input", cross_entropy_gradient)


@internal(
    grads={("grad", "soft"): _kept_gradient},
    batching="each",
    stores=(0,),
    remade=("soft", "input", cross_entropy_gradient),
)
def cross_entropy_backward(
    grad: Tensor,
    soft: Tensor,
    target: Tensor,
    weight: Tensor | None,
    stats: Tensor,
    reduction: str,
    ignore_index: int,
    smoothing: float,
) -> NewTensor:
    """The gradient with respect to the scores, from the probabilities and statistics that the forward kernel saved."""
    return soft.shape, soft.dtype, soft.device


def run_backward(
    grad_input: Tensor, grad: Tensor, soft: Tensor, target: Tensor, weight: Any, stats: Tensor, reduction: str,
    ignore_index: int, smoothing: float, from_scores: bool,
) -> None:  # fmt: skip
    outer, n, inner = plane_layout(soft.shape)
    p, g, t = dense(soft), dense(grad), dense(target)
    w = None if weight is None else dense(weight)
    options = {"reduction": reduction, "smooth": smoothing > 0, "from_scores": from_scores}
    if inner == 1:
        kernels.cross_entropy_backward_rows(
            grad_input, g, stats, p, t, w, outer, n, ignore_index, float(smoothing), **options
        )
    else:
        kernels.cross_entropy_backward_columns(
            grad_input, g, stats, p, t, w, outer, n, inner, ignore_index, float(smoothing), **options
        )


@cross_entropy_backward.op.as_aten
def _(recorder: Any, grad: Tensor, soft: Tensor, *settings: Any) -> Tensor:
    return _gradient_in_aten(recorder, grad, recorder.unseen(soft.log), *settings)


@cross_entropy_gradient.op.as_aten
def _(recorder: Any, grad: Tensor, input: Tensor, *settings: Any) -> Tensor:
    logs = recorder.unseen(lambda: input.to(opmath(input.dtype)).log_softmax(_classes(input)))
    return recorder.aten._to_copy.default(_gradient_in_aten(recorder, grad, logs, *settings), dtype=input.dtype)


def _gradient_in_aten(
    recorder: Any, grad: Tensor, logs: Tensor, target: Tensor, weight: Any, stats: Tensor, *settings: Any
) -> Tensor:
    """Return the gradient of the scores, from the logarithms of the probabilities."""
    *usual, smoothing = settings
    if smoothing:
        share = recorder.again(_smooth_gradient, (grad, logs, target, weight, *settings), {})
    else:
        share = recorder.again(nll_loss_backward, (grad, logs, target, weight, stats, *usual), {})
    return recorder.aten._log_softmax_backward_data.default(share, logs, _classes(logs), logs.dtype)


def _smooth_nll(
    logs: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, smoothing: float
) -> Tensor:
    """Return the loss, of which a share goes to all classes, from the logarithms of the probabilities."""
    if not smoothing:
        return nll(logs, target, weight, reduction, ignore_index)
    losses = _smooth_gradient(
        logs, logs, target, weight, "sum" if reduction == "none" else reduction, ignore_index, smoothing
    )
    return losses.sum(_classes(logs)) if reduction == "none" else losses.sum()


def _smooth_gradient(grad: Tensor, logs: Tensor, target: Tensor, weight: Any, reduction: str, *settings: Any) -> Tensor:
    """Return the gradient of `_smooth_nll`, which is linear, with respect to the logarithms."""
    hit, spread, _ = _shares(logs, target, weight, reduction, *settings)
    return (hit + spread) * -(grad.unsqueeze(_classes(logs)) if reduction == "none" else grad)


cross_entropy_backward.on("any")(partial(run_backward, from_scores=False))
cross_entropy_gradient.on("any")(partial(run_backward, from_scores=True))


def _indices_gradient(
    g: tuple[Any, ...],
    hidden: Tensor,
    target: Tensor,
    weight: Any,
    stats: Tensor,
    reduction: str,
    ignore_index: int,
    smoothing: float,
    wide: bool,
) -> Any:
    """Return the gradient of the scores, from those of the loss and, in second derivatives, of the saved values."""
    of_loss, of_kept = g
    share: Any = None
    if of_loss is not None:
        backward = cross_entropy_gradient if wide else cross_entropy_backward
        share = backward(of_loss, hidden, target, weight, stats, reduction, ignore_index, smoothing)
    if of_kept is None:
        return share
    other = of_kept if wide else softmax_backward(of_kept, hidden, _classes(hidden), hidden.dtype)
    return other if share is None else share + other


def _recorded_layouts(input: Tensor, *arguments: Any) -> list[tuple[Any, ...]]:
    return [*loss_layouts(input, *arguments), (input.shape, input.dtype, input.device)]


@internal(layout=loss_layouts, saves=("stats",), runs_empty=True, batching="each", sharding="scores", loads=("input",))
def cross_entropy_unrecorded(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int, smoothing: float, wide: bool
) -> Tensor:  # fmt: skip
    """cross_entropy_indices if the derivative is not needed, or the scores stay unchanged until it is computed."""


@internal(
    layout=_recorded_layouts,
    saves=("stats", "hidden"),
    grads={"input": _indices_gradient},
    quirks=Quirks(label="NllLossBackward0"),
    runs_empty=True,
    batching="each",
    sharding="scores",
    loads=("input",),
    lean=cross_entropy_unrecorded,
)
def cross_entropy_indices(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int, smoothing: float, wide: bool
) -> Tensor:  # fmt: skip
    """Softmax and negative log-likelihood in one pass over the scores. The probabilities are saved for the backward pass, which reads them
    and not the scores: those may be overwritten. `wide`: scores in half precision, a loss in float32; a copy of the scores is saved, from
    which the probabilities are recomputed as if the scores had been converted."""


@cross_entropy_indices.op.as_aten
@cross_entropy_unrecorded.op.as_aten
def _(
    recorder: Any, input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, smoothing: float, wide: bool
) -> Any:  # fmt: skip
    if wide:
        scores = recorder.aten.to.dtype(input, dt.float32)
        number = REDUCTIONS.index(reduction)
        return recorder.aten.cross_entropy_loss.default(scores, target, weight, number, ignore_index, smoothing)
    logs = recorder.aten.log_softmax.int(input, _classes(input))
    return recorder.again(_smooth_nll, (logs, target, weight, reduction, ignore_index, smoothing), {})


def launch_indices(
    out: list[Tensor], input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, smoothing: float, wide: bool
) -> None:  # fmt: skip
    loss, stats, soft = out if len(out) == 3 else (*out, None)
    outer, n, inner = plane_layout(input.shape)
    x, t = dense(input), dense(target)
    w = None if weight is None else dense(weight)
    options = {"reduction": reduction, "smooth": smoothing > 0, "copies": wide}
    if inner == 1:
        kernels.cross_entropy_rows(loss, stats, soft, x, t, w, outer, n, ignore_index, float(smoothing), **options)
    else:
        kernels.cross_entropy_columns(
            loss, stats, soft, x, t, w, outer, n, inner, ignore_index, float(smoothing), **options
        )


# -- cross entropy with probabilities -----------------------------------------------------------------------------------


def _cross_entropy_probabilities(
    input: Tensor, target: Tensor, weight: Any, reduction: str, smoothing: float
) -> Tensor:
    if not target.dtype.is_floating_point:
        raise RuntimeError(
            f"Expected floating point type for target with class probabilities, got {target.dtype.scalar_type}"
        )
    classes = _classes(input)
    n = input.shape[classes]
    if weight is not None and (len(weight.shape) != 1 or weight.shape[0] != n):
        raise RuntimeError(
            "cross_entropy: weight tensor should be defined either for all"
            f" {n} classes or no classes but got weight tensor of shape: {list(weight.shape)}"
        )
    if smoothing > 0:
        target = target * (1 - smoothing) + smoothing / n
    product = input.log_softmax(classes) * target
    if weight is not None:
        product = product * weight.reshape([n if d == classes else 1 for d in range(len(input.shape))])
    if reduction == "none":
        return -product.sum(classes)
    total = -product.sum()
    return total / (numel_of(input.shape) // n if n else 0) if reduction == "mean" else total


def _smoothing(given: float) -> float:
    """The share of a label that goes to all classes; negative shares are none, as in PyTorch."""
    if given > 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {given:g}")
    return max(given, 0.0)


def _by_index(
    input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, label_smoothing: float, wide: bool
) -> Tensor:
    key = (input.shape, input.dtype, target.shape, target.dtype)
    if weight is not None or label_smoothing or key not in _accepted:
        label_smoothing = _smoothing(label_smoothing)
        check_classes("nll_loss", input, target, weight, wide)
        remember(_accepted, key, True)
    kept = grad_mode.enabled and (input._autograd is not None or input._base is not None) and input.requires_grad
    loss = cross_entropy_indices if kept else cross_entropy_unrecorded
    return loss(input, target, weight, reduction, ignore_index, label_smoothing, wide)


def _in_float32(
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: Any = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the cross entropy of half-precision scores in float32."""
    word = read_reduction(reduction, size_average, reduce)
    return _by_index(input, target, weight, word, ignore_index, label_smoothing, True)


def _autocast_loss(run: AnyFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, AnyFunction]:
    """Choose a loss that reads half-precision scores directly, instead of a float32 copy: equal but for the order of sums."""
    given = {**dict(zip(("input", "target", "weight"), args)), **kwargs}
    scores, target, weight = (given.get(name) for name in ("input", "target", "weight"))
    if (
        not isinstance(scores, Tensor)
        or not isinstance(target, Tensor)
        or scores.dtype not in (dt.float16, dt.bfloat16)
    ):
        return "float32", run
    by_index = not target.dtype.is_floating_point and scores.shape != target.shape
    return ("", _in_float32) if by_index and (weight is None or weight.dtype is dt.float32) else ("float32", run)


@functional_loss(
    "cross_entropy_loss(input, target, weight, reduction, ignore_index, label_smoothing)", autocast=_autocast_loss
)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: Any = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The loss of scores `input` (N, C, ...) against class indices (N, ...) or class probabilities (N, C, ...)."""
    if not isinstance(input, Tensor) or not isinstance(target, Tensor):
        need_tensors("cross_entropy_loss", input=input, target=target)
    reduction = read_reduction(reduction, size_average, reduce)
    if input.shape == target.shape and len(input.shape) > 0:
        label_smoothing = _smoothing(label_smoothing)
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        return _cross_entropy_probabilities(input, target, weight, reduction, label_smoothing)
    return _by_index(input, target, weight, reduction, ignore_index, label_smoothing, False)


declare_kernels(launch_indices, cross_entropy_indices, cross_entropy_unrecorded)
