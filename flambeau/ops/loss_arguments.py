"""What all losses share: the reduction argument, its legacy forms, and how a loss is reduced."""

from __future__ import annotations

import warnings
from typing import Any

from ..core.tensor import Tensor
from .arguments import as_int

_REDUCTIONS = ("none", "mean", "sum")
DEFAULT_NUMBER = 0  # torch.kl_div(x, y) and the like return all losses, although their schema promises the mean


def read_reduction(reduction: Any, size_average: Any = None, reduce: Any = None) -> str:
    """ "none", "mean" or "sum", from PyTorch's argument of today or from the two that came before it."""
    if size_average is not None or reduce is not None:
        average = True if size_average is None else size_average
        reduction = "none" if reduce is not None and not reduce else "mean" if average else "sum"
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.",
            UserWarning,
            stacklevel=4,
        )
    if reduction not in _REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def numbered_reduction(name: str, reduction: Any, position: int) -> str:
    """The reduction of the losses in the torch namespace, which take its number; unknown numbers mean none."""
    number = as_int(reduction, name, "reduction", position)
    return _REDUCTIONS[number] if 0 <= number < 3 else "none"


def reduce_loss(loss: Tensor, reduction: str) -> Any:
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss
