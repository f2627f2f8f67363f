"""Agent: the part of a worker that sends calls to others and answers theirs.

A message is an operation, a pickle, its tensors and their ids in an autograd context. `handlers` has a function for each operation;
requests that may block run in a thread pool, the few that only record something run at once, in order. Each worker opens a separate
connection to every worker it calls; answers come back on it."""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from ...core.device import device as Device
from ...core.locks import new_lock
from ...core.tensor import Tensor
from ...futures import Future
from ..autograd.contexts import container
from ..errors import DistNetworkError, DistStoreError
from ..store import Store
from ..tcp_store import TCPStore
from . import constants
from .messages import Message, answered_at_once, handlers
from .options import TensorPipeRpcBackendOptions, WorkerInfo
from .wire import Alarms, Connection, Listener, Pool, connect, packed, unpacked

_logger = logging.getLogger(__name__)

_HELLO, _REQUEST, _ANSWER, _ERROR = range(4)
_COMPLETION_THREADS = 512  # threads that run what waits for answers: never all of them blocked by one another


class RpcAgent:
    """Interface of agents; agents of other backends derive from it."""

    def join(self, shutdown: bool = False, timeout: float = 0) -> None:
        raise NotImplementedError

    def sync(self) -> None:
        raise NotImplementedError

    def shutdown(self) -> None:
        raise NotImplementedError

    def get_worker_info(self, name: Any = None) -> WorkerInfo:
        raise NotImplementedError

    def get_worker_infos(self) -> list[WorkerInfo]:
        raise NotImplementedError

    def get_debug_info(self) -> dict[str, str]:
        raise NotImplementedError

    def get_metrics(self) -> dict[str, str]:
        raise NotImplementedError


def timeout_error(seconds: float) -> RuntimeError:
    return RuntimeError(
        f"RPCErr:1:RPC ran for more than set timeout ({round(seconds * 1000)} ms) and will now be marked with an error"
    )


class _Peer(NamedTuple):
    info: WorkerInfo
    machine: str
    host: str
    port: int


class TensorPipeAgent(RpcAgent):
    """Agent that calls other workers over authenticated TCP connections."""

    def __init__(
        self,
        store: Store,
        name: str,
        worker_id: int,
        world_size: int | None,
        opts: TensorPipeRpcBackendOptions,
        reverse_device_maps: dict | None = None,
        devices: list | None = None,
    ) -> None:
        self.store, self.options, self.world_size = store, opts, world_size
        self.info = WorkerInfo(name, worker_id)
        self.timeout = opts.rpc_timeout
        self._lock = new_lock()
        self._waiting: dict[int, tuple[Future, int]] = {}  # number -> (future of the answer, worker that is asked)
        self._numbers = itertools.count()
        self._connections: dict[int, Connection] = {}
        self._connecting = new_lock()
        self._running = self._served = 0  # requests that are being answered, and all there were
        self._asked = 0
        self._letters: collections.deque[None] = collections.deque()  # one for each message in the outbox
        self._idle = threading.Condition(self._lock)
        self._closed = False
        self.started = threading.Event()  # others may know of this worker before it is ready to answer
        self.pool = Pool(opts.num_worker_threads, "rpc worker")
        self._finishing = Pool(_COMPLETION_THREADS, "rpc answers")
        self._alarms = Alarms()
        self._outbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._send_outbox, name="rpc outbox", daemon=True).start()
        self.session = bytes.fromhex(store.compare_set("session", "", os.urandom(16).hex()).decode())
        self._listener = Listener(self.session, self._serve)
        self._peers: dict[int, _Peer] = {}
        self._publish()
        if world_size is not None:
            self._check_peers(world_size)

    # -- who is there -------------------------------------------------------------------------------------------------------
    def _publish(self) -> None:
        me = {"name": self.info.name, "machine": _machine(), "host": _own_host(self.store), "port": self._listener.port}
        taken = self.store.compare_set(f"name/{self.info.name}", "", str(self.info.id)).decode()
        if self.world_size is None and taken != str(self.info.id):
            raise RuntimeError(_not_unique(self.info.name, int(taken), self.info.id))
        self.store.set(f"worker/{self.info.id}", json.dumps(me))

    def _check_peers(self, count: int) -> None:
        for number in range(count):
            self._read_peer(number)
        names: dict[str, int] = {}
        for number, peer in self._peers.items():
            if names.setdefault(peer.info.name, number) != number:
                raise RuntimeError(_not_unique(peer.info.name, names[peer.info.name], number))
        for source, mapping in self.options.device_maps.items():
            if source not in names:
                raise ValueError(
                    f"Node {self.info.name} has invalid target node names in its device maps\n"
                    f"device maps = {self.options.device_maps.keys()}\nnode names = {list(names)}"
                )
            assert mapping is not None

    def _read_peer(self, number: int) -> _Peer:
        text = json.loads(self.store.get(f"worker/{number}"))
        peer = _Peer(WorkerInfo(text["name"], number), text["machine"], text["host"], text["port"])
        self._peers[number] = peer
        return peer

    def _refresh(self) -> None:
        """Update the list of workers in a dynamic group."""
        joined = self.store.get("members").decode().split() if self.store.check(["members"]) else []
        left = set(self.store.get("gone").decode().split()) if self.store.check(["gone"]) else set()
        self._peers = {n: p for n, p in self._peers.items() if str(n) not in left}
        for number in joined:
            if number not in left and int(number) not in self._peers:
                self._read_peer(int(number))

    @property
    def is_static_group(self) -> bool:
        return self.world_size is not None

    def get_worker_info(self, name: Any = None) -> WorkerInfo:
        """Return the worker with this name or rank; by default this one."""
        if name is None:
            return self.info
        if not self.is_static_group:
            self._refresh()
        for number, peer in self._peers.items():
            if name in (number, peer.info.name):
                return peer.info
        raise RuntimeError(
            f"could not find destination {name}" if isinstance(name, str) else f"Unknown worker id {name}"
        )

    def get_worker_infos(self) -> list[WorkerInfo]:
        if not self.is_static_group:
            self._refresh()
        return [peer.info for peer in self._peers.values()]

    def get_debug_info(self) -> dict[str, str]:
        with self._lock:
            return {
                "agent.num_pending_requests": str(self._running),
                "agent.thread_pool_size": str(self.pool.most),
                "agent.num_idle_threads": str(max(0, self.pool.most - self._running)),
                "agent.client_active_calls": str(len(self._waiting)),
                "agent.server_active_calls": str(self._running),
                "agent.server_active_async_calls": "0",
            }

    def get_metrics(self) -> dict[str, str]:
        return self.get_debug_info()

    def _get_device_map(self, destination: WorkerInfo) -> dict[Device, Device]:
        return self.options.device_maps.get(destination.name, {})

    # -- asking -------------------------------------------------------------------------------------------------------------
    def ask(self, to: WorkerInfo, message: Message, timeout: float = constants.UNSET_RPC_TIMEOUT) -> Future:
        """Send a request and return a future of the answer."""
        seconds = self.timeout if timeout < 0 else timeout
        answer: Future = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("this worker has shut down: it cannot call others any more")
            number = next(self._numbers)
            self._waiting[number] = (answer, to.id)
            self._asked += 1
        try:
            if to.id == self.info.id:
                self._request_own(number, message)
            else:
                self._connection(to.id).send(_REQUEST, number, packed(message))
        except (OSError, DistNetworkError) as problem:
            self._finish_later(number, None, RuntimeError(f"{to} cannot be reached: {problem}"))
        except BaseException:
            with self._lock:
                self._waiting.pop(number, None)
                self._idle.notify_all()
            raise
        if seconds > 0:
            self._alarms.after(seconds, lambda: self._finish_later(number, None, timeout_error(seconds)))
        return answer

    def request(self, worker: int, operation: str, details: Any = None, tensors: Sequence[Tensor] = ()) -> Future:
        """Request an operation from a worker, by its rank."""
        places = [None if t.device.type == "cpu" else str(t.device) for t in tensors]
        sent = [t.detach() if t.device.type == "cpu" else t.detach().cpu() for t in tensors]
        return self.ask(
            self._peers[worker].info, Message(operation, details, b"", sent, [False] * len(sent), places), 0.0
        )

    def notify(self, worker: int, operation: str, details: Any) -> None:
        """Send a message without an answer; it is dropped if the worker has left. May be called anywhere, by a destructor too: a thread of
        the agent sends the message."""
        self._letters.append(None)  # one step, and without the lock, which the thread of a destructor may hold
        self._outbox.put(lambda: self._send_notification(worker, operation, details))

    def _send_notification(self, worker: int, operation: str, details: Any) -> None:
        try:
            self.request(worker, operation, details)
        except (RuntimeError, KeyError) as problem:
            _logger.debug("worker %s was not told of %s: %s", worker, operation, problem)
        finally:
            with self._lock:
                self._letters.popleft()
                self._idle.notify_all()

    def _request_own(self, number: int, message: Message) -> None:
        def reply(answer: Message | None, problem: str | None) -> None:
            self._finish_later(number, answer, None if problem is None else RuntimeError(problem))

        self._queue(self.info, message, reply)

    def _connection(self, worker: int) -> Connection:
        found = self._connections.get(worker)
        if found is not None:
            return found
        with self._connecting:
            if worker not in self._connections:
                peer = self._peers.get(worker) or self._read_peer(worker)
                host = "127.0.0.1" if peer.machine == _machine() else peer.host
                fresh = connect((host, peer.port), self.session, max(1.0, self.timeout))
                fresh.send(_HELLO, self.info.id, b"")
                threading.Thread(target=self._listen, args=(worker, fresh), name="rpc answers", daemon=True).start()
                self._connections[worker] = fresh
            return self._connections[worker]

    def _listen(self, worker: int, connection: Connection) -> None:
        """Receive the answers on a connection that this worker has opened."""
        try:
            while True:
                kind, number, data = connection.receive()
                if kind == _ANSWER:
                    self._finish_later(number, unpacked(data), None)
                elif kind == _ERROR:
                    self._finish_later(number, None, RuntimeError(data.decode()))
        except (OSError, DistNetworkError) as problem:
            with self._connecting:
                if self._connections.get(worker) is connection:
                    del self._connections[worker]
            connection.close()
            with self._lock:
                lost = [number for number, (_, asked) in self._waiting.items() if asked == worker]
            for number in lost:
                self._finish_later(number, None, RuntimeError(f"worker {worker} has closed the connection: {problem}"))

    def _finish_later(self, number: int, answer: Message | None, problem: Exception | None) -> None:
        with self._lock:
            entry = self._waiting.get(number)
        if entry is None:
            return  # too late
        self._finishing.submit(self._complete_request, number, answer, problem)

    def _complete_request(self, number: int, answer: Message | None, problem: Exception | None) -> None:
        with self._lock:
            entry = self._waiting.pop(number, None)
        if entry is None:
            return
        try:
            if problem is not None:
                entry[0].set_exception(problem)
            else:
                entry[0].set_result(answer)
        finally:
            with self._lock:
                self._idle.notify_all()

    # -- answering ----------------------------------------------------------------------------------------------------------
    def _serve(self, connection: Connection) -> None:
        """Receive the requests of another worker, on a connection that it has opened."""
        kind, number, _ = connection.receive()
        if kind != _HELLO:
            return
        source = (self._peers.get(number) or self._read_peer(number)).info
        self.started.wait()
        while True:
            kind, number, data = connection.receive()
            if kind == _REQUEST:
                self._queue(source, unpacked(data), _Reply(connection, number))

    def _queue(self, source: WorkerInfo, message: Message, reply: Callable[[Message | None, str | None], None]) -> None:
        with self._lock:
            self._running += 1
            self._served += 1
        if message.operation in answered_at_once:
            self._answer(source, message, lambda answer, problem: self._outbox.put(lambda: reply(answer, problem)))
        else:
            self.pool.submit(self._answer, source, message, reply)

    def _answer(
        self, source: WorkerInfo, message: Message, reply: Callable[[Message | None, str | None], None]
    ) -> None:
        try:
            result = handlers[message.operation](source, message)
        except BaseException as problem:
            self._send_reply(reply, None, str(problem) or repr(problem))
            return
        if not isinstance(result, Future):
            self._send_reply(reply, result, None)
            return

        def later(future: Future) -> None:
            try:
                value = future.value()
            except Exception as problem:
                self._send_reply(reply, None, str(problem) or repr(problem))
            else:
                self._send_reply(reply, value if isinstance(value, Message) else None, None)

        result.add_done_callback(later)

    def _send_reply(
        self, reply: Callable[[Message | None, str | None], None], answer: Message | None, problem: str | None
    ) -> None:
        try:
            reply(answer, problem)
        finally:
            with self._lock:
                self._running -= 1
                self._idle.notify_all()

    def _send_outbox(self) -> None:
        while (letter := self._outbox.get()) is not None:
            letter()

    # -- the end ------------------------------------------------------------------------------------------------------------
    def _wait_until_idle(self, deadline: float | None) -> None:
        with self._lock:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._idle.wait_for(lambda: not self._waiting and not self._running and not self._letters, left):
                raise RuntimeError("Timed out waiting for the calls of other workers to end")

    def join(self, shutdown: bool = False, timeout: float = 0) -> None:
        """Wait until no worker has anything to do: until all have been idle since the last round of mutual queries."""
        deadline = time.monotonic() + timeout if timeout > 0 else None
        seen = -1
        for number in itertools.count():
            self._wait_until_idle(deadline)
            if not self.is_static_group:
                return
            assert self.world_size is not None
            now = self._asked + self._served
            key = f"join/{self._joins}/{number}"
            self.store.add(f"{key}/busy", int(now != seen))
            left = self.store.timeout if deadline is None else timedelta(seconds=max(0.01, deadline - time.monotonic()))
            self.store.barrier(key, self.world_size, left)
            busy = self.store.add(f"{key}/busy", 0)
            seen = now
            if not busy:
                self._joins += 1
                self._await_all_left(key)
                return

    _joins = 0

    def _await_all_left(self, key: str) -> None:
        """Keep worker 0, whose process may serve the store, until all have read there that they may leave."""
        # The store may be gone before it answers, and a dead worker reads nothing.
        with contextlib.suppress(DistNetworkError, DistStoreError):
            if self.store.add(f"{key}/read", 1) == self.world_size:
                self.store.set(f"{key}/all read", "1")
            if self.info.id == 0:
                self.store.wait([f"{key}/all read"], timedelta(seconds=30))

    def sync(self) -> None:
        """Do nothing: messages are never delayed."""

    def shutdown(self) -> None:
        """End all connections and threads."""
        with self._lock:
            self._closed = True
        if not self.is_static_group:
            self.store.append("gone", f"{self.info.id} ")
        self._outbox.put(None)
        self._listener.close()
        with self._connecting:
            connections, self._connections = dict(self._connections), {}
        for connection in connections.values():
            connection.close()
        with self._lock:
            left = list(self._waiting)
        for number in left:
            self._complete_request(number, None, RuntimeError("this worker has shut down before the answer came"))
        self._alarms.close()
        self.pool.close()
        self._finishing.close()


class _Reply:
    """Sends the answer to one request, on the connection it came from."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection, self.number = connection, number

    def __call__(self, answer: Message | None, problem: str | None) -> None:
        with contextlib.suppress(OSError):  # the receiver is gone
            if problem is None:
                self.connection.send(_ANSWER, self.number, packed(answer))
            else:
                self.connection.send(_ERROR, self.number, problem.encode())


def _not_unique(name: str, first: int, second: int) -> str:
    return f"RPC worker name {name} is not unique. Workers {second} and {first} share the same name."


def _machine() -> str:
    """Return a text that identifies this machine since its last boot."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else ''}"


def _own_host(store: Store) -> str:
    """Return the address of this machine for workers on others: that of its connection to the store."""
    inner: Any = getattr(store, "_underlying_non_prefix_store", store)
    if isinstance(inner, TCPStore):
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((inner.host, inner.port))
            return probe.getsockname()[0]
    return socket.gethostname()


# -- the agent of this process --------------------------------------------------------------------------------------------------


class _Current:
    agent: Any = None


def _is_current_rpc_agent_set() -> bool:
    return _Current.agent is not None


def _get_current_rpc_agent() -> Any:
    if _Current.agent is None:
        raise RuntimeError(
            "Current RPC agent is not set! Did you initialize the RPC framework (e.g. by calling `rpc.init_rpc`)?"
        )
    return _Current.agent


def _set_and_start_rpc_agent(agent: Any) -> None:
    _Current.agent = container.agent = agent
    if isinstance(agent, TensorPipeAgent):
        agent.started.set()


def _reset_current_rpc_agent() -> None:
    _Current.agent = container.agent = None
