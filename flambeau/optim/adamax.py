"""Adamax: Adam with the largest recent gradient in place of the root mean square."""

from __future__ import annotations

from ..core.tensor import Tensor
from .elementwise import ElementwiseOptimizer, check_adam
from .formula import lerp, maximum
from .fused import update
from .optimizer import ParamsT


@update(scalars=("step",))
def adamax(param, grad, exp_avg, exp_inf, step, *, lr, beta1, beta2, eps, weight_decay, maximize):
    step = step + 1
    if maximize:
        grad = -grad
    if weight_decay is not None:
        grad = grad + weight_decay * param
    exp_avg = lerp(exp_avg, grad, 1 - beta1)
    exp_inf = maximum(beta2 * exp_inf, abs(grad) + eps)
    param = param - lr / (1 - beta1**step) * (exp_avg / exp_inf)
    return {"param": param, "exp_avg": exp_avg, "exp_inf": exp_inf, "step": step}


class Adamax(ElementwiseOptimizer):
    """Adam based on the infinity norm of past gradients."""

    update = adamax
    zero_states = ("exp_avg", "exp_inf")
    later_options = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_adam(lr, betas, eps, weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)
