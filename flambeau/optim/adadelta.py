"""Adadelta: steps in the units of the parameter, without a global learning rate."""

from __future__ import annotations

from ..core.tensor import Tensor
from .elementwise import ElementwiseOptimizer, check_lr, check_range
from .formula import sqrt
from .fused import update
from .optimizer import ParamsT


@update(scalars=("step",))
def adadelta(param, grad, square_avg, acc_delta, step, *, lr, rho, eps, weight_decay, maximize):
    if maximize:
        grad = -grad
    if weight_decay is not None:
        grad = grad + weight_decay * param
    square_avg = rho * square_avg + (1 - rho) * grad * grad
    delta = sqrt(acc_delta + eps) / sqrt(square_avg + eps) * grad
    acc_delta = rho * acc_delta + (1 - rho) * delta * delta
    return {"param": param - lr * delta, "square_avg": square_avg, "acc_delta": acc_delta, "step": step + 1}


class Adadelta(ElementwiseOptimizer):
    """Scales each gradient by the ratio of recent updates to recent gradients (root mean squares)."""

    update = adadelta
    zero_states = ("square_avg", "acc_delta")
    later_options = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range("rho value", rho, 0 <= rho <= 1)
        check_range("epsilon value", eps, eps >= 0)
        check_range("weight_decay value", weight_decay, weight_decay >= 0)
        defaults = {
            "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)
