"""Calls between workers: `rpc_sync`, `rpc_async`, `remote`, and `shutdown`."""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ... import futures
from ...core.locks import new_lock
from ...futures import Future
from . import rref as _rref
from .agent import (
    TensorPipeAgent,
    _get_current_rpc_agent,
    _is_current_rpc_agent_set,
    _reset_current_rpc_agent,
    _set_and_start_rpc_agent,
)
from .constants import DEFAULT_SHUTDOWN_TIMEOUT, UNSET_RPC_TIMEOUT
from .internal import PythonUDF, RPCExecMode, _build_rpc_profiling_key, _internal_rpc_pickler
from .options import WorkerInfo
from .references import references
from .rref import PyRRef, RRef

__all__ = [
    "AllGatherStates", "RRef", "get_worker_info", "method_factory", "new_method", "remote", "rpc_async", "rpc_sync", "shutdown",
]  # fmt: skip

logger = logging.getLogger(__name__)
_ignore_rref_leak = True  # whether shutdown passes over references that are still there
_default_pickler: Any = _internal_rpc_pickler
_thread_local_var = threading.local()


def _require_initialized(function: Callable) -> Callable:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not _is_current_rpc_agent_set():
            raise RuntimeError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")
        return function(*args, **kwargs)

    return wrapper


@contextlib.contextmanager
def _use_rpc_pickler(rpc_pickler: Any) -> Iterator[None]:
    """Context manager: encode calls with this pickler."""
    global _default_pickler
    _default_pickler = rpc_pickler
    try:
        yield
    finally:
        _default_pickler = _internal_rpc_pickler


@contextlib.contextmanager
def _wait_all() -> Iterator[None]:
    """Context manager: on exit, wait for all futures that `rpc_async` returned inside."""
    _thread_local_var.future_list = []
    try:
        yield
    finally:
        try:
            futures.wait_all(_thread_local_var.future_list)
        finally:
            del _thread_local_var.future_list


# -- who ------------------------------------------------------------------------------------------------------------------------


@_require_initialized
def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """Return name and id of a worker; by default of this one."""
    agent = _get_current_rpc_agent()
    return agent.get_worker_info() if worker_name is None else agent.get_worker_info(worker_name)


def _to_worker_info(to: Any) -> WorkerInfo:
    if isinstance(to, WorkerInfo):
        return to
    if isinstance(to, (str, int)):
        return _get_current_rpc_agent().get_worker_info(to)
    raise ValueError(f"Cannot get WorkerInfo from name {to}")


def get_rpc_timeout() -> float:
    """Return the default timeout of a call in seconds."""
    return _get_current_rpc_agent().timeout


def _set_rpc_timeout(seconds: float) -> None:
    _get_current_rpc_agent().timeout = float(seconds)


# -- calls ----------------------------------------------------------------------------------------------------------------------


def _invoke_rpc(to: Any, func: Any, args: tuple | None, kwargs: dict | None, timeout: float) -> Future:
    if not callable(func):
        raise TypeError("function should be callable.")
    return _rref.call(_to_worker_info(to), func, args or (), kwargs or {}, timeout, _default_pickler)


@_require_initialized
def rpc_sync(
    to: Any, func: Callable, args: tuple | None = None, kwargs: dict | None = None, timeout: float = UNSET_RPC_TIMEOUT
) -> Any:
    """Call func(*args, **kwargs) on worker `to` (a name, a rank or a WorkerInfo) and return its result. `timeout` in seconds, 0 for
    none."""
    return _invoke_rpc(to, func, args, kwargs, timeout).wait()


@_require_initialized
def rpc_async(
    to: Any, func: Callable, args: tuple | None = None, kwargs: dict | None = None, timeout: float = UNSET_RPC_TIMEOUT
) -> Future:
    """Call a function on another worker as `rpc_sync` does, but return a future at once."""
    future = _invoke_rpc(to, func, args, kwargs, timeout)
    if hasattr(_thread_local_var, "future_list"):
        _thread_local_var.future_list.append(future)
    return future


@_require_initialized
def remote(
    to: Any, func: Callable, args: tuple | None = None, kwargs: dict | None = None, timeout: float = UNSET_RPC_TIMEOUT
) -> RRef:
    """Call a function on worker `to`, which keeps the result; returns a reference to it at once."""
    if not callable(func):
        raise TypeError("function should be callable.")
    return _rref.create(_to_worker_info(to), func, args or (), kwargs or {}, timeout, _default_pickler)


def method_factory(method_name: str, docstring: str | None) -> Callable:
    """Return a function that calls the method of this name of its first argument."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(super(RRef, self), method_name)(*args, **kwargs)

    method.__doc__ = docstring
    return method


new_method = method_factory


# -- every rank together -----------------------------------------------------------------------------------------------------------


class AllGatherStates:
    """State of an all-gather among workers: the values collected, and whether it is complete."""

    def __init__(self) -> None:
        self.gathered_objects: dict[str, Any] = {}
        self.proceed_signal = threading.Event()


_ALL_WORKER_NAMES: set[Any] = set()
_all_gather_dict_lock = new_lock()
_all_gather_sequence_id: dict[str, int] = {}
_all_gather_sequence_id_to_states: collections.defaultdict = collections.defaultdict(AllGatherStates)


def _init_rpc_states(agent: Any) -> None:
    global _ALL_WORKER_NAMES
    _ALL_WORKER_NAMES = {info.name for info in agent.get_worker_infos()}
    if not _is_current_rpc_agent_set():
        _set_and_start_rpc_agent(agent)


def _gather_to_leader(sequence_id: str, worker_name: str, obj: Any, worker_names: set | None = None) -> None:
    with _all_gather_dict_lock:
        names = worker_names or _ALL_WORKER_NAMES
        if worker_name not in names:
            raise AssertionError(f"{worker_name} is not expected by leader.")
        states = _all_gather_sequence_id_to_states[sequence_id]
        if worker_name in states.gathered_objects:
            raise AssertionError(f"{worker_name} reported intent sequence id {sequence_id} twice. ")
        states.gathered_objects[worker_name] = obj
        if names == set(states.gathered_objects):
            states.proceed_signal.set()


def _broadcast_to_followers(sequence_id: str, objects_map: dict) -> None:
    with _all_gather_dict_lock:
        states = _all_gather_sequence_id_to_states[sequence_id]
    if states.proceed_signal.is_set():
        raise AssertionError(f"Termination signal sequence id {sequence_id} got set twice.")
    states.gathered_objects = objects_map
    states.proceed_signal.set()


@_require_initialized
def _all_gather(obj: Any, worker_names: set | None = None, timeout: float = UNSET_RPC_TIMEOUT) -> dict[str, Any]:
    """Return every worker's object by its name, collected by the worker whose name comes first."""
    names = set(worker_names or _ALL_WORKER_NAMES)
    leader, me = min(names), _get_current_rpc_agent().get_worker_info().name
    together = "".join(sorted(names))
    with _all_gather_dict_lock:
        number = _all_gather_sequence_id.get(together, 0)
        _all_gather_sequence_id[together] = number + 1
    meeting = f"{together}{number}"
    seconds = get_rpc_timeout() if timeout == UNSET_RPC_TIMEOUT else timeout
    patience = None if timeout in (UNSET_RPC_TIMEOUT, DEFAULT_SHUTDOWN_TIMEOUT) else timeout
    if me == leader:
        _gather_to_leader(meeting, me, obj, names)
    else:
        rpc_sync(leader, _gather_to_leader, args=(meeting, me, obj, names), timeout=seconds)
    with _all_gather_dict_lock:
        states = _all_gather_sequence_id_to_states[meeting]
    if not states.proceed_signal.wait(patience):
        raise RuntimeError(f"not all of {sorted(names)} have come within {patience} seconds")
    if me == leader:
        _tell_followers(meeting, states.gathered_objects, names - {leader}, seconds)
    with _all_gather_dict_lock:
        return _all_gather_sequence_id_to_states.pop(meeting).gathered_objects


def _tell_followers(meeting: str, objects: dict, followers: set, seconds: float) -> None:
    told = {f: rpc_async(f, _broadcast_to_followers, args=(meeting, objects), timeout=seconds) for f in followers}
    errors = []
    for follower, future in told.items():
        try:
            future.wait()
        except RuntimeError as problem:
            errors.append((follower, problem))
    if errors:
        raise RuntimeError(
            f"Followers {[e[0] for e in errors]} timed out in _all_gather after {seconds:.2f} seconds. The first exception is"
            f" {errors[0][1]}"
        )


@_require_initialized
def _barrier(worker_names: Any) -> None:
    """Wait for all of these workers."""
    try:
        _all_gather(None, set(worker_names))
    except RuntimeError:
        logger.exception("Failed to complete barrier")


@_require_initialized
def _wait_all_workers(timeout: float = DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """Wait until all workers have called this."""
    try:
        _all_gather(None, timeout=timeout)
    except RuntimeError:
        logger.exception("Failed to respond to 'Shutdown Proceed' in time")
        raise


# -- the end ----------------------------------------------------------------------------------------------------------------------


def _delete_all_user_and_unforked_owner_rrefs(timeout: float = 0) -> None:
    references.delete_all_users(timeout)


def _destroy_rref_context(ignore_leak: bool) -> None:
    references.forget(ignore_leak)


def _rref_context_get_debug_info() -> dict[str, str]:
    return references.debug_info()


@_require_initialized
def shutdown(graceful: bool = True, timeout: float = DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """Shut this worker down. With `graceful`, wait until all workers have called this and no call is pending."""
    try:
        if graceful:
            agent = _get_current_rpc_agent()
            if not isinstance(agent, TensorPipeAgent) or agent.is_static_group:
                _wait_all_workers(timeout)
            _delete_all_user_and_unforked_owner_rrefs()
            agent.join(shutdown=True, timeout=timeout)
    finally:
        _finalize_shutdown()


def _finalize_shutdown() -> None:
    try:
        _destroy_rref_context(_ignore_rref_leak)
    finally:
        _get_current_rpc_agent().shutdown()
        _reset_current_rpc_agent()


_NAMES_OF_OTHERS = (PyRRef, PythonUDF, RPCExecMode, _build_rpc_profiling_key)
