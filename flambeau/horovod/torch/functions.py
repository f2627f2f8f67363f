"""Broadcasts of parameters, optimizer state and objects."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...core.dtype import BY_NAME
from ...core.tensor import Tensor, copy_of_array
from . import operations, state
from .state import ProcessSet, global_process_set


def broadcast_parameters(params: Any, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Broadcast a state dict, or (name, parameter) pairs, in place."""
    pairs: Iterable = sorted(params.items()) if isinstance(params, dict) else list(params)
    handles = []
    for name, parameter in pairs:
        if isinstance(parameter, Tensor):
            handles.append(operations.broadcast_async_(parameter.detach(), root_rank, name, process_set))
    for handle in handles:
        operations.synchronize(handle)


def broadcast_optimizer_state(
    optimizer: Any, root_rank: int, model: Any = None, process_set: ProcessSet = global_process_set
) -> None:
    """Broadcast an optimizer's state and settings."""
    if type(optimizer).__name__ == "LBFGS":
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and parameter.grad is None:
                # As after a step, which Horovod makes here.
                parameter.grad = parameter.detach().new_zeros(parameter.shape)
    own = optimizer.state_dict()
    told = broadcast_object(own, root_rank, process_set=process_set)
    if state.rank() != root_rank:
        type(optimizer).load_state_dict(optimizer, told)


def _as_tensor(obj: Any) -> Tensor:
    return copy_of_array(np.frombuffer(pickle.dumps(obj), np.uint8), BY_NAME["uint8"])


def broadcast_object(
    obj: Any = None, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Send an object from `root_rank` to all processes of the set, and return it."""
    data = pickle.dumps(obj) if state.rank() == root_rank else None
    parts = allgather_object(data, name, process_set)
    ranks = process_set.ranks or list(range(state.size()))
    return obj if state.rank() == root_rank else pickle.loads(parts[ranks.index(root_rank)])


def allgather_object(obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> list:
    """Return every rank's object, in the order of ranks."""
    data = _as_tensor(obj)
    size = copy_of_array(np.array([data.numel()]), BY_NAME["int64"])
    sizes = operations.synchronize(
        operations.allgather_async(size, None if name is None else f"{name}.size", process_set)
    )
    joined = operations.synchronize(operations.allgather_async(data, name, process_set))
    return [pickle.loads(part.numpy().tobytes()) for part in joined.split(sizes.tolist())]
