"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..ops.creation.filled import zeros_like
from .elementwise import ElementwiseOptimizer, configured
from .formula import descending, detached
from .fused import update
from .optimizer import ParamsT, number
from .sparse_gradient import entries


@update()
def sgd(param, grad, momentum_buffer, *, lr, momentum, dampening, weight_decay, nesterov, maximize, first):
    grad = descending(param, grad, weight_decay, maximize)
    if momentum is None:
        return {"param": param - lr * grad}
    momentum_buffer = detached(grad) if first else momentum * momentum_buffer + (1 - dampening) * grad
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

    @configured
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
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")

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
        """Make the first gradient the momentum buffer."""
        state["momentum_buffer"] = zeros_like(p)
        self._run(group, [p], {**self._options(group), "first": True})
        return True

    def __setstate__(self, state: dict[str, Any]) -> None:
        for group in state["param_groups"]:
            group.setdefault("fused", False)  # as PyTorch reads older checkpoints; a new SGD has None
        super().__setstate__(state)
        for saved in self.state.values():
            if "momentum_buffer" in saved and saved["momentum_buffer"] is None:
                del saved["momentum_buffer"]  # PyTorch's for a parameter that has had no gradient yet
