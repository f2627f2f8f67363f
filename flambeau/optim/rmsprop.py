"""RMSprop: gradients divided by their recent root mean square."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from .elementwise import ElementwiseOptimizer, check_lr, check_range
from .formula import lerp, sqrt
from .fused import update
from .optimizer import ParamsT


@update(scalars=("step",))
def rmsprop(
    param, grad, square_avg, momentum_buffer, grad_avg, step,
    *, lr, alpha, eps, weight_decay, momentum, centered, maximize,
):  # fmt: skip
    if maximize:
        grad = -grad
    if weight_decay is not None:
        grad = grad + weight_decay * param
    square_avg = alpha * square_avg + (1 - alpha) * grad * grad
    result = {"step": step + 1, "square_avg": square_avg}
    variance = square_avg
    if centered:
        grad_avg = result["grad_avg"] = lerp(grad_avg, grad, 1 - alpha)
        variance = square_avg - grad_avg * grad_avg
    scaled = grad / (sqrt(variance) + eps)
    if momentum is not None:
        scaled = result["momentum_buffer"] = momentum * momentum_buffer + scaled
    result["param"] = param - lr * scaled
    return result


class RMSprop(ElementwiseOptimizer):
    """Adapts to each coordinate's recent gradients; `centered` uses their variance instead of their square."""

    update = rmsprop
    later_options = {
        "momentum": 0, "centered": False, "foreach": None, "maximize": False, "differentiable": False,
        "capturable": False,
    }  # fmt: skip

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range("epsilon value", eps, eps >= 0)
        check_range("momentum value", momentum, momentum >= 0)
        check_range("weight_decay value", weight_decay, weight_decay >= 0)
        check_range("alpha value", alpha, alpha >= 0)
        defaults = {
            "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
            "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        wanted = {"square_avg": True, "momentum_buffer": group["momentum"] > 0, "grad_avg": group["centered"]}
        return tuple(name for name, yes in wanted.items() if yes)
