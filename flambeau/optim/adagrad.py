"""Steps scaled by past gradients or by their signs: Adagrad, Adadelta, RMSprop, Rprop; averaged descent: ASGD."""

from __future__ import annotations

from typing import Any

from ..compat.former_names import settle
from ..core.tensor import Tensor
from ..ops.creation.filled import full_like, zeros_like
from .elementwise import ElementwiseOptimizer, check_range, configured
from .formula import descending, lerp, maximum, minimum, sign, sqrt, where
from .fused import update
from .optimizer import ParamsT, number
from .sparse_gradient import entries


@update(scalars=("step",))
def adagrad(param, grad, sum, step, *, lr, lr_decay, eps, weight_decay, maximize):
    grad = descending(param, grad, weight_decay, maximize)
    sum = sum + grad * grad
    param = param - lr / (1 + step * lr_decay) * (grad / (sqrt(sum) + eps))
    return {"param": param, "sum": sum, "step": step + 1}


class Adagrad(ElementwiseOptimizer):
    """Adaptive gradient descent: large steps for rare features, small ones for frequent features."""

    _first_options = "lr lr_decay eps"
    update = adagrad

    @configured
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
    ) -> None: ...

    def _constructed(self) -> None:
        super()._constructed()
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
        """Move the sums to memory shared with other processes."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()


@update(scalars=("step",))
def adadelta(param, grad, square_avg, acc_delta, step, *, lr, rho, eps, weight_decay, maximize):
    grad = descending(param, grad, weight_decay, maximize)
    square_avg = rho * square_avg + (1 - rho) * grad * grad
    delta = sqrt(acc_delta + eps) / sqrt(square_avg + eps) * grad
    acc_delta = rho * acc_delta + (1 - rho) * delta * delta
    return {"param": param - lr * delta, "square_avg": square_avg, "acc_delta": acc_delta, "step": step + 1}


class Adadelta(ElementwiseOptimizer):
    """Scales each gradient by the ratio of recent updates to recent gradients (root mean squares)."""

    _first_options = "lr rho eps weight_decay maximize capturable"
    update = adadelta
    zero_states = ("square_avg", "acc_delta")

    @configured
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
        check_range("rho value", rho, 0 <= rho <= 1)


@update(scalars=("step",))
def rmsprop(
    param, grad, square_avg, momentum_buffer, grad_avg, step,
    *, lr, alpha, eps, weight_decay, momentum, centered, maximize,
):  # fmt: skip
    grad = descending(param, grad, weight_decay, maximize)
    square_avg = alpha * square_avg + (1 - alpha) * grad * grad
    result = {"step": step + 1, "square_avg": square_avg}
    variance = square_avg
    if centered:
        grad_avg = result["grad_avg"] = lerp(grad_avg, grad, 1 - alpha)
        variance = square_avg - grad_avg * grad_avg
    scaled = grad / (sqrt(variance) + eps)
    if momentum is not None:
        scaled = result["momentum_buffer"] = momentum * momentum_buffer + scaled
    result["param"] = param - lr * scaled
    return result


class RMSprop(ElementwiseOptimizer):
    """Adapts to each coordinate's recent gradients; `centered` uses their variance instead of their square."""

    _first_options = "lr momentum alpha eps centered"
    update = rmsprop

    @configured
    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_range("alpha value", alpha, alpha >= 0)

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        wanted = {"square_avg": True, "momentum_buffer": group["momentum"] > 0, "grad_avg": group["centered"]}
        return tuple(name for name, yes in wanted.items() if yes)


@update(scalars=("step",))
def rprop(param, grad, prev, step_size, step, *, shrink, grow, smallest, largest, maximize):
    if maximize:
        grad = -grad
    agreement = grad * prev
    factor = where(agreement > 0, grow, where(agreement < 0, shrink, 1.0))
    step_size = minimum(maximum(step_size * factor, smallest), largest)
    grad = where(agreement < 0, 0.0, grad)  # after a change of sign the next step only takes note of the new one
    return {"param": param - sign(grad) * step_size, "prev": grad, "step_size": step_size, "step": step + 1}


class Rprop(ElementwiseOptimizer):
    """Resilient backpropagation: each coordinate's step grows while its gradient keeps its sign and shrinks otherwise."""

    _first_options = "lr etas step_sizes foreach maximize differentiable"
    update = rprop

    @configured
    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")

    def _new_state(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> dict[str, Any]:
        lr = number(group["lr"])
        sizes = full_like(grad, complex(lr, lr) if p.is_complex() else lr, requires_grad=False)
        return {"step": self._scalar(0.0, group, p), "prev": zeros_like(p), "step_size": sizes}


@update(scalars=("step", "eta", "mu"))
def asgd(param, grad, ax, step, eta, mu, *, lr, lambd, alpha, t0, weight_decay, maximize):
    step = step + 1
    grad = descending(param, grad, weight_decay, maximize)
    param = param * (1 - lambd * eta) - eta * grad
    ax = where(mu == 1, param, ax + (param - ax) * mu)
    eta = lr / (1 + lambd * lr * step) ** alpha
    mu = 1 / maximum(step - t0, 1.0)
    return {"param": param, "ax": ax, "step": step, "eta": eta, "mu": mu}


class ASGD(ElementwiseOptimizer):
    """Gradient descent with decreasing steps; `state[p]["ax"]` is the average of the parameter from step `t0` on."""

    update = asgd
    zero_states = ("ax",)

    @configured
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
    ) -> None: ...

    def _new_state(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> dict[str, Any]:
        scalars = {"eta": self._scalar(number(group["lr"]), group, p), "mu": self._scalar(1.0, group, p)}
        return {**super()._new_state(group, p, grad), **scalars}


settle(__name__)
