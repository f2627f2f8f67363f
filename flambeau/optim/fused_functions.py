"""`torch._fused_adam_` and `torch._fused_adamw_`: steps of Adam on lists of tensors, without an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.device import cpu
from ..core.graph import unrecorded
from ..core.sharded import SpreadTensor
from ..core.tensor import Tensor
from .adam import adam
from .fused import Parts


def _local_part(tensor: Any, beside: Any) -> Tensor:
    """Return this rank's part of a tensor, placed like another one; numbers are returned unchanged."""
    if not isinstance(tensor, SpreadTensor):
        return tensor
    if tensor.shape == beside.shape and isinstance(beside, SpreadTensor):
        return beside._beside(tensor)
    return tensor._beside(tensor)


def _number(value: Any) -> Any:
    return _local_part(value, value).item() if isinstance(value, Tensor) else value


def _make_function(name: str, decoupled: bool) -> Callable[..., None]:
    def fused(
        self: Sequence[Tensor],
        grads: Sequence[Tensor],
        exp_avgs: Sequence[Tensor],
        exp_avg_sqs: Sequence[Tensor],
        max_exp_avg_sqs: Sequence[Tensor],
        state_steps: Sequence[Tensor],
        *,
        lr: Any,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
    ) -> None:
        if found_inf is not None and found_inf.device is cpu and found_inf.item():  # elsewhere, kernels look
            return
        states: dict[Tensor, dict[str, Any]] = {}
        for i, param in enumerate(self):
            if grad_scale is not None:
                unrecorded(grads[i].div_, grad_scale)
            part = _local_part(param, param).detach()
            part.grad = _local_part(grads[i], param)
            state = {"exp_avg": _local_part(exp_avgs[i], param), "exp_avg_sq": _local_part(exp_avg_sqs[i], param)}
            if amsgrad:
                state["max_exp_avg_sq"] = _local_part(max_exp_avg_sqs[i], param)
            # It counts this step itself.
            states[part] = {"step": unrecorded(_local_part(state_steps[i], param).sub, 1), **state}
        options = {
            "lr": _number(lr), "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay, "decoupled": decoupled,
            "amsgrad": amsgrad, "maximize": maximize,
        }  # fmt: skip
        adam.run(Parts(states, found_inf), {}, list(states), options)

    fused.__name__ = fused.__qualname__ = name
    fused.__doc__ = f"One step of Adam{'W' if decoupled else ''} for every parameter of a list, in place; `state_steps` count it already."
    return fused


_fused_adam_ = _make_function("_fused_adam_", False)
_fused_adamw_ = _make_function("_fused_adamw_", True)
