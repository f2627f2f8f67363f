"""Rprop: steps that follow the sign of the gradient only."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..ops.creation.filled import full_like, zeros_like
from .elementwise import ElementwiseOptimizer, check_lr
from .formula import maximum, minimum, sign, where
from .fused import update
from .optimizer import ParamsT, number


@update(scalars=("step",))
def rprop(param, grad, prev, step_size, step, *, shrink, grow, smallest, largest, maximize):
    if maximize:
        grad = -grad
    agreement = grad * prev
    factor = where(agreement > 0, grow, where(agreement < 0, shrink, 1.0))
    step_size = minimum(maximum(step_size * factor, smallest), largest)
    grad = where(agreement < 0, 0.0, grad)  # after a change of sign the next step only takes note of the new one
    return {"param": param - sign(grad) * step_size, "prev": grad, "step_size": step_size, "step": step + 1}


class Rprop(ElementwiseOptimizer):
    """Resilient backpropagation: each coordinate's step grows while its gradient keeps its sign and shrinks otherwise."""

    update = rprop
    later_options = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _new_state(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> dict[str, Any]:
        lr = number(group["lr"])
        sizes = full_like(grad, complex(lr, lr) if p.is_complex() else lr, requires_grad=False)
        return {"step": self._scalar(0.0, group, p), "prev": zeros_like(p), "step_size": sizes}

    def _options(self, group: dict[str, Any]) -> dict[str, Any]:
        shrink, grow = group["etas"]
        smallest, largest = group["step_sizes"]
        return {
            "shrink": shrink,
            "grow": grow,
            "smallest": smallest,
            "largest": largest,
            "maximize": bool(group["maximize"]),
        }
