"""Encoding of calls: a pickle of everything but the tensors, which are sent separately."""

from __future__ import annotations

import collections
import copyreg
import io
import pickle
import sys
import threading
import traceback
import types
from collections.abc import Callable
from enum import Enum
from typing import Any

from ...core import naming
from ...core.tensor import Tensor
from ...futures import Future

__all__ = ["PythonUDF", "RPCExecMode", "RemoteException", "deserialize", "serialize"]

PythonUDF = collections.namedtuple("PythonUDF", ["func", "args", "kwargs"])  # noqa: PYI024
RemoteException = collections.namedtuple("RemoteException", ["msg", "exception_type"])  # noqa: PYI024


class RPCExecMode(Enum):
    """Mode in which a remote function is called."""

    SYNC = "sync"
    ASYNC = "async"
    ASYNC_JIT = "async_jit"
    REMOTE = "remote"


class _Tables(threading.local):
    """The tensors of the message that this thread is writing or reading."""

    sending: list[Tensor] | None = None
    receiving: list[Tensor] | None = None


_tables = _Tables()


def _received_tensor(index: int) -> Tensor:
    assert _tables.receiving is not None
    return _tables.receiving[index]


def _send_tensor(tensor: Tensor) -> tuple:
    assert _tables.sending is not None
    _tables.sending.append(tensor)
    return _received_tensor, (len(_tables.sending) - 1,)


def _function_of(room: str, name: str) -> Any:
    return getattr(naming.load(room), name)


class _Pickler(pickle.Pickler):
    """Pickler that finds functions whose `__module__` is `flambeau` in the module that actually holds them."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, types.FunctionType) or obj.__module__ != naming.PACKAGE:
            return NotImplemented
        name: str = obj.__name__
        for room in (f"{naming.PACKAGE}{part}" for part in ("", ".linalg", ".special", ".fft", ".nn.functional")):
            if getattr(naming.load(room), name, None) is obj:
                return NotImplemented if room == naming.PACKAGE else (_function_of, (room, name))
        return NotImplemented


def _refuse_future(future: Future) -> Any:
    raise RuntimeError("Can not pickle torch.futures.Future")


class _InternalRPCPickler:
    """Encodes objects as (bytes, tensors) and decodes them. RRefs can be written by this pickler only."""

    def __init__(self) -> None:
        self._class_reducer_dict: dict[type, Callable] = {}

    def _register_reducer(self, obj_class: type, reducer: Callable) -> None:
        self._class_reducer_dict.setdefault(obj_class, reducer)

    def _table(self) -> dict[type, Callable]:
        return {**copyreg.dispatch_table, Tensor: _send_tensor, Future: _refuse_future, **self._class_reducer_dict}

    def serialize(self, obj: Any) -> tuple[bytes, list[Tensor]]:
        file = io.BytesIO()
        pickler = _Pickler(file, protocol=5)
        pickler.dispatch_table = self._table()
        before, _tables.sending = _tables.sending, []
        try:
            pickler.dump(obj)
            return file.getvalue(), _tables.sending
        finally:
            _tables.sending = before

    def deserialize(self, binary_data: bytes, tensor_table: list[Tensor]) -> Any:
        before, _tables.receiving = _tables.receiving, tensor_table
        try:
            return pickle.loads(binary_data)
        except AttributeError as problem:  # no such function: an error for the caller
            missing = AttributeError(
                f"{problem} Default RPC pickler does not serialize function code. Ensure that UDFs are defined on both"
                " caller and callee modules."
            )
            missing.__cause__ = problem
            return missing
        finally:
            _tables.receiving = before


_internal_rpc_pickler = _InternalRPCPickler()
serialize = _internal_rpc_pickler.serialize
deserialize = _internal_rpc_pickler.deserialize


def remote_exception(problem: BaseException, where: Any) -> RemoteException:
    """Return an error of a called function in the form in which it is sent to the caller."""
    text = f"On {where}:\n{problem!r}\n{''.join(traceback.format_exception(problem))}"
    print(text, file=sys.stderr)
    return RemoteException(text, type(problem))


def raise_remote(result: Any) -> Any:
    """Return a result, or raise the remote error that it represents."""
    if not isinstance(result, RemoteException):
        return result
    message = result.msg.encode("utf-8").decode("unicode_escape")
    try:
        problem = result.exception_type(message)
    except BaseException as again:
        raise RuntimeError(
            f"Failed to create original exception type. Error msg was {again} Original exception on remote side was {message}"
        ) from again
    try:
        raise problem
    finally:
        del problem  # its traceback holds this frame: together they would keep the callers' references alive


_handle_exception = raise_remote


def _build_rpc_profiling_key(
    exec_type: RPCExecMode, func_name: str, current_worker_name: str, dst_worker_name: str
) -> str:
    return f"rpc_{exec_type.value}#{func_name}({current_worker_name} -> {dst_worker_name})"
