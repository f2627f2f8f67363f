"""ctc_loss: the loss of label sequences without alignment."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.tensor import Tensor, copy_of_array, empty
from ...kernels.library import ctc as kernels
from ..machinery.arguments import need_tensors
from ..machinery.aten_form import aten_only
from ..machinery.declare import internal
from ..machinery.dtype_rules import unsupported
from ..machinery.memory import dense
from ..machinery.primitive import unknown_derivative
from ..machinery.quirks import Quirks
from ..machinery.record import NewTensor, NewTensors
from .loss_arguments import functional_loss, numbered_form, read_reduction, reduce_loss

Lengths = tuple[int, ...]


def _lengths(name: str, given: Any, batch: int) -> Lengths:
    """Return lengths as numbers, since the shapes of results depend on them."""
    if isinstance(given, Tensor):
        if given.dtype.category != 1:
            raise RuntimeError(f"{name} must be integral")
        values = tuple(given.reshape(-1).tolist())
    else:
        values = tuple(int(v) for v in (given if isinstance(given, (tuple, list)) else (given,)))
    if len(values) != batch:
        raise RuntimeError(f"{name} must be of size batch_size")
    return values


def _check_range(name: str, values: Lengths, most: int | None) -> None:
    if values and min(values) < 0:
        raise RuntimeError(f"Expected {name} to have value at least 0, but got value {min(values)}")
    if most is not None and values and max(values) > most:
        raise RuntimeError(f"Expected {name} to have value at most {most}, but got value {max(values)}")


def _check_targets(targets: Tensor, lengths: Lengths) -> None:
    """Check that targets are one padded row per sample, or all one after the other."""
    shape, width = targets.shape, max(lengths, default=0)
    if len(shape) == 1:
        if shape[0] != sum(lengths):
            raise RuntimeError(
                f"Expected tensor to have size {sum(lengths)} at dimension 0, but got size {shape[0]} for argument #2"
                " 'targets'"
            )
    elif len(shape) != 2 or shape[0] != len(lengths) or shape[1] < width:
        raise RuntimeError(
            f"Expected targets of size [{len(lengths)}, at least {width}], but got size {list(shape)} for"
            " argument #2 'targets'"
        )


def _target_matrix(values: np.ndarray, lengths: np.ndarray, classes: int) -> np.ndarray:
    """Return targets as one padded row per sample."""
    width = int(lengths.max()) if lengths.size else 0
    used = np.arange(width) < lengths[:, None]
    rows = np.zeros(used.shape, np.int64)
    rows[used] = values if values.ndim == 1 else values[:, :width][used]
    if rows[used].size and not (rows[used].min() >= 0 and rows[used].max() < classes):
        raise RuntimeError(
            f"targets must be in label range [0, {classes}), but got values {rows[used].min()} ... {rows[used].max()}"
        )
    return rows


# -- one loss per sample ----------------------------------------------------------------------------------------------


@internal(
    grads={("grad", "log_probs"): unknown_derivative("_ctc_loss_backward")},
    aten="_ctc_loss_backward(grad, log_probs, targets, list(input_lengths), list(target_lengths), losses, alpha, blank, zero_infinity)",
    batching="each",
)  # fmt: skip
def ctc_gradient(
    grad: Tensor,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    losses: Tensor,
    alpha: Tensor,
    blank: int,
    zero_infinity: bool,
) -> NewTensor:
    """The gradient of ctc_losses with respect to the log-probabilities."""
    (steps, samples, _), width = log_probs.shape, max(target_lengths, default=0)
    if losses.shape != (samples,) or grad.shape != losses.shape or alpha.shape != (samples, steps, 2 * width + 1):
        raise RuntimeError(f"gradient and saved results do not fit log-probabilities of sizes {list(log_probs.shape)}")
    _check_range("input_lengths", input_lengths, steps)
    return log_probs.shape, log_probs.dtype, log_probs.device


@ctc_gradient.on("any")
def _(
    out: Tensor, grad: Tensor, log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths,
    losses: Tensor, alpha: Tensor, blank: int, zero_infinity: bool,
) -> None:  # fmt: skip
    lengths, labels = _prepared(log_probs, targets, input_lengths, target_lengths)
    beta = empty(alpha.shape, alpha.dtype, alpha.device)
    kernels.ctc_backward(
        out, dense(grad), losses, alpha, beta, dense(log_probs), labels, *lengths, *log_probs.shape, labels.shape[1],
        blank, int(zero_infinity),
    )  # fmt: skip


def _losses_grad(
    g: tuple[Any, ...], log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths, blank: int,
    zero_infinity: bool, out: list[Tensor],
) -> Tensor | None:  # fmt: skip
    if g[0] is None:
        return None
    return ctc_gradient(g[0], log_probs, targets, input_lengths, target_lengths, *out, blank, zero_infinity)


@internal(
    grads={"log_probs": _losses_grad},
    aten="_ctc_loss(log_probs, targets, list(input_lengths), list(target_lengths), blank, zero_infinity)",
    quirks=Quirks(label="CtcLossBackward0"), batching="each",
)  # fmt: skip
def ctc_losses(
    log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths, blank: int, zero_infinity: bool
) -> NewTensors:
    """A loss per sample, and the logarithms of sums over beginnings of paths. `zero_infinity` matters to the derivative only."""
    (steps, samples, _), width = log_probs.shape, max(target_lengths, default=0)
    d, where = log_probs.dtype, log_probs.device
    return [((samples,), d, where), ((samples, steps, 2 * width + 1), d, where)]


def _prepared(log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths) -> Any:
    """Return the lengths as arrays, and the labels as one padded row per sample on the device."""
    lengths = (np.array(input_lengths, np.int64), np.array(target_lengths, np.int64))
    rows = _target_matrix(targets.cpu()._array(), lengths[1], log_probs.shape[2])
    return lengths, copy_of_array(rows, dt.int64).to(log_probs.device)


@ctc_losses.on("any")
def _(
    out: list[Tensor], log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths, blank: int,
    zero_infinity: bool,
) -> None:  # fmt: skip
    lengths, labels = _prepared(log_probs, targets, input_lengths, target_lengths)
    kernels.ctc_forward(*out, dense(log_probs), labels, *lengths, *log_probs.shape, labels.shape[1], blank)


def _losses(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int, zero_infinity: bool
) -> tuple[Any, Lengths]:
    """Return the results of `ctc_losses` and target lengths of a batch, after PyTorch's checks."""
    if len(log_probs.shape) != 3:
        raise RuntimeError(
            f"Expected 3-dimensional tensor, but got {len(log_probs.shape)}-dimensional tensor for argument #1 'log_probs'"
        )
    if not log_probs.numel():
        raise RuntimeError("log_probs tensor must not be empty")
    if log_probs.dtype is not dt.float32 and log_probs.dtype is not dt.float64:
        raise unsupported("ctc_loss_cpu", log_probs.dtype)
    steps, samples, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    given, wanted = (
        _lengths("input_lengths", input_lengths, samples),
        _lengths("target_lengths", target_lengths, samples),
    )
    _check_range("input_lengths", given, steps)
    _check_range("target_lengths", wanted, None)
    _check_targets(targets, wanted)
    return ctc_losses(log_probs, targets, given, wanted, blank, zero_infinity), wanted


@aten_only("_ctc_loss")
def _ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, zero_infinity: bool = False
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the losses, and the logarithms of sums over beginnings of paths."""
    return _losses(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)[0]


@numbered_form("ctc_loss")
def _ctc(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "none",
    zero_infinity: bool = False,
) -> Tensor:
    need_tensors("ctc_loss", log_probs=log_probs, targets=targets)
    single = len(log_probs.shape) == 2
    if single:
        log_probs, targets = log_probs.unsqueeze(1), targets.reshape(1, -1) if len(targets.shape) == 1 else targets
    (loss, _), wanted = _losses(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
    if zero_infinity:
        loss = loss.masked_fill(loss == float("inf"), 0)
    if reduction == "mean":
        return (loss / loss.new_tensor([max(n, 1) for n in wanted], dtype=dt.int64)).mean()
    return loss.squeeze(0) if single and reduction == "none" else reduce_loss(loss, reduction)


@functional_loss(
    (
        "ctc_loss.Tensor(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)",
        "ctc_loss.IntList(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)",
    )
)
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: Any = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative log-likelihood of label sequences under (steps, samples, classes) log-probabilities, over all ways to align them."""
    chosen = read_reduction(reduction)
    return _ctc(log_probs, targets, input_lengths, target_lengths, blank, chosen, zero_infinity)
