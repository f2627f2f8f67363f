"""Adagrad: steps shrink with the sum of all squared gradients."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..ops.creation.filled import full_like
from .elementwise import ElementwiseOptimizer, check_fused_options, check_lr, check_range
from .formula import sqrt
from .fused import update
from .optimizer import ParamsT, number
from .sparse_gradient import entries


@update(scalars=("step",))
def adagrad(param, grad, sum, step, *, lr, lr_decay, eps, weight_decay, maximize):
    if maximize:
        grad = -grad
    if weight_decay is not None:
        grad = grad + weight_decay * param
    sum = sum + grad * grad
    param = param - lr / (1 + step * lr_decay) * (grad / (sqrt(sum) + eps))
    return {"param": param, "sum": sum, "step": step + 1}


class Adagrad(ElementwiseOptimizer):
    """Large steps for rare features, small ones for frequent features."""

    update = adagrad
    later_options = {"foreach": None, "maximize": False, "differentiable": False, "fused": None}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check_range("lr_decay value", lr_decay, lr_decay >= 0)
        check_range("weight_decay value", weight_decay, weight_decay >= 0)
        check_range("initial_accumulator_value value", initial_accumulator_value, initial_accumulator_value >= 0)
        check_range("epsilon value", eps, eps >= 0)
        defaults = {
            "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
            "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_fused_options(self)
        for group in self.param_groups:
            for p in group["params"]:
                self._begin(group, self.state[p], p, p)

    def _new_state(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> dict[str, Any]:
        start = self.defaults["initial_accumulator_value"]
        total = full_like(p, complex(start, start) if p.is_complex() else start, requires_grad=False)
        return {**super()._new_state(group, p, grad), "sum": total}

    def _sparse_gradient(self, group: dict[str, Any], p: Tensor, options: dict[str, Any]) -> None:
        """Update only the entries of a sparse gradient."""
        if options["weight_decay"] is not None:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        state: dict[str, Any] = self.state[p]
        if not state:
            self._begin(group, state, p, p)
        where, grad = entries(p.grad)  # type: ignore[arg-type]
        numbers = {"lr": number(options["lr"]), "lr_decay": options["lr_decay"], "eps": options["eps"]}
        new = adagrad(
            p[where], grad, state["sum"][where], state["step"].item(),
            **numbers, weight_decay=None, maximize=options["maximize"],
        )  # fmt: skip
        p[where], state["sum"][where] = new["param"], new["sum"]
        state["step"] += 1

    def share_memory(self) -> None:
        """Move the sums to memory that other processes see."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()
