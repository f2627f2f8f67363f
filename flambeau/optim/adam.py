"""Adam: adaptive moment estimation."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from .elementwise import ElementwiseOptimizer, check_adam, check_fused_options, to_scalar
from .formula import decayed, lerp, maximum, sqrt
from .fused import update
from .optimizer import ParamsT, check_one_element


@update(scalars=("step",))
def adam(
    param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, step,
    *, lr, beta1, beta2, eps, weight_decay, decoupled, amsgrad, maximize,
):  # fmt: skip
    step = step + 1
    param, grad = decayed(param, grad, lr, weight_decay, decoupled, maximize)
    exp_avg = lerp(exp_avg, grad, 1 - beta1)
    exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * grad * grad
    result = {"step": step, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
    second = exp_avg_sq
    if amsgrad:
        second = result["max_exp_avg_sq"] = maximum(max_exp_avg_sq, exp_avg_sq)
    denominator = sqrt(second) * (1 / sqrt(1 - beta2**step)) + eps  # one division per element, below, is slow enough
    result["param"] = param - lr / (1 - beta1**step) * (exp_avg / denominator)
    return result


class Adam(ElementwiseOptimizer):
    """Steps of about `lr` in each coordinate: the gradient's running mean over the root of its running square.

    >>> w = flambeau.ones(2, requires_grad=True)
    >>> optimizer = flambeau.optim.Adam([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.9000, 0.9000], requires_grad=True)
    """

    update = adam
    sparse_name = "Adam"
    sparse_advice = ", please consider SparseAdam instead"
    later_options = {
        "amsgrad": False, "maximize": False, "foreach": None, "capturable": False, "differentiable": False,
        "decoupled_weight_decay": False, "fused": None,
    }  # fmt: skip

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        for name, value in (("lr", lr), ("betas[0]", betas[0]), ("betas[1]", betas[1])):
            if isinstance(value, Tensor) and foreach and not capturable:
                raise ValueError(f"{name} as a Tensor is not supported for capturable=False and foreach=True")
            check_one_element(name, value)
        check_adam(lr, betas, eps, weight_decay)
        if not any(all(isinstance(b, kind) for b in betas) for kind in (float, Tensor)):
            raise ValueError("betas must be either both floats or both Tensors")
        defaults = {
            "lr": lr, "betas": tuple(map(to_scalar, betas)), "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach, "capturable": capturable,
            "differentiable": differentiable, "fused": fused, "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_fused_options(self)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")

    def _options(self, group: dict[str, Any]) -> dict[str, Any]:
        if group["foreach"] and isinstance(group["lr"], Tensor) and not group["capturable"]:
            raise RuntimeError("lr as a Tensor is not supported for capturable=False and foreach=True")
        return super()._options(group)
