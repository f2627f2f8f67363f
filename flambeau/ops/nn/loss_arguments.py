"""Common part of all losses: the reduction argument, its legacy forms, and how a loss is reduced."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from ...core.tensor import Tensor
from ..machinery.arguments import as_int
from ..machinery.declare import composite
from ..machinery.parameters import parameter_names

_REDUCTIONS = ("none", "mean", "sum")


def functional_loss(aten: Any, **fields: Any) -> Callable[[Callable], Any]:
    """Declare a loss of nn.functional, computed in float32 under autocast; `aten` is its call in exported programs."""
    return composite(namespaces=("nn.functional",), method=False, autocast="float32", aten=aten, **fields)


def read_reduction(reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> str:
    """ "none", "mean" or "sum", from PyTorch's argument of today or from the two that came before it."""
    if size_average is not None or reduce is not None:
        if reduce is not None and not reduce:
            reduction = "none"
        elif size_average is None or size_average:
            reduction = "mean"
        else:
            reduction = "sum"
        text = f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead."
        warnings.warn(text, stacklevel=4)
    if reduction != "mean" and reduction != "sum" and reduction != "none":  # noqa: PLR1714  as compiled code says it
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def reduction_number(reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> int:
    """The reduction as PyTorch's operators take it: 0, 1, 2 for "none", "mean", "sum"."""
    word = read_reduction(reduction, size_average, reduce)
    return 1 if word == "mean" else 2 if word == "sum" else 0


def numbered_form(name: str, **fields: Any) -> Callable[[Callable], Callable]:
    """Declare what computes `nn.functional.NAME` as `torch.NAME` too, where the reduction is a number. Its default is
    "none": torch.kl_div(x, y) and the like return all losses, although their schema promises the mean. `fields` are those of its record."""

    def declare(loss: Callable) -> Callable:
        place = parameter_names(loss).index("reduction")

        @functools.wraps(loss)
        def by_number(*args: Any, **kwargs: Any) -> Tensor:
            if len(args) > place:
                args = (*args[:place], _numbered(name, args[place], place), *args[place + 1 :])
            elif "reduction" in kwargs:
                kwargs["reduction"] = _numbered(name, kwargs["reduction"], place)
            return loss(*args, **kwargs)

        by_number.__doc__ = f"`nn.functional.{name}` with the reduction as a number."
        composite(name=name, method=False, autocast="float32", **fields)(by_number)
        return loss

    return declare


def _numbered(name: str, reduction: Any, place: int) -> str:
    """Unknown numbers mean none."""
    number = as_int(reduction, name, "reduction", place + 1)
    return _REDUCTIONS[number] if 0 <= number < 3 else "none"


def reduce_loss(loss: Tensor, reduction: str) -> Any:
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss
