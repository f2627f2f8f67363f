"""ctc_loss: sequences without alignment."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.device import cpu
from ...core.size import make_size
from ...core.tensor import Tensor, copy_of_array, empty, numel_of
from ...kernels.library import ctc as kernels
from ..machinery.arguments import need_tensors
from ..machinery.declare import composite, internal
from ..machinery.dtype_rules import unsupported
from ..machinery.memory import dense
from .loss_arguments import numbered_form, read_reduction, reduce_loss


def _lengths(name: str, given: Any, batch: int) -> np.ndarray:
    if isinstance(given, Tensor):
        if given.dtype.category != 1:
            raise RuntimeError(f"{name} must be integral")
        values = given._array().reshape(-1)
    else:
        values = np.asarray([int(v) for v in (given if isinstance(given, (tuple, list)) else (given,))])
    if values.size != batch:
        raise RuntimeError(f"{name} must be of size batch_size")
    return values.astype(np.int64)


def _check_range(name: str, values: np.ndarray, most: int | None) -> None:
    if values.size and values.min() < 0:
        raise RuntimeError(f"Expected {name} to have value at least 0, but got value {values.min()}")
    if most is not None and values.size and values.max() > most:
        raise RuntimeError(f"Expected {name} to have value at most {most}, but got value {values.max()}")


def _target_matrix(targets: Tensor, lengths: np.ndarray, classes: int) -> np.ndarray:
    """Targets as one padded row per sample, from such rows or from all targets one after the other."""
    values = targets._array()
    width = int(lengths.max()) if lengths.size else 0
    if values.ndim == 1:
        if values.size != lengths.sum():
            raise RuntimeError(
                f"Expected tensor to have size {lengths.sum()} at dimension 0, but got size {values.size} for argument #2"
                " 'targets'"
            )
        rows = np.zeros((lengths.size, width), np.int64)
        rows[np.arange(width) < lengths[:, None]] = values
    else:
        if values.ndim != 2 or values.shape[0] != lengths.size or values.shape[1] < width:
            raise RuntimeError(
                f"Expected targets of size [{lengths.size}, at least {width}], but got size {list(values.shape)} for"
                " argument #2 'targets'"
            )
        rows = values[:, :width].astype(np.int64)
    used = rows[np.arange(width) < lengths[:, None]]
    if used.size and not (used.min() >= 0 and used.max() < classes):
        raise RuntimeError(
            f"targets must be in label range [0, {classes}), but got values {used.min()} ... {used.max()}"
        )
    return np.ascontiguousarray(np.where(np.arange(width) < lengths[:, None], rows, 0))


def _ctc_grad(
    g: Tensor,
    log_probs: Tensor,
    labels: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    zero_infinity: bool,
    out: Tensor,
    alpha: Tensor,
) -> Tensor:
    steps, samples, classes = log_probs.shape
    result = empty(log_probs.shape, log_probs.dtype, log_probs.device)
    beta = empty(alpha.shape, alpha.dtype, alpha.device)
    if numel_of(result.shape):
        kernels.ctc_backward(
            result, dense(g), out, alpha, beta, dense(log_probs), labels, input_lengths, target_lengths, steps,
            samples, classes, labels.shape[1], blank, int(zero_infinity),
        )  # fmt: skip
    return result


@internal(grads={"log_probs": _ctc_grad}, label="CtcLossBackward0")
def ctc_losses(
    log_probs: Tensor,
    labels: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    alpha: Tensor,
    blank: int,
    zero_infinity: bool,
) -> Tensor:
    """One loss per sample."""
    steps, samples, classes = log_probs.shape
    out = empty(make_size((samples,)), log_probs.dtype, log_probs.device)
    if samples:
        kernels.ctc_forward(
            out, alpha, dense(log_probs), labels, input_lengths, target_lengths, steps, samples, classes,
            labels.shape[1], blank,
        )  # fmt: skip
    return out


def _losses(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int, zero_infinity: bool
) -> tuple[Tensor, Tensor, np.ndarray]:
    """Losses, alpha and target lengths of a batch, after PyTorch's checks."""
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
    labels = copy_of_array(_target_matrix(targets, wanted, classes), dt.int64)
    alpha = empty(make_size((samples, steps, 2 * labels.shape[1] + 1)), log_probs.dtype, log_probs.device)
    if log_probs.device is not cpu:
        return empty(make_size((samples,)), log_probs.dtype, log_probs.device), alpha, wanted
    lengths = (copy_of_array(given, dt.int64), copy_of_array(wanted, dt.int64))
    return ctc_losses(log_probs, labels, *lengths, alpha, blank, zero_infinity), alpha, wanted


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
    loss, _, wanted = _losses(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
    if zero_infinity:
        loss = loss.masked_fill(loss == float("inf"), 0)  # type: ignore[attr-defined]
    if reduction == "mean":
        return (loss / copy_of_array(np.maximum(wanted, 1), dt.int64)).mean()  # type: ignore[operator]
    return loss.squeeze(0) if single and reduction == "none" else reduce_loss(loss, reduction)  # type: ignore[attr-defined]


@composite(namespaces=("nn.functional",), method=False)
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: Any = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative log-likelihood of label sequences under (steps, samples, classes) log-probabilities, over all ways to
    align them."""
    chosen = read_reduction(reduction)
    return _ctc(log_probs, targets, input_lengths, target_lengths, blank, chosen, zero_infinity)
