"""Unscaling of the gradients of a scaled loss: all are multiplied by one number, and tested for non-finite elements."""

from __future__ import annotations

from typing import Any

from ...core.tensor import Tensor
from ..machinery.declare import effect
from ..machinery.inplace import raw_copy
from ..machinery.memory import bare


@effect(batching="each")
def unscale_list(found: Tensor, grads: list[Tensor], factor: Tensor) -> Tensor:
    """grads *= factor; `found`, one float32 number, becomes 1 if a gradient was not finite. All are on one device."""


@unscale_list.on("any")
def _(found: Tensor, grads: list[Tensor], factor: Tensor) -> None:
    for grad in grads:
        held: Any = bare(grad)
        flag: Any = bare(found)
        raw_copy(found, (flag + held.isfinite().all().logical_not()).clamp(max=1.0))
        raw_copy(grad, held * bare(factor))
        grad._bump("unscale_")
