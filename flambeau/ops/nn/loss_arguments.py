"""Common part of all losses: the reduction argument, its legacy forms, the reduction itself, and checks of classes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from ...core import dtype as dt
from ...core.dtype import opmath
from ...core.graph import grad_mode
from ...core.tensor import Tensor
from ..machinery.arguments import as_int
from ..machinery.declare import composite
from ..machinery.dtype_rules import unsupported
from ..machinery.parameters import parameter_names

_REDUCTIONS = ("none", "mean", "sum")


def functional_loss(aten: Any, autocast: Any = "float32", **fields: Any) -> Callable[[Callable[..., Any]], Any]:
    """Declare a loss of nn.functional, computed in float32 under autocast; `aten` is its call in exported programs."""
    return composite(namespaces=("nn.functional",), method=False, autocast=autocast, aten=aten, **fields)


def read_reduction(reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> str:
    """Return "none", "mean" or "sum", from PyTorch's present argument or the two older ones."""
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
    """Return the reduction as PyTorch's operators take it: 0, 1, 2 for "none", "mean", "sum"."""
    word = read_reduction(reduction, size_average, reduce)
    return 1 if word == "mean" else 2 if word == "sum" else 0


def numbered_form(name: str, **fields: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: declare `nn.functional.NAME` as `torch.NAME`, too, with the reduction as a number. Its default is "none": torch.kl_div(x, y)
    and the like return all losses, although their schema promises the mean. `fields` are those of its record."""

    def declare(loss: Callable[..., Any]) -> Callable[..., Any]:
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
    """Return the reduction of a number; unknown numbers mean none."""
    number = as_int(reduction, name, "reduction", place + 1)
    return _REDUCTIONS[number] if 0 <= number < 3 else "none"


def reduce_loss(loss: Tensor, reduction: str) -> Any:
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def target_shape(input: Tensor) -> tuple[int, ...]:
    """Return the shape of class indices for scores (N, C, ...)."""
    return () if len(input.shape) < 2 else (input.shape[0], *input.shape[2:])


def refuse_gradient(function: str, argument: str, value: Tensor) -> None:
    """Raise PyTorch's error if an argument without a derivative requires grad."""
    if value.requires_grad and grad_mode.enabled:
        raise RuntimeError(
            f"The function '{function}' is not differentiable with respect to argument '{argument}'. This input cannot have requires_grad True."
        )


def check_classes(name: str, input: Tensor, target: Tensor, weight: Any, wide: bool = False) -> None:
    """Check shapes and dtypes of a loss with class indices; `wide`: computed in float32 from half-precision scores."""
    shape = input.shape
    if not input.dtype.is_floating_point:
        raise unsupported(f"{name}_out_frame", input.dtype)
    if len(shape) == 0:
        raise RuntimeError(f"{name}: input tensor should be 1D or more, got a tensor with no dimensions")
    expected = target_shape(input)
    if len(shape) == 1 and target.shape not in ((), (1,)):
        if len(target.shape) != 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        raise ValueError(f"For 1D input, 1D target must have size 1, but got target size: {target.shape[0]}")
    if len(shape) > 1 and target.shape != expected:
        if len(shape) == 2 and len(target.shape) > 1 and target.shape[0] == shape[0]:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if len(target.shape) != len(expected):
            raise (ValueError if target.shape[:1] != shape[:1] or not target.shape else RuntimeError)(
                f"Expected target size {list(expected)}, got {list(target.shape)}"
            )
        if target.shape[0] != shape[0]:
            raise ValueError(f"Expected input batch_size ({shape[0]}) to match target batch_size ({target.shape[0]}).")
        raise RuntimeError(f"Expected target size {list(expected)}, got {list(target.shape)}")
    if target.dtype is not dt.int64 and target.dtype is not dt.uint8:
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {target.dtype.scalar_type}")
    if weight is None:
        return
    refuse_gradient(f"{name}{'2d' * (len(shape) > 2)}_forward", "weight", weight)
    n = shape[min(1, len(shape) - 1)]
    if len(weight.shape) != 1 or weight.shape[0] != n:
        raise RuntimeError(
            f"weight tensor should be defined either for all {n} classes or no classes but got weight tensor of shape:"
            f" {list(weight.shape)}"
        )
    if weight.dtype is not (opmath(input.dtype) if wide else input.dtype):
        raise RuntimeError(f"expected scalar type {input.dtype.scalar_type} but found {weight.dtype.scalar_type}")
