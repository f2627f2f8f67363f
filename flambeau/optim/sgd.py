"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..ops.creation.filled import zeros_like
from .elementwise import ElementwiseOptimizer, check_fused_options, check_lr, check_range, nonzero, to_scalar
from .formula import detached
from .fused import update
from .optimizer import ParamsT, number
from .sparse_gradient import entries


@update()
def sgd(param, grad, momentum_buffer, *, lr, momentum, dampening, weight_decay, nesterov, maximize, first):
    if maximize:
        grad = -grad
    if weight_decay is not None:
        grad = grad + weight_decay * param
    if momentum is None:
        return {"param": param - lr * grad}
    if first:
        momentum_buffer = detached(grad)
    else:
        momentum_buffer = momentum * momentum_buffer + (1 - dampening) * grad
    direction = grad + momentum * momentum_buffer if nesterov else momentum_buffer
    return {"param": param - lr * direction, "momentum_buffer": momentum_buffer}


class SGD(ElementwiseOptimizer):
    """param -= lr * grad, where with momentum the gradient is a running sum.

    >>> w = flambeau.ones(2, requires_grad=True)
    >>> optimizer = flambeau.optim.SGD([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([0.8000, 0.8000], requires_grad=True)
    """

    update = sgd
    later_options = {"nesterov": False, "maximize": False, "foreach": None, "differentiable": False, "fused": False}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check_range("momentum value", momentum, momentum >= 0)
        check_range("weight_decay value", weight_decay, weight_decay >= 0)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "foreach": foreach, "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_fused_options(self)

    def _options(self, group: dict[str, Any]) -> dict[str, Any]:
        return {
            "lr": to_scalar(group["lr"]),
            "momentum": nonzero(group["momentum"]),
            "dampening": group["dampening"],
            "weight_decay": nonzero(group["weight_decay"]),
            "nesterov": bool(group["nesterov"]),
            "maximize": bool(group["maximize"]),
            "first": False,
        }

    def _sparse_gradient(self, group: dict[str, Any], p: Tensor, options: dict[str, Any]) -> None:
        """Update only the entries of a sparse gradient, unless momentum moves all."""
        grad: Any = p.grad
        if options["weight_decay"] is not None:
            raise RuntimeError("add(sparse, dense) is not supported: a sparse gradient takes no weight_decay")
        if options["momentum"] is not None:
            p.grad = grad.to_dense()
            try:
                self.update.run_tensors(self, group, p, options)
            finally:
                p.grad = grad
            return
        where, values = entries(grad)
        step = number(options["lr"])
        p[where] = p[where].add_(values, alpha=step if options["maximize"] else -step)

    def _begin(self, group: dict[str, Any], state: dict[str, Any], p: Tensor, grad: Tensor) -> bool:
        """The first gradient becomes the buffer."""
        state["momentum_buffer"] = zeros_like(p)
        self._run(group, [p], {**self._options(group), "first": True})
        return True

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for saved in self.state.values():
            if "momentum_buffer" in saved and saved["momentum_buffer"] is None:
                del saved["momentum_buffer"]  # PyTorch's for a parameter that has had no gradient yet
