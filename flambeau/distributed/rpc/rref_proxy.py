"""`rref.rpc_sync().method(...)`: calls of a referenced value's methods on its owner."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...futures import Future
from . import functions
from .api import rpc_async
from .constants import UNSET_RPC_TIMEOUT
from .rref import RRef


def _local_invoke(rref: RRef, func_name: str, args: tuple, kwargs: dict) -> Any:
    return getattr(rref.local_value(), func_name)(*args, **kwargs)


@functions.async_execution
def _local_invoke_async_execution(rref: RRef, func_name: str, args: tuple, kwargs: dict) -> Any:
    return getattr(rref.local_value(), func_name)(*args, **kwargs)


def _invoke_rpc(rref: RRef, rpc_api: Any, func_name: str, timeout: float, *args: Any, **kwargs: Any) -> Any:
    def invoke(found: Future) -> Any:
        later = hasattr(getattr(found.value(), func_name), "_wrapped_async_rpc_function")
        function = _local_invoke_async_execution if later else _local_invoke
        return rpc_api(rref.owner(), function, args=(rref, func_name, args, kwargs), timeout=timeout)

    kind = rref._get_type(timeout=timeout, blocking=False)
    if rpc_api is not rpc_async:
        kind.wait()
        return invoke(kind)
    result: Future = Future()

    def pass_on(done: Future) -> None:
        try:
            result.set_result(done.value())
        except Exception as problem:
            result.set_exception(problem)

    def start(found: Future) -> None:
        try:
            invoke(found).add_done_callback(pass_on)
        except Exception as problem:
            result.set_exception(problem)

    kind.add_done_callback(start)
    return result


class RRefProxy:
    """Proxy whose attributes call the referenced value's methods of the same name."""

    def __init__(self, rref: RRef, rpc_api: Any, timeout: float = UNSET_RPC_TIMEOUT) -> None:
        self.rref, self.rpc_api, self.rpc_timeout = rref, rpc_api, timeout

    def __getattr__(self, func_name: str) -> Any:
        return partial(_invoke_rpc, self.rref, self.rpc_api, func_name, self.rpc_timeout)
