"""Gradient scaler for sharded models: ranks agree on whether some gradient is not finite."""

from __future__ import annotations

from typing import Any

from ...amp.grad_scaler import GradScaler
from ...core.tensor import Tensor
from .. import groups
from ..records import all_reduce_
from ..reduce_op import ReduceOp


class ShardedGradScaler(GradScaler):
    """`GradScaler` for parameters that are sharded over ranks."""

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: Any = None,
    ) -> None:
        super().__init__(
            device, init_scale=init_scale, backoff_factor=backoff_factor, growth_factor=growth_factor,
            growth_interval=growth_interval, enabled=enabled,
        )  # fmt: skip
        self.process_group = process_group

    def scale(self, outputs: Any) -> Any:
        if isinstance(outputs, Tensor) and self._enabled:
            return super().scale(outputs).to(outputs.dtype)
        return super().scale(outputs)

    def _unscale_grads_(self, optimizer: Any, factor: Tensor, allow_fp16: bool = True) -> dict[Any, Tensor]:
        found = super()._unscale_grads_(optimizer, factor, True)
        group = self.process_group or groups._get_default_group()
        if not found:  # this rank may have no gradients
            found = {factor.device: factor.new_zeros(())}
        for value in found.values():
            all_reduce_(value, ReduceOp.MAX, group)
        return found
