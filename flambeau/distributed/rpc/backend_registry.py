"""Registry of RPC backends. TENSORPIPE is built in; others can be registered."""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable
from typing import Any

from . import api, constants
from .agent import TensorPipeAgent
from .options import TensorPipeRpcBackendOptions

__all__ = [
    "BackendType", "BackendValue", "backend_registered", "construct_rpc_backend_options", "init_backend", "register_backend",
]  # fmt: skip

BackendValue = collections.namedtuple(  # noqa: PYI024
    "BackendValue", ["construct_rpc_backend_options_handler", "init_backend_handler"]
)


def _kinds(members: dict[str, Any]) -> Any:
    kind: Any = enum.Enum
    made = kind("BackendType", members)
    made.__repr__ = lambda self: f"BackendType.{self.name}"
    made.__doc__ = "The kinds of agents that are registered."
    return made


BackendType: Any = _kinds({})


def backend_registered(backend_name: str) -> bool:
    """Return whether a backend of this name is registered."""
    return backend_name in BackendType.__members__


def register_backend(
    backend_name: str, construct_rpc_backend_options_handler: Callable, init_backend_handler: Callable
) -> Any:
    """Register a backend: how its options are made, and how its agent is started."""
    global BackendType
    if backend_registered(backend_name):
        raise RuntimeError(f"RPC backend {backend_name}: already registered")
    fresh = BackendValue(construct_rpc_backend_options_handler, init_backend_handler)
    BackendType = _kinds({backend_name: fresh, **{member.name: member.value for member in BackendType}})
    return BackendType[backend_name]


def construct_rpc_backend_options(
    backend: Any,
    rpc_timeout: float = constants.DEFAULT_RPC_TIMEOUT_SEC,
    init_method: str = constants.DEFAULT_INIT_METHOD,
    **kwargs: Any,
) -> Any:
    """Return the options of this backend."""
    return backend.value.construct_rpc_backend_options_handler(rpc_timeout, init_method, **kwargs)


def init_backend(backend: Any, *args: Any, **kwargs: Any) -> Any:
    """Start an agent of this backend."""
    return backend.value.init_backend_handler(*args, **kwargs)


def _tensorpipe_options(rpc_timeout: float, init_method: str, **kwargs: Any) -> TensorPipeRpcBackendOptions:
    known = ("num_worker_threads", "_transports", "_channels")
    return TensorPipeRpcBackendOptions(
        rpc_timeout=rpc_timeout, init_method=init_method, **{k: v for k, v in kwargs.items() if k in known}
    )


def _tensorpipe_agent(store: Any, name: str, rank: int, world_size: int | None, rpc_backend_options: Any) -> Any:
    if not isinstance(rpc_backend_options, TensorPipeRpcBackendOptions):
        raise TypeError("`rpc_backend_options` must be a `TensorPipeRpcBackendOptions`")
    agent = TensorPipeAgent(store, name, rank, world_size, rpc_backend_options)
    if world_size is None:
        store.append("members", f"{rank} ")
    api._init_rpc_states(agent)
    if world_size is not None:
        api._all_gather(None, timeout=rpc_backend_options.rpc_timeout)
        store.barrier("ready", world_size)  # no worker leaves before all have been informed
    return agent


register_backend("TENSORPIPE", _tensorpipe_options, _tensorpipe_agent)
