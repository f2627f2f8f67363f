"""RRef: a reference to a value on one worker, its owner, which keeps it as long as any reference exists.

Every reference on another worker is a *fork* with an id, which the owner knows until the reference is deleted. A worker that passes its
reference on keeps it until the owner knows the receiver's fork."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Generic, TypeVar

from ...core import naming
from ...core.tensor import Tensor
from ...futures import Future
from ..autograd import contexts as autograd
from . import constants
from .agent import TensorPipeAgent, _get_current_rpc_agent, timeout_error
from .internal import (
    PythonUDF,
    RemoteException,
    _internal_rpc_pickler,
    deserialize,
    raise_remote,
    remote_exception,
    serialize,
)
from .messages import Message, bare_values, handler, opened, wanted_place
from .options import WorkerInfo
from .references import GloballyUniqueId, Owned, references

T = TypeVar("T")


class RRef(Generic[T]):
    """Reference to a value on some worker. `RRef(value)` makes this worker the owner; `rpc.remote` returns references to values on other
    workers."""

    _fork: GloballyUniqueId | None = None  # None on the owner
    _gone = False
    _confirmed = True
    _problem: Exception | None = None
    _creation: Future | None = None
    _agent: Any = None

    def __init__(self, value: T, type_hint: Any = None) -> None:
        self._become_owner(Owned(references.next_number()))
        self._owned.value.set_result(value)

    def _become_owner(self, owned: Owned) -> None:
        self._owner: WorkerInfo = _get_current_rpc_agent().get_worker_info()
        self._owned, self._number = owned, owned.number
        self._type: Future | None = None

    @classmethod
    def _make_owner(cls, owned: Owned) -> RRef:
        self = object.__new__(cls)
        self._become_owner(owned)
        return self

    @classmethod
    def _make_user(cls, owner: WorkerInfo, number: GloballyUniqueId, fork: GloballyUniqueId) -> RRef:
        self = object.__new__(cls)
        self._owner, self._number, self._fork, self._type = owner, number, fork, None
        self._agent = _get_current_rpc_agent()
        references.users.add(self)
        return self

    def __del__(self) -> None:
        self._delete_fork_at_owner()

    def _delete_fork_at_owner(self) -> None:
        if self._fork is not None and not self._gone:
            self._gone = True
            self._agent.notify(self._owner.id, "delete_fork", (self._number, self._fork))

    # -- what it is ---------------------------------------------------------------------------------------------------------
    def is_owner(self) -> bool:
        """Return whether this worker holds the value."""
        return self._fork is None

    def owner(self) -> WorkerInfo:
        """Return the worker that holds the value."""
        return self._owner

    def owner_name(self) -> str:
        return self._owner.name

    def confirmed_by_owner(self) -> bool:
        """Return whether the owner knows of this reference."""
        return self._confirmed

    def __repr__(self) -> str:
        if self.is_owner():
            return f"OwnerRRef({self._number!r})"
        return f"UserRRef(RRefId = {self._number!r}, ForkId = {self._fork!r})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("Can not pickle rref in python pickler, rref can only be pickled when using RPC")

    def _serialize(self) -> tuple:
        """Make a fork for another worker: return the arguments of `rebuild` there."""
        if not self.is_owner():
            self._check_usable("fork an UserRRef")
        fork = references.next_number()
        if self.is_owner():
            references.add_fork(self._owned, fork)
        else:
            with references.lock:
                references.handed_on[fork] = self
        here = _get_current_rpc_agent().get_worker_info().id
        return self._owner, self._number, fork, here

    @staticmethod
    def _deserialize(data: tuple) -> RRef:
        return rebuild(data)

    def _check_usable(self, what: str) -> None:
        if self._gone:
            where = "it " if "fork" not in what else ""
            raise RuntimeError(
                f"{self} has been deleted. Cannot call {what} {'on ' + where if where else ''}after deletion."
            )
        if self._problem is not None:
            if "ran for more than" in str(self._problem):
                raise RuntimeError(
                    "RRef creation via rpc.remote() timed out, and it is possible that the RRef on the owner node does not exist."
                )
            raise self._problem

    # -- the value ----------------------------------------------------------------------------------------------------------
    def local_value(self) -> T:
        """Return the value; only its owner can."""
        if not self.is_owner():
            raise RuntimeError(
                f"For UserRRef(rref_id={self._number!r}, fork_id={self._fork!r}), can't call localValue() on user"
                f" {_get_current_rpc_agent().get_worker_info()}. Call it on owner {self._owner}"
            )
        return raise_remote(self._owned.value.wait())

    def to_here(self, timeout: float = constants.UNSET_RPC_TIMEOUT) -> T:
        """Return the value; from another worker, a copy of it."""
        if self.is_owner():
            return raise_remote(self._owned.value.wait())
        self._check_usable("to_here()")
        agent = _get_current_rpc_agent()
        message = message_with(agent, self._owner, "fetch", self._number, (b"", []))
        return opened_result(agent.ask(self._owner, message, timeout).wait(), self._owner)

    def _get_type(self, timeout: float = constants.UNSET_RPC_TIMEOUT, blocking: bool = True) -> Any:
        """Return the type of the value, or a future of it."""
        if self._type is None:
            if self.is_owner():
                self._type = self._owned.value._mapped(lambda value: type(raise_remote(value.value())))
            else:
                self._type = call(self._owner, _type_of, (self,), {}, timeout)
        return self._type.wait() if blocking else self._type

    def _get_future(self) -> Future:
        """Return the future of the creation of the value by `rpc.remote`."""
        if self._creation is None:
            raise RuntimeError("this reference was not made by rpc.remote")
        return self._creation

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Run the backward pass from the value, on its owner."""
        if not self.is_owner():
            if dist_autograd_ctx_id == -1:
                raise RuntimeError("User RRefs require 'dist_autograd_ctx_id' to be specified")
            call(self._owner, _backward_on_owner, (self, dist_autograd_ctx_id, retain_graph), {}, 0).wait()
            return
        value: Any = self.local_value()
        if not hasattr(value, "requires_grad"):
            raise RuntimeError(f"RRef should contain a tensor for .backward(), but got {type(value).__name__}")
        if dist_autograd_ctx_id == -1:
            value.backward(retain_graph=retain_graph)
        else:
            autograd.backward(dist_autograd_ctx_id, [value], retain_graph)

    # -- calls of the value's methods ---------------------------------------------------------------------------------------
    def rpc_sync(self, timeout: float = constants.UNSET_RPC_TIMEOUT) -> Any:
        """Return a proxy whose method calls run on the owner: `rref.rpc_sync().method(x)` waits for the result."""
        return self._make_proxy("rpc_sync", timeout)

    def rpc_async(self, timeout: float = constants.UNSET_RPC_TIMEOUT) -> Any:
        """Return a proxy whose method calls run on the owner and return futures."""
        return self._make_proxy("rpc_async", timeout)

    def remote(self, timeout: float = constants.UNSET_RPC_TIMEOUT) -> Any:
        """Return a proxy whose method calls run on the owner and return references to their results."""
        return self._make_proxy("remote", timeout)

    def _make_proxy(self, how: str, timeout: float) -> Any:
        call = getattr(naming.above("distributed.rpc.api"), how)  # calls are made of references, and these of calls
        return naming.above("distributed.rpc.rref_proxy").RRefProxy(self, call, timeout)


PyRRef = RRef


def rebuild(data: tuple) -> RRef:
    """Return the reference that another worker has sent."""
    owner, number, fork, parent = data
    agent = _get_current_rpc_agent()
    here = agent.get_worker_info()
    if owner.id == here.id:
        reference = RRef._make_owner(references.find_owned(number))
        if parent == here.id:
            references.drop_fork(number, fork)
        else:  # the value is needed while the fork that it came from is still there: this one takes part in its life
            references.add_fork(reference._owned, fork)
            weakref.finalize(reference, references.drop_fork, number, fork)
            agent.notify(parent, "fork_accepted", fork)
        return reference
    reference = RRef._make_user(owner, number, fork)
    if parent != owner.id:
        reference._confirmed = False
        with references.lock:
            references.unconfirmed[fork] = reference

        def known(answer: Future) -> None:
            references.confirm(fork)
            agent.notify(parent, "fork_accepted", fork)

        asked = agent.request(owner.id, "add_fork", (number, fork))
        asked.add_done_callback(known)
        if _incoming_forks.futures is not None:
            _incoming_forks.futures.append(asked)
    return reference


_internal_rpc_pickler._register_reducer(RRef, lambda reference: (rebuild, (reference._serialize(),)))


class _IncomingForks(threading.local):
    """Forks in the arguments of a call that this thread is about to run: their owners must be informed first."""

    futures: list[Future] | None = None


_incoming_forks = _IncomingForks()


@handler("add_fork", at_once=True)
def _add_fork(source: WorkerInfo, message: Message) -> None:
    number, fork = message.details
    references.add_fork(references.find_owned(number), fork)


@handler("delete_fork", at_once=True)
def _delete_fork(source: WorkerInfo, message: Message) -> None:
    references.drop_fork(*message.details)


@handler("fork_accepted", at_once=True)
def _fork_accepted(source: WorkerInfo, message: Message) -> None:
    references.release_handed_on(message.details)


def _type_of(reference: RRef) -> type:
    return type(reference.local_value())


def _backward_on_owner(reference: RRef, context: int, retain_graph: bool) -> None:
    reference.backward(context, retain_graph)


# -- calls ----------------------------------------------------------------------------------------------------------------------


def _run(source: WorkerInfo, message: Message) -> Any:
    """Call the function in a message, in its autograd context; return the result, a RemoteException, or a future of one of these."""
    where = _get_current_rpc_agent().get_worker_info()
    try:
        tensors, context = opened(message, source.id)
        before = autograd.container.enter(context)
        try:
            _incoming_forks.futures = []
            try:
                call = deserialize(message.data, tensors)
            finally:
                asked, _incoming_forks.futures = _incoming_forks.futures, None
            if isinstance(call, AttributeError):
                raise RuntimeError(str(call)) from call
            for one in asked:
                one.wait()
            result = call.func(*call.args, **call.kwargs)
        finally:
            autograd.container.enter(before)
    except Exception as problem:
        return remote_exception(problem, where)
    if not hasattr(call.func, "_wrapped_async_rpc_function"):
        return result
    if not isinstance(result, Future):
        wrong = RuntimeError(
            "Functions decorated with @rpc.async_function must return a torch.futures.Future object, but got"
            f" {type(result).__name__}"
        )
        return remote_exception(wrong, where)
    return result._mapped(lambda done: _value_or_error(done, where))


def _value_or_error(done: Future, where: WorkerInfo) -> Any:
    try:
        return done.value()
    except Exception as problem:
        return remote_exception(problem, where)


def message_with(
    agent: TensorPipeAgent,
    to: WorkerInfo,
    operation: str,
    details: Any,
    parts: tuple[bytes, list[Tensor]],
    places: dict | None = None,
) -> Message:
    """Return a message with tensors, recorded in this thread's autograd context."""
    data, tensors = parts
    devices = {str(a): str(b) for a, b in agent._get_device_map(to).items()} if places is None else places
    mark = autograd.container.mark_outgoing(tensors, to.id)
    flags = [t.requires_grad for t in tensors]
    wanted = [wanted_place(t, devices) for t in tensors]
    back = {b: a for a, b in devices.items()} if places is None and devices else None
    return Message(
        operation, details, data, [bare_values(t, to.id == agent.info.id) for t in tensors], flags, wanted, mark, back
    )


def _answer(source: WorkerInfo, message: Message, result: Any) -> Message:
    """Return a message with the result of a call, in the call's autograd context."""
    context = None if message.mark is None else autograd.container.find_or_make(message.mark[0])
    before = autograd.container.enter(context)
    try:
        return message_with(
            _get_current_rpc_agent(), source, "result", None, serialize(result), places=message.back or {}
        )
    finally:
        autograd.container.enter(before)


@handler("call")
def _call(source: WorkerInfo, message: Message) -> Any:
    asynchronous = message.details
    result = _run(source, message)
    if asynchronous and isinstance(result, Future):
        return result._mapped(lambda done: _answer(source, message, done.value()))
    return _answer(source, message, result)


@handler("remote")
def _remote(source: WorkerInfo, message: Message) -> Any:
    asynchronous, number, fork = message.details
    owned = references.find_owned(number)
    if fork is not None:
        references.add_fork(owned, fork)
    result = _run(source, message)
    if asynchronous and isinstance(result, Future):
        return result._mapped(lambda done: owned.value.set_result(done.value()))
    owned.value.set_result(result)
    return None


@handler("fetch")
def _fetch(source: WorkerInfo, message: Message) -> Any:
    if message.mark is not None:
        opened(message, source.id)
    owned = references.find_owned(message.details)
    return owned.value._mapped(lambda value: _answer(source, message, value.value()))


def opened_result(answer: Message, source: WorkerInfo) -> Any:
    """Return the value in an answer; raise if it is an error."""
    tensors, _ = opened(answer, source.id)
    result = deserialize(answer.data, tensors)
    if isinstance(result, AttributeError):
        raise result
    return raise_remote(result)


def call(to: WorkerInfo, function: Any, args: tuple, kwargs: dict, timeout: float, pickler: Any = None) -> Future:
    """Call a function on another worker; return a future of its result."""
    agent = _get_current_rpc_agent()
    parts = (pickler.serialize if pickler else serialize)(PythonUDF(function, args, kwargs))
    asynchronous = hasattr(function, "_wrapped_async_rpc_function")
    context = autograd.container.here

    def read(done: Future) -> Any:
        before = autograd.container.enter(context)
        try:
            return opened_result(done.value(), to)
        finally:
            autograd.container.enter(before)

    return agent.ask(to, message_with(agent, to, "call", asynchronous, parts), timeout)._mapped(read)


def create(to: WorkerInfo, function: Any, args: tuple, kwargs: dict, timeout: float, pickler: Any = None) -> RRef:
    """Call a function on a worker that stores the result, and return a reference to it."""
    agent = _get_current_rpc_agent()
    parts = (pickler.serialize if pickler else serialize)(PythonUDF(function, args, kwargs))
    number = references.next_number()
    asynchronous = hasattr(function, "_wrapped_async_rpc_function")
    if to.id == agent.get_worker_info().id:
        fork = references.next_number()  # kept by the call until it is done
        reference = RRef._make_owner(Owned(number))
        references.add_fork(reference._owned, fork)
    else:
        fork = references.next_number()
        reference = RRef._make_user(to, number, fork)
        reference._confirmed = False
    with references.lock:
        references.creating += 1
        if not reference.is_owner():
            references.unconfirmed[fork] = reference
    answer = agent.ask(to, message_with(agent, to, "remote", (asynchronous, number, fork), parts), timeout)
    weak, owns = weakref.ref(reference), reference.is_owner()

    def created(done: Future) -> None:
        with references.lock:
            references.creating -= 1
        target = weak()
        try:
            done.value()
        except Exception as problem:
            if target is not None:
                target._problem = problem
            with references.lock:
                references.unconfirmed.pop(fork, None)
                references.changed.notify_all()
            if owns:
                references.drop_fork(number, fork)
            raise
        if owns:
            references.drop_fork(number, fork)
        else:
            references.confirm(fork)

    reference._creation = answer._mapped(created)
    return reference


__all__ = ["PyRRef", "RRef", "RemoteException", "references", "timeout_error"]
