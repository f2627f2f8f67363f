"""State of one unit of FullyShardedDataParallel, reduction of its gradients by a hook, and the total gradient norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.tensor import Tensor
from ...ops import namespace
from ...ops.reduce.norms import vector_norm
from ..records import all_reduce_
from ..reduce_op import ReduceOp
from ._fully_shard._fsdp_api import ReduceScatter
from ._fully_shard._fsdp_common import FSDPMeshInfo
from ._fully_shard._fsdp_state import FSDPState
from .api import MixedPrecision

_torch = namespace("torch")


class UnitState(FSDPState):
    """State of one unit, which casts inputs according to `MixedPrecision`."""

    precision: MixedPrecision | None = None
    prefetches = True
    _had_no_root = (True,)  # units that were inside another model may be wrapped again

    def _cast_forward_inputs(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        policy = self.precision
        if policy is None or not (policy.cast_root_forward_inputs if self._is_root else policy.cast_forward_inputs):
            return args, kwargs
        return super()._cast_forward_inputs(args, kwargs)

    def _pre_backward(self, grad: Tensor) -> Tensor:
        if not self.prefetches:
            for group in self._fsdp_param_groups:
                group._post_forward_indices.clear()
        return super()._pre_backward(grad)


class HookReduction(ReduceScatter):
    """Reduce-scatter that calls a user's communication hook."""

    def __init__(self, state: Any, hook: Callable):
        self.state, self.hook = state, hook

    def allocate(self, size: Any, *, dtype: Any, device: Any) -> Tensor:
        return _torch["zeros"](size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        self.hook(self.state, input_tensor, output_tensor)

    def reduce_whole(self, gradient: Tensor) -> None:
        self.hook(self.state, gradient)


def _norm_of_gradients(grads: list[Tensor], kind: float, device: Any) -> Tensor:
    if not grads:
        return _torch["zeros"]((), device=device)
    norms = [vector_norm(g.detach().float().to(device), kind) for g in grads]
    return vector_norm(_torch["stack"](norms), kind)


def total_norm(cut: list[Tensor], whole: list[Tensor], kind: float, info: Any, device: Any) -> Tensor:
    """Return the norm of gradients of which each rank of `info` has a part, and of others that every rank has whole."""
    total = _norm_of_gradients(cut, kind, device)
    if isinstance(info, FSDPMeshInfo):
        endless = kind == float("inf")
        total = total if endless else total**kind
        all_reduce_(total, ReduceOp.MAX if endless else ReduceOp.SUM, info.shard_process_group)
        total = total if endless else total ** (1.0 / kind)
    return _norm_of_gradients([total, _norm_of_gradients(whole, kind, device)], kind, device) if whole else total
