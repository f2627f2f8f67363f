"""L-BFGS: a quasi-Newton method with limited memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.grad_mode import enable_grad, no_grad
from ..core.tensor import Tensor
from ..ops.shape.complex_views import view_as_real
from ..ops.shape.joining import cat
from .line_search import strong_wolfe
from .optimizer import Optimizer, ParamsT, check_one_element, to_scalar


class LBFGS(Optimizer):
    """Minimises with an estimate of the curvature, made from the last `history_size` steps. `step` needs a closure that
    computes the loss and its gradients: it is called several times. All parameters are in one group."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_one_element("lr", lr)
        if not lr >= 0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if max_eval is None:
            max_eval = max_iter * 5 // 4
        defaults = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_eval, "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change, "history_size": history_size, "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]

    # -- all parameters as one vector -------------------------------------------------------------------------------
    def _flat_gradient(self) -> Tensor:
        parts = []
        for p in self._params:
            grad = p.grad
            flat = p.new_zeros(p.numel()) if grad is None else (grad.to_dense() if grad.is_sparse else grad).reshape(-1)
            parts.append(view_as_real(flat).reshape(-1) if flat.is_complex() else flat)
        return cat(parts, 0)

    def _add_to_parameters(self, size: Any, direction: Tensor) -> None:
        """Add size * direction to the parameters."""
        offset = 0
        for p in self._params:
            p = view_as_real(p) if p.is_complex() else p
            count = p.numel()
            p.add_(direction[offset : offset + count].view_as(p), alpha=_as_number(size))
            offset += count

    # -- a step -----------------------------------------------------------------------------------------------------
    @no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Run up to `max_iter` iterations; return the loss at the start."""
        evaluate = enable_grad()(closure)
        group = self.param_groups[0]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss = evaluate()
        state["func_evals"] += 1
        gradient = self._flat_gradient()
        if gradient.abs().max() > group["tolerance_grad"]:
            self._iterate(evaluate, group, state, float(first_loss), gradient)
        return first_loss

    def _iterate(
        self, evaluate: Callable[[], Any], group: dict[str, Any], state: dict[str, Any], loss: float, gradient: Tensor
    ) -> None:
        evaluations = 1
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = state["d"] = _direction(state, gradient, group["history_size"])
            if state.get("prev_flat_grad") is None:
                state["prev_flat_grad"] = gradient.clone()
            else:
                state["prev_flat_grad"].copy_(gradient)
            previous = state["prev_loss"] = loss
            lr = to_scalar(group["lr"])
            # The first direction is the gradient itself, whose length means nothing.
            state["t"] = min(1.0, 1.0 / gradient.abs().sum()) * lr if state["n_iter"] == 1 else lr
            slope = gradient.dot(direction)
            if slope > -group["tolerance_change"]:
                return
            last = iteration == group["max_iter"]
            loss, gradient, used = self._advance(
                evaluate, group, state, loss, gradient, slope, group["max_eval"] - evaluations, last
            )
            evaluations += used
            state["func_evals"] += used
            if (
                last
                or evaluations >= group["max_eval"]
                or gradient.abs().max() <= group["tolerance_grad"]
                or direction.mul(state["t"]).abs().max() <= group["tolerance_change"]
                or abs(loss - previous) < group["tolerance_change"]
            ):
                return

    def _advance(
        self,
        evaluate: Callable[[], Any],
        group: dict[str, Any],
        state: dict[str, Any],
        loss: float,
        gradient: Tensor,
        slope: Tensor,
        budget: int,
        last: bool,
    ) -> tuple[float, Tensor, int]:
        """Move along state["d"], by state["t"] or by a line search. Returns loss and gradient there, and the number of calls of the
        closure."""
        direction = state["d"]
        if group["line_search_fn"] is None:
            self._add_to_parameters(state["t"], direction)
            if last:  # the loss there is not used
                return loss, gradient, 0
            return float(evaluate()), self._flat_gradient(), 1
        if group["line_search_fn"] != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        start = [p.clone() for p in self._params]

        def at(size: Any) -> tuple[float, Tensor]:
            self._add_to_parameters(size, direction)
            result = float(evaluate()), self._flat_gradient()
            for p, value in zip(self._params, start):
                p.copy_(value)
            return result

        longest = direction.abs().max()
        loss, gradient, state["t"], used = strong_wolfe(
            at, state["t"], direction, longest, loss, gradient, slope, max_evaluations=budget
        )
        self._add_to_parameters(state["t"], direction)
        return loss, gradient, used


def _as_number(x: Any) -> Any:
    return x.item() if isinstance(x, Tensor) else x


def _direction(state: dict[str, Any], gradient: Tensor, history_size: int) -> Tensor:
    """Return the quasi-Newton direction: minus the inverse curvature, estimated from the history, times the gradient."""
    if state["n_iter"] == 1:
        state["old_dirs"], state["old_stps"], state["ro"], state["H_diag"] = [], [], [], 1
        return gradient.neg()
    changes, steps, weights = state["old_dirs"], state["old_stps"], state["ro"]
    change, step = gradient - state["prev_flat_grad"], state["d"] * state["t"]
    curvature = change.dot(step)
    if curvature > 1e-10:
        if len(changes) == history_size:
            for history in (changes, steps, weights):
                history.pop(0)
        changes.append(change)
        steps.append(step)
        weights.append(1.0 / curvature)
        state["H_diag"] = curvature / change.dot(change)
    return _two_loops(state, gradient, history_size)


def _two_loops(state: dict[str, Any], gradient: Tensor, history_size: int) -> Tensor:
    """Apply the history from the newest pair to the oldest, scale, and back (Nocedal 1980)."""
    changes, steps, weights = state["old_dirs"], state["old_stps"], state["ro"]
    factors = state.setdefault("al", [None] * history_size)
    q = gradient.neg()
    for i in reversed(range(len(changes))):
        factors[i] = steps[i].dot(q) * weights[i]
        q.add_(changes[i], alpha=-factors[i].item())
    r = q * state["H_diag"]
    for i in range(len(changes)):
        back = changes[i].dot(r) * weights[i]
        r.add_(steps[i], alpha=(factors[i] - back).item())
    return r
