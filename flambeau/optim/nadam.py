"""NAdam: Adam with Nesterov momentum."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from .elementwise import ElementwiseOptimizer, check_adam, check_range
from .formula import decayed, lerp, sqrt
from .fused import update
from .optimizer import ParamsT


@update(scalars=("step", "mu_product"))
def nadam(
    param, grad, exp_avg, exp_avg_sq, step, mu_product,
    *, lr, beta1, beta2, eps, weight_decay, momentum_decay, decoupled, maximize,
):  # fmt: skip
    step = step + 1
    param, grad = decayed(param, grad, lr, weight_decay, decoupled, maximize)
    mu = beta1 * (1 - 0.5 * 0.96 ** (step * momentum_decay))
    mu_next = beta1 * (1 - 0.5 * 0.96 ** ((step + 1) * momentum_decay))
    mu_product = mu_product * mu
    exp_avg = lerp(exp_avg, grad, 1 - beta1)
    exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * grad * grad
    denominator = sqrt(exp_avg_sq * (1 / (1 - beta2**step))) + eps
    param = param - lr * (1 - mu) / (1 - mu_product) * (grad / denominator)
    param = param - lr * mu_next / (1 - mu_product * mu_next) * (exp_avg / denominator)
    return {"param": param, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "step": step, "mu_product": mu_product}


class NAdam(ElementwiseOptimizer):
    """Adam that looks one step of momentum ahead; `momentum_decay` lets the momentum grow during the first steps."""

    update = nadam
    zero_states = ("exp_avg", "exp_avg_sq")
    later_options = {
        "maximize": False, "foreach": None, "capturable": False, "differentiable": False,
        "decoupled_weight_decay": False,
    }  # fmt: skip

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_adam(lr, betas, eps, weight_decay)
        check_range("momentum_decay value", momentum_decay, momentum_decay >= 0)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _new_state(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> dict[str, Any]:
        return {**super()._new_state(group, p, grad), "mu_product": self._scalar(1.0, group, p)}
