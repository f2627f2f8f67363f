"""Losses over classes: cross_entropy, fused with its softmax, and nll_loss."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NoReturn

from ...core import dtype as dt
from ...core.aliases import AnyFunction
from ...core.caching import remember
from ...core.dtype import opmath
from ...core.graph import grad_mode
from ...core.raw_memory import is_zero
from ...core.tensor import Tensor, numel_of
from ...kernels.library import loss as kernels
from ..machinery.arguments import need_tensors
from ..machinery.aten_form import REDUCTIONS, aten_only
from ..machinery.declare import internal
from ..machinery.memory import dense
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor
from .loss_arguments import check_classes, functional_loss, read_reduction, target_shape
from .softmax import softmax_backward

_accepted: dict[tuple[Any, ...], bool] = {}  # shapes and dtypes of scores and targets that have passed the checks


@lru_cache(1024)
def _layout(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the form of scores as (outer, classes, inner): classes are the second dimension, or the only one."""
    if len(shape) < 2:
        return 1, shape[0] if shape else 1, 1
    return shape[0], shape[1], numel_of(shape[2:])


def _loss_layouts(
    input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, smoothing: float = 0.0, wide: bool = False
) -> list[tuple[Any, ...]]:  # fmt: skip
    """Return the layouts of the loss, and of the statistics that kernels save."""
    outer, _, inner = _layout(input.shape)
    full, where = opmath(input.dtype), input.device
    shape = target_shape(input) if reduction == "none" else ()
    return [(shape, full if wide else input.dtype, where), ((3 * outer * inner + kernels.TOTALS,), full, where)]


def _check_targets(stats: Tensor, target: Tensor, classes: int, ignore_index: int) -> None:
    """Raise if the kernel found a target that is no class."""
    place = stats._storage.ptr + (stats.shape[0] - 1) * stats.dtype.itemsize
    if not is_zero(place, stats.dtype.itemsize):
        _refuse_targets(target, classes, ignore_index)


def _refuse_targets(target: Tensor, classes: int, ignore_index: int) -> NoReturn:
    values = target._array()
    bad = values[((values < 0) | (values >= classes)) & (values != ignore_index)]
    raise IndexError(f"Target {bad.flat[0]} is out of bounds.")


def _check_targets_there(stats: Tensor, target: Tensor, classes: int, ignore_index: int) -> None:
    """Check targets on a device whose memory the host cannot read: by copies on the host."""
    _check_targets(stats.cpu(), target.cpu(), classes, ignore_index)


# -- cross entropy with class indices -----------------------------------------------------------------------------------


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
    classes = 1 if len(soft.shape) > 1 else 0
    hit, spread, level = _shares(soft, target, weight, reduction, ignore_index, smoothing)
    scale = grad.unsqueeze(classes) if reduction == "none" else grad
    inner = soft * level - spread - hit
    to_grad = (v * inner).sum(classes) if reduction == "none" else (v * inner).sum()
    return to_grad, v * level * scale


def _shares(
    input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return level, spread and hit for one unit of incoming gradient: the gradient of the loss is softmax * level - spread - hit."""
    classes = 1 if len(input.shape) > 1 else 0
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
    classes, full = 1 if len(input.shape) > 1 else 0, opmath(input.dtype)
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
    outer, n, inner = _layout(soft.shape)
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
def _(
    recorder: Any, grad: Tensor, soft: Tensor, target: Tensor, weight: Any, stats: Tensor, reduction: str, ignore_index: int, smoothing: float
) -> Tensor:  # fmt: skip
    given = grad, recorder.unseen(soft.log), target, weight, stats, reduction, ignore_index, smoothing
    return _gradient_in_aten(recorder, *given)


@cross_entropy_gradient.op.as_aten
def _(
    recorder: Any, grad: Tensor, input: Tensor, target: Tensor, weight: Any, stats: Tensor, reduction: str, ignore_index: int, smoothing: float
) -> Tensor:  # fmt: skip
    classes, full = 1 if len(input.shape) > 1 else 0, opmath(input.dtype)
    logs = recorder.unseen(lambda: input.to(full).log_softmax(classes))
    found = _gradient_in_aten(recorder, grad, logs, target, weight, stats, reduction, ignore_index, smoothing)
    return recorder.aten._to_copy.default(found, dtype=input.dtype)


def _gradient_in_aten(
    recorder: Any, grad: Tensor, logs: Tensor, target: Tensor, weight: Any, stats: Tensor, reduction: str, ignore_index: int, smoothing: float
) -> Tensor:  # fmt: skip
    """Return the gradient of the scores, from the logarithms of the probabilities."""
    if smoothing:
        share = recorder.again(_smooth_share, (grad, logs, target, weight, reduction, ignore_index, smoothing), {})
    else:
        share = recorder.again(nll_loss_backward, (grad, logs, target, weight, stats, reduction, ignore_index), {})
    classes = 1 if len(logs.shape) > 1 else 0
    return recorder.aten._log_softmax_backward_data.default(share, logs, classes, logs.dtype)


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
    other = of_kept if wide else softmax_backward(of_kept, hidden, 1 if len(hidden.shape) > 1 else 0, hidden.dtype)
    return other if share is None else share + other


def _recorded_layouts(input: Tensor, *arguments: Any) -> list[tuple[Any, ...]]:
    return [*_loss_layouts(input, *arguments), (input.shape, input.dtype, input.device)]


@internal(layout=_loss_layouts, saves=("stats",), runs_empty=True, batching="each", sharding="scores", loads=("input",))
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
    logs = recorder.aten.log_softmax.int(input, 1 if len(input.shape) > 1 else 0)
    return recorder.again(_smooth_nll, (logs, target, weight, reduction, ignore_index, smoothing), {})


def launch_indices(
    out: list[Tensor], input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, smoothing: float, wide: bool
) -> None:  # fmt: skip
    loss, stats, soft = out if len(out) == 3 else (*out, None)
    outer, n, inner = _layout(input.shape)
    x, t = dense(input), dense(target)
    w = None if weight is None else dense(weight)
    options = {"reduction": reduction, "smooth": smoothing > 0, "copies": wide}
    if inner == 1:
        kernels.cross_entropy_rows(loss, stats, soft, x, t, w, outer, n, ignore_index, float(smoothing), **options)
    else:
        kernels.cross_entropy_columns(
            loss, stats, soft, x, t, w, outer, n, inner, ignore_index, float(smoothing), **options
        )


def _smooth_nll(
    logs: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, smoothing: float
) -> Tensor:
    """Return the loss of which a share goes to all classes, from the logarithms of the probabilities."""
    if not smoothing:
        return _nll(logs, target, weight, reduction, ignore_index)
    classes = 1 if len(logs.shape) > 1 else 0
    hit, spread, _ = _shares(logs, target, weight, reduction, ignore_index, smoothing)
    losses = ((hit + spread) * logs).sum(classes).neg()
    return losses if reduction == "none" else losses.sum()


def _smooth_share(
    grad: Tensor, logs: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, smoothing: float
) -> Tensor:
    """Return the gradient of `_smooth_nll` with respect to the logarithms."""
    hit, spread, _ = _shares(logs, target, weight, reduction, ignore_index, smoothing)
    scale = grad.unsqueeze(1 if len(logs.shape) > 1 else 0) if reduction == "none" else grad
    return (hit + spread) * -scale


# -- cross entropy with probabilities -----------------------------------------------------------------------------------


def _cross_entropy_probabilities(
    input: Tensor, target: Tensor, weight: Any, reduction: str, smoothing: float
) -> Tensor:
    if not target.dtype.is_floating_point:
        raise RuntimeError(
            f"Expected floating point type for target with class probabilities, got {target.dtype.scalar_type}"
        )
    classes = 1 if len(input.shape) > 1 else 0
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


# -- negative log-likelihood ----------------------------------------------------------------------------------------------


def _nll_second(v: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int) -> Tensor:
    """Return the gradient's gradient: the loss is linear in its input, so it is the loss of `v`."""
    return _nll(v, target, weight, reduction, ignore_index)


@internal(
    grads={"grad": _nll_second},
    batching="each",
)
def nll_loss_backward(
    grad: Tensor, input: Tensor, target: Tensor, weight: Tensor | None, stats: Tensor, reduction: str, ignore_index: int
) -> NewTensor:
    """The gradient of the negative log-likelihood with respect to its input."""
    return input.shape, input.dtype, input.device


@nll_loss_backward.op.as_aten
def _(
    recorder: Any, grad: Tensor, input: Tensor, target: Tensor, weight: Any, stats: Tensor, reduction: str, ignore_index: int
) -> Tensor:  # fmt: skip
    aten, rank = recorder.aten, len(input.shape)
    settings = weight, REDUCTIONS.index(reduction), ignore_index, recorder.unseen(stats.select, 0, -kernels.TOTALS)
    if rank < 3:
        return aten.nll_loss_backward.default(grad, input, target, *settings)
    planes = input, target
    if rank != 4:  # as images of one row
        planes = (aten.view.default(t.contiguous(), [*t.shape[:dim], 1, -1]) for t, dim in ((input, 2), (target, 1)))
        grad = aten.view.default(grad.contiguous(), [target.shape[0], 1, -1]) if reduction == "none" else grad
    found = aten.nll_loss2d_backward.default(grad, *planes, *settings)
    return found if rank == 4 else aten.view.default(found, list(input.shape))


@nll_loss_backward.on("any")
def _(
    out: Tensor,
    grad: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Any,
    stats: Tensor,
    reduction: str,
    ignore_index: int,
) -> None:
    w = None if weight is None else dense(weight)
    kernels.nll_backward(
        out, dense(grad), stats, dense(target), w, *_layout(input.shape), ignore_index, reduction=reduction
    )


def _nll_rule(
    g: Tensor, input: Tensor, target: Tensor, weight: Any, stats: Tensor, reduction: str, ignore_index: int
) -> Tensor:
    return nll_loss_backward(g, input, target, weight, stats, reduction, ignore_index)


def run_nll(out: list[Tensor], input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int) -> None:
    w = None if weight is None else dense(weight)
    kernels.nll(*out, dense(input), dense(target), w, *_layout(input.shape), ignore_index, reduction=reduction)


_NLL: dict[str, Any] = {"layout": _loss_layouts, "saves": ("stats",), "grads": {"input": _nll_rule}, "runs_empty": True}


@internal(
    quirks=Quirks(label="NllLossBackward0"),
    **_NLL,
    batching="each",
    sharding="loss",
    aten="nll_loss_forward(input, target, weight, reduction, ignore_index)[0]",
)
def nll_loss_rows(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int) -> Tensor:
    """The negative log-likelihood of classes in the last dimension."""


@internal(quirks=Quirks(label="NllLoss2DBackward0"), **_NLL, batching="each", sharding="loss")
def nll_loss_planes(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int) -> Tensor:
    """The negative log-likelihood of classes with further dimensions after them."""


@nll_loss_planes.op.as_aten
def _(recorder: Any, input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int) -> Tensor:
    aten, given, number = recorder.aten, target, REDUCTIONS.index(reduction)
    if len(input.shape) != 4:  # as images of one row
        input = aten.view.default(aten.contiguous.default(input), [*input.shape[:2], 1, -1])
        target = aten.view.default(aten.contiguous.default(target), [target.shape[0], 1, -1])
    loss = aten.nll_loss2d_forward.default(input, target, weight, number, ignore_index)[0]
    return loss if reduction != "none" or target is given else aten.view.default(loss, list(given.shape))


def _checked(run: AnyFunction, check: AnyFunction) -> AnyFunction:
    """Return a kernel that runs `run` and then checks the targets."""

    def kernel(
        out: list[Tensor], input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int, *settings: Any
    ) -> None:
        run(out, input, target, weight, reduction, ignore_index, *settings)
        check(out[1], target, _layout(input.shape)[1], ignore_index)

    return kernel


for operator, launch in (
    (cross_entropy_indices, launch_indices), (cross_entropy_unrecorded, launch_indices), (nll_loss_rows, run_nll), (nll_loss_planes, run_nll),
):  # fmt: skip
    operator.on("cpu")(_checked(launch, _check_targets))
    operator.on("any")(_checked(launch, _check_targets_there))


def _nll(input: Tensor, target: Tensor, weight: Any, reduction: str, ignore_index: int) -> Tensor:
    chosen = nll_loss_planes if len(input.shape) > 2 else nll_loss_rows
    return chosen(input, target, weight, reduction, ignore_index)


for _name in ("nll_loss", "nll_loss2d"):

    @aten_only(
        f"{_name}_forward", backward=f"{_name}_backward(grad, self, target, weight, reduction, ignore_index, result1)"
    )
    def _(self: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int) -> tuple[Tensor, Tensor]:
        """Return the loss, and the sum of the weights by which its mean is divided."""
        out = _nll(self, target, weight, REDUCTIONS[reduction], ignore_index)
        kept = target != ignore_index
        weights = self.new_ones(target.shape) if weight is None else weight[target * kept]
        return out, (weights * kept).sum() if reduction or not target.dim() else self.new_zeros(())


_NLL_NAMES = tuple(
    f"{name}(input, target, weight, reduction, ignore_index)" for name in ("nll_loss_nd", "nll_loss", "nll_loss2d")
)


@functional_loss(_NLL_NAMES)
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: Any = "mean",
) -> Tensor:
    """The negative log-likelihood of class indices (N, ...) under log-probabilities (N, C, ...)."""
    need_tensors("nll_loss_nd", input=input, target=target)
    reduction = read_reduction(reduction, size_average, reduce)
    if not input.shape:
        raise ValueError("Expected 1 or more dimensions (got 0)")
    check_classes("nll_loss", input, target, weight)
    return _nll(input, target, weight, reduction, ignore_index)
