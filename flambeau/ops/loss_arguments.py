"""What all losses share: the reduction argument, its legacy forms, and how a loss is reduced."""

from __future__ import annotations

import warnings
from typing import Any

from ..core.tensor import Tensor

_BY_NUMBER = ("none", "mean", "sum")


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
    if reduction in _BY_NUMBER:
        return reduction
    if isinstance(reduction, int) and 0 <= reduction < 3:
        return _BY_NUMBER[reduction]
    raise ValueError(f"{reduction} is not a valid value for reduction")


def reduce_loss(loss: Tensor, reduction: str) -> Any:
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss
