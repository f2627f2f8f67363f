"""ASGD: averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from .elementwise import ElementwiseOptimizer, check_lr, check_range
from .formula import maximum, where
from .fused import update
from .optimizer import ParamsT, number


@update(scalars=("step", "eta", "mu"))
def asgd(param, grad, ax, step, eta, mu, *, lr, lambd, alpha, t0, weight_decay, maximize):
    step = step + 1
    if maximize:
        grad = -grad
    if weight_decay is not None:
        grad = grad + weight_decay * param
    param = param * (1 - lambd * eta) - eta * grad
    ax = where(mu == 1, param, ax + (param - ax) * mu)
    eta = lr / (1 + lambd * lr * step) ** alpha
    mu = 1 / maximum(step - t0, 1.0)
    return {"param": param, "ax": ax, "step": step, "eta": eta, "mu": mu}


class ASGD(ElementwiseOptimizer):
    """Gradient descent with decreasing steps; `state[p]["ax"]` is the average of the parameter from step `t0` on."""

    update = asgd
    zero_states = ("ax",)
    later_options = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check_range("weight_decay value", weight_decay, weight_decay >= 0)
        defaults = {
            "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
            "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
        }  # fmt: skip
        super().__init__(params, defaults)

    def _new_state(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> dict[str, Any]:
        scalars = {"eta": self._scalar(number(group["lr"]), group, p), "mu": self._scalar(1.0, group, p)}
        return {**super()._new_state(group, p, grad), **scalars}
