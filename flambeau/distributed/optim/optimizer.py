"""DistributedOptimizer: an optimizer for parameters on several workers, with gradients of a distributed backward pass."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ... import futures
from ...core.locks import new_lock
from .. import autograd as dist_autograd
from .. import rpc
from ..rpc import RRef

__all__ = ["DistributedOptimizer"]


class _LocalOptimizer:
    """The optimizer of one worker's parameters."""

    lock = new_lock()  # steps of different contexts change the same parameters

    def __init__(self, optim_cls: Any, local_params_rref: list[RRef], *args: Any, **kwargs: Any) -> None:
        self._local_params = [rref.local_value() for rref in local_params_rref]
        self.optim = optim_cls(self._local_params, *args, **kwargs)

    def step(self, autograd_ctx_id: int) -> None:
        gradients = dist_autograd.get_gradients(autograd_ctx_id)
        with _LocalOptimizer.lock:
            before = [p.grad for p in self._local_params]
            for parameter in self._local_params:
                parameter.grad = gradients.get(parameter)
            try:
                self.optim.step()
            finally:
                for parameter, held in zip(self._local_params, before, strict=True):
                    parameter.grad = held


def _new_local_optimizer(optim_cls: Any, local_params_rref: list[RRef], *args: Any, **kwargs: Any) -> RRef:
    return RRef(_LocalOptimizer(optim_cls, local_params_rref, *args, **kwargs))


def _local_optimizer_step(local_optim_rref: RRef, autograd_ctx_id: int) -> None:
    local_optim_rref.local_value().step(autograd_ctx_id)


class DistributedOptimizer:
    """Makes an `optimizer_class` on each worker that owns some of the parameters; all of them step together."""

    def __init__(self, optimizer_class: Any, params_rref: list[RRef], *args: Any, **kwargs: Any) -> None:
        by_owner: dict[Any, list[RRef]] = defaultdict(list)
        for parameter in params_rref:
            by_owner[parameter.owner()].append(parameter)
        self.is_functional_optim = False
        self.remote_optimizers = futures.wait_all(
            [
                rpc.rpc_async(worker, _new_local_optimizer, args=(optimizer_class, owned, *args), kwargs=kwargs)
                for worker, owned in by_owner.items()
            ]
        )

    def step(self, context_id: int) -> None:
        """Take a step on every worker, with the gradients of this autograd context."""
        dist_autograd._is_valid_context(context_id)
        futures.wait_all(
            [
                rpc.rpc_async(optimizer.owner(), _local_optimizer_step, args=(optimizer, context_id))
                for optimizer in self.remote_optimizers
            ]
        )
