"""Adam and its relatives: AdamW, Adamax, NAdam, RAdam."""

from __future__ import annotations

from typing import Any

from ..compat.former_names import settle
from ..core.tensor import Tensor
from .elementwise import ElementwiseOptimizer, configured
from .formula import decayed, descending, lerp, maximum, sqrt, where
from .fused import update
from .optimizer import ParamsT


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

    _first_options = "lr betas eps weight_decay amsgrad maximize"
    update = adam
    sparse_name = "Adam"
    sparse_advice = ", please consider SparseAdam instead"

    @configured
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
        if not any(all(isinstance(b, kind) for b in betas) for kind in (float, Tensor)):
            raise ValueError("betas must be either both floats or both Tensors")

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")

    def _options(self, group: dict[str, Any]) -> dict[str, Any]:
        if group["foreach"] and isinstance(group["lr"], Tensor) and not group["capturable"]:
            raise RuntimeError("lr as a Tensor is not supported for capturable=False and foreach=True")
        return super()._options(group)


class AdamW(Adam):
    """Adam with weight decay apart from the gradient: param -= lr * weight_decay * param."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
            differentiable=differentiable, fused=fused, decoupled_weight_decay=True,
        )  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # checkpoints from before this was an option of Adam say nothing about it
            group["decoupled_weight_decay"] = True


@update(scalars=("step",))
def adamax(param, grad, exp_avg, exp_inf, step, *, lr, beta1, beta2, eps, weight_decay, maximize):
    step = step + 1
    grad = descending(param, grad, weight_decay, maximize)
    exp_avg = lerp(exp_avg, grad, 1 - beta1)
    exp_inf = maximum(beta2 * exp_inf, abs(grad) + eps)
    param = param - lr / (1 - beta1**step) * (exp_avg / exp_inf)
    return {"param": param, "exp_avg": exp_avg, "exp_inf": exp_inf, "step": step}


class Adamax(ElementwiseOptimizer):
    """Adam based on the infinity norm of past gradients."""

    update = adamax
    zero_states = ("exp_avg", "exp_inf")

    @configured
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
    ) -> None: ...


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

    _first_options = "lr betas eps weight_decay momentum_decay decoupled_weight_decay maximize"
    update = nadam
    zero_states = ("exp_avg", "exp_avg_sq")

    @configured
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
    ) -> None: ...

    def _new_state(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> dict[str, Any]:
        return {**super()._new_state(group, p, grad), "mu_product": self._scalar(1.0, group, p)}


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

    _first_options = "lr betas eps weight_decay maximize foreach capturable"
    update = radam
    zero_states = ("exp_avg", "exp_avg_sq")

    @configured
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
    ) -> None: ...


settle(__name__)
