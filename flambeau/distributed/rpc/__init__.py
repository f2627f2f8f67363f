"""`torch.distributed.rpc`: call functions on other workers.

>>> rpc.init_rpc("worker0", rank=0, world_size=2)
>>> rpc.rpc_sync("worker1", torch.add, args=(torch.ones(2), 3))
tensor([4., 4.])
>>> rpc.shutdown()

Calls travel pickled, so a worker listens only to processes that have proved that they know the job's secret (docs/distributed.md).
"""

# ruff: noqa: F401

from __future__ import annotations

import itertools
import logging
import numbers
import os
from datetime import timedelta
from typing import Any
from urllib.parse import urlparse

from ...core import naming
from .. import autograd as dist_autograd
from ..rendezvous import rendezvous
from ..store import FileStore, PrefixStore, Store
from ..tcp_store import TCPStore
from . import api, backend_registry, constants, functions, internal, options
from .agent import (
    RpcAgent,
    TensorPipeAgent,
    _get_current_rpc_agent,
    _is_current_rpc_agent_set,
    _reset_current_rpc_agent,
    _set_and_start_rpc_agent,
)
from .api import *
from .api import (
    _all_gather,
    _barrier,
    _delete_all_user_and_unforked_owner_rrefs,
    _destroy_rref_context,
    _rref_context_get_debug_info,
    _set_rpc_timeout,
    _wait_all,
    _wait_all_workers,
    get_rpc_timeout,
)
from .constants import DEFAULT_INIT_METHOD as _DEFAULT_INIT_METHOD
from .constants import DEFAULT_NUM_WORKER_THREADS as _DEFAULT_NUM_WORKER_THREADS
from .constants import DEFAULT_RPC_TIMEOUT_SEC as _DEFAULT_RPC_TIMEOUT_SEC
from .constants import UNSET_RPC_TIMEOUT as _UNSET_RPC_TIMEOUT
from .options import RpcBackendOptions, TensorPipeRpcBackendOptions, WorkerInfo
from .rref import PyRRef

__all__ = ["BackendType", "TensorPipeRpcBackendOptions", "init_rpc", "is_available", *api.__all__]
__all__ += [name for name in backend_registry.__all__ if name != "BackendType"]

logger = logging.getLogger(__name__)
_worlds = itertools.count()
_kept: list[Any] = []  # the rendezvous, which may not end before all processes have come


def is_available() -> bool:
    """Return True: RPC is part of the library."""
    return True


def __getattr__(name: str) -> Any:
    if name in backend_registry.__all__:  # BackendType grows when a backend is registered
        return getattr(backend_registry, name)

    return naming.submodule(__name__, name)


def init_rpc(
    name: str, backend: Any = None, rank: int = -1, world_size: int | None = None, rpc_backend_options: Any = None
) -> None:
    """Make this process a worker called `name`, which can call others and be called. Returns when all workers have joined; without
    `world_size`, workers may join and leave at any time."""
    if backend is not None and not isinstance(backend, backend_registry.BackendType):
        raise TypeError("Argument backend must be a member of BackendType")
    if rpc_backend_options is not None and not isinstance(rpc_backend_options, RpcBackendOptions):
        raise TypeError("Argument rpc_backend_options must be an instance of RpcBackendOptions")
    if backend is None:
        backend = _backend_of_options(rpc_backend_options)
    if rpc_backend_options is None:
        rpc_backend_options = backend_registry.construct_rpc_backend_options(backend)
    if _is_current_rpc_agent_set():
        raise RuntimeError("RPC is already initialized")
    if world_size:
        meeting = rendezvous(rpc_backend_options.init_method, rank=rank, world_size=world_size)
        _kept[:] = [meeting]
        store, rank, world_size = next(meeting)
    else:
        rank = _worker_rank(rpc_backend_options.init_method, rank)
        store, world_size = _open_store(rpc_backend_options.init_method, rank), None
    store.set_timeout(timedelta(seconds=rpc_backend_options.rpc_timeout))
    store = PrefixStore(f"rpc_prefix_{next(_worlds)}", store)
    kind = b"counted" if world_size else b"as they like"
    if store.compare_set("how workers come", "", kind.decode()) != kind:
        raise RuntimeError("RPC group mixes statically and dynamically initialized members which is not supported.")
    dist_autograd._init(rank)
    _init_rpc_backend(backend, store, name, rank, world_size, rpc_backend_options)


def _worker_rank(init_method: str, rank: int) -> int:
    """Return the rank of a worker in a dynamic group: given, or from the environment."""
    scheme = urlparse(init_method).scheme
    if rank >= 0:
        return rank
    if scheme != "env":
        raise ValueError(f"Error initializing torch.distributed using {scheme}:// rendezvous: rank parameter missing")
    if "RANK" not in os.environ:
        raise ValueError(
            "Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, but not set"
        )
    return int(os.environ["RANK"])


def _open_store(init_method: str, rank: int) -> Store:
    """Return the store of a dynamic group of workers: at an address, in a file, or from the environment. Rank 0 serves it."""
    place = urlparse(init_method)
    if place.scheme == "file":
        return FileStore(place.netloc + place.path)
    if place.scheme == "tcp" and place.hostname and place.port is not None:
        return TCPStore(place.hostname, place.port, None, rank == 0, multi_tenant=True, wait_for_workers=False)
    if place.scheme == "env" and {"MASTER_ADDR", "MASTER_PORT"} <= set(os.environ):
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        return TCPStore(host, port, None, rank == 0, multi_tenant=True, wait_for_workers=False)
    raise ValueError(f"workers that join as they like meet at tcp://, file:// or env://, not at {init_method!r}")


def _backend_of_options(given: Any) -> Any:
    default = backend_registry.BackendType.TENSORPIPE
    if given is None:
        return default
    for candidate in backend_registry.BackendType:
        if isinstance(given, type(backend_registry.construct_rpc_backend_options(candidate))):
            if candidate != default:
                logger.warning(
                    "RPC was initialized with no explicit backend but with options corresponding to %(backend)s, hence that"
                    " backend will be used instead of the default BackendType.TENSORPIPE. To silence this warning pass"
                    " `backend=%(backend)s` explicitly.",
                    {"backend": candidate},
                )
            return candidate
    raise TypeError(f"Could not infer backend for options {given}")


def _validate_rpc_args(
    backend: Any, store: Any, name: Any, rank: Any, world_size: Any, rpc_backend_options: Any
) -> None:
    expected: tuple[tuple[Any, Any], ...] = (
        (backend, backend_registry.BackendType),
        (store, Store),
        (name, str),
        (rank, numbers.Integral),
        (world_size, (numbers.Integral, type(None))),
        (rpc_backend_options, RpcBackendOptions),
    )
    for argument, kind in expected:
        if not isinstance(argument, kind):
            raise RuntimeError(f"Argument {argument} must be of type {kind} but got type {type(argument)}")


def _init_rpc_backend(
    backend: Any = None,
    store: Any = None,
    name: Any = None,
    rank: int = -1,
    world_size: int | None = None,
    rpc_backend_options: Any = None,
) -> None:
    backend = backend_registry.BackendType.TENSORPIPE if backend is None else backend
    _validate_rpc_args(backend, store, name, rank, world_size, rpc_backend_options)
    if _is_current_rpc_agent_set():
        raise RuntimeError("RPC is already initialized")
    agent = backend_registry.init_backend(
        backend, store=store, name=name, rank=rank, world_size=world_size, rpc_backend_options=rpc_backend_options
    )
    api._init_rpc_states(agent)


@api._require_initialized
def _get_debug_info() -> dict[str, str]:
    return {
        **_rref_context_get_debug_info(),
        **_get_current_rpc_agent().get_debug_info(),
        **dist_autograd._get_debug_info(),
    }
