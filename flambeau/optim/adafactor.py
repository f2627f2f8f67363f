"""Adafactor: second moments of matrices stored as a row and a column."""

from __future__ import annotations

from typing import Any

from ..core.numeric_limits import finfo
from ..core.tensor import Tensor
from ..ops.creation.filled import full, zeros_like
from .optimizer import EachParameter, ParamsT, check_one_element, number, scalar_dtype


class Adafactor(EachParameter):
    """Adaptive steps with memory for one row and one column per matrix. The step is relative to the parameter's size,
    at most `lr`, and clipped where the update's root mean square exceeds `d`."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_one_element("lr", lr)
        for name, value, relation, valid in (
            ("Learning rate", lr, ">= 0", lr >= 0),
            ("beta2_decay", beta2_decay, "<= 0", beta2_decay <= 0),
            ("epsilon1", eps[0], ">= 0", eps[0] is None or eps[0] >= 0),
            ("epsilon2", eps[1], ">= 0", eps[1] >= 0),
            ("Clipping threshold d", d, ">= 1", d >= 1),
            ("weight_decay", weight_decay, ">= 0", weight_decay >= 0),
        ):
            if not valid:
                raise ValueError(f"{name} should be {relation} but is: {value}")
        defaults = {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay,
            "foreach": foreach, "maximize": maximize,
        }  # fmt: skip
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
            for p in group["params"]:
                saved = self.state.get(p)
                if saved and not isinstance(saved["step"], Tensor):
                    saved["step"] = full((), float(saved["step"]), dtype=scalar_dtype())

    def _state_of(self, p: Tensor, grad: Tensor) -> dict[str, Any]:
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        if grad.is_sparse:
            raise RuntimeError("Adafactor does not support sparse gradients")
        state = self.state[p]
        if not state:
            fresh = {"step": full((), 0.0, dtype=scalar_dtype())}
            if grad.dim() > 1:
                fresh["row_var"] = grad.new_zeros((*grad.shape[:-1], 1))
                fresh["col_var"] = grad.new_zeros((*grad.shape[:-2], 1, grad.shape[-1]))
            else:
                fresh["variance"] = zeros_like(grad)
            state.update(fresh)  # at once, so that an interrupt leaves no part of it
        return state

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self._state_of(p, grad)
        if group["maximize"]:
            grad = -grad
        eps1, eps2 = group["eps"]
        if eps1 is None:
            eps1 = finfo(p.dtype).eps
        lr = number(group["lr"])
        state["step"] += 1
        count = state["step"].item()
        scale = max(eps2, _root_mean_square(p)) * min(lr, count**-0.5)
        if group["weight_decay"] != 0:
            p.mul_(1 - lr * group["weight_decay"])
        variance = _variance(state, grad, count ** group["beta2_decay"], eps1)
        update = variance.clamp_(min=eps1 * eps1).rsqrt_().mul_(grad)
        p.add_(update, alpha=-scale / max(1.0, _root_mean_square(update) / group["d"]))


def _root_mean_square(x: Tensor) -> float:
    return x.square().mean().sqrt().item()


def _variance(state: dict[str, Any], grad: Tensor, weight: float, eps: float) -> Tensor:
    """Return the running mean of the squared gradient; for a matrix, the outer product of its rows' and columns' means."""
    squared = grad * grad
    if grad.dim() <= 1:
        return state["variance"].lerp_(squared, weight).clone()
    rows = state["row_var"].lerp_(squared.mean(dim=-1, keepdim=True), weight)
    columns = state["col_var"].lerp_(squared.mean(dim=-2, keepdim=True), weight)
    return (rows @ columns).div_(rows.mean(dim=-2, keepdim=True).clamp_(min=eps))
