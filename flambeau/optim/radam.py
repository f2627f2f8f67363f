"""RAdam: Adam that trusts its running square only once it has seen enough gradients."""

from __future__ import annotations

from ..core.tensor import Tensor
from .elementwise import ElementwiseOptimizer, check_adam
from .formula import decayed, lerp, sqrt, where
from .fused import update
from .optimizer import ParamsT


@update(scalars=("step",))
def radam(param, grad, exp_avg, exp_avg_sq, step, *, lr, beta1, beta2, eps, weight_decay, decoupled, maximize):
    step = step + 1
    param, grad = decayed(param, grad, lr, weight_decay, decoupled, maximize)
    exp_avg = lerp(exp_avg, grad, 1 - beta1)
    exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * grad * grad
    correction2 = 1 - beta2**step
    # Length of the moving average: how many gradients the running square effectively holds, now and in the end.
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * beta2**step / correction2
    enough = length > 5
    numerator = where(enough, (length - 4) * (length - 2) * longest, 0.0)
    rectified = sqrt(numerator / where(enough, (longest - 4) * (longest - 2) * length, 1.0))
    adaptive = sqrt(correction2) * rectified / (sqrt(exp_avg_sq) + eps)
    move = exp_avg * (lr / (1 - beta1**step))
    param = param - where(enough, move * adaptive, move)
    return {"param": param, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "step": step}


class RAdam(ElementwiseOptimizer):
    """Adam with a rectified start: plain momentum while the variance of the gradient is not yet known."""

    update = radam
    zero_states = ("exp_avg", "exp_avg_sq")
    later_options = {
        "foreach": None, "maximize": False, "differentiable": False, "decoupled_weight_decay": False,
        "capturable": False,
    }  # fmt: skip

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_adam(lr, betas, eps, weight_decay)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
            "foreach": foreach, "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }  # fmt: skip
        super().__init__(params, defaults)
