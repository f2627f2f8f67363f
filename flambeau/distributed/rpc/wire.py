"""Connections between workers, and threads that serve them.

A client first proves that it knows the job's secret (`distributed.secret`), then names its world; until both are verified, nothing of what
it sends is processed, let alone unpickled. After that each frame is a kind, a number and bytes."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import pickle
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from ...core.locks import new_lock
from .. import secret
from ..errors import DistNetworkError

_FRAME = struct.Struct("<BQQ")
_SESSION = 16
_MOST_BYTES = 1 << 40


class Connection:
    """An authenticated socket. Any thread may send; one thread receives."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self._sending = new_lock()

    def send(self, kind: int, number: int, data: bytes) -> None:
        with self._sending:
            self.channel.sendall(_FRAME.pack(kind, number, len(data)))
            self.channel.sendall(data)

    def receive(self) -> tuple[int, int, bytes]:
        kind, number, size = _FRAME.unpack(secret.receive_exactly(self.channel, _FRAME.size))
        if size > _MOST_BYTES:
            raise DistNetworkError(f"a frame of {size} bytes is none")
        return kind, number, secret.receive_exactly(self.channel, size)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.channel.shutdown(socket.SHUT_RDWR)
        self.channel.close()


def connect(address: tuple[str, int], session: bytes, timeout: float) -> Connection:
    """Connect to the worker of this world that listens at `address`."""
    channel = socket.create_connection(address, timeout)
    try:
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        secret.introduce(channel, secret.shared_secret())
        channel.sendall(session)
        channel.settimeout(None)
    except BaseException:
        channel.close()
        raise
    return Connection(channel)


class Listener(secret.Listener):
    """Accepts workers of the same world; `serve(connection)` runs in a thread of each connection until it returns."""

    def __init__(self, session: bytes, serve: Callable[[Connection], None]) -> None:
        if len(session) != _SESSION:
            raise ValueError(f"a session is named by {_SESSION} bytes")
        self.session = session
        super().__init__(socket.create_server(("", 0), backlog=128), "rpc", lambda channel: serve(Connection(channel)))

    def _trusts(self, connection: socket.socket) -> bool:
        return super()._trusts(connection) and secret.receive_exactly(connection, _SESSION) == self.session


class Pool:
    """Thread pool; threads are started while tasks wait for one, up to a limit."""

    def __init__(self, most: int, name: str) -> None:
        self.most, self.name = most, name
        self._tasks: queue.SimpleQueue[tuple[Callable, tuple] | None] = queue.SimpleQueue()
        self._lock = new_lock()
        self._threads = self._busy = 0

    def submit(self, task: Callable, *args: Any) -> None:
        with self._lock:
            self._busy += 1
            starts = self._busy > self._threads and self._threads < self.most
            self._threads += starts
        self._tasks.put((task, args))
        if starts:
            threading.Thread(target=self._run_tasks, name=self.name, daemon=True).start()

    def _run_tasks(self) -> None:
        while (entry := self._tasks.get()) is not None:
            try:
                entry[0](*entry[1])
            finally:
                with self._lock:
                    self._busy -= 1
            entry = None  # nothing of a task lives on while the thread waits

    def close(self) -> None:
        for _ in range(self._threads):
            self._tasks.put(None)


class Alarms:
    """Calls functions at given times, in one thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition(new_lock())
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._closed = False
        threading.Thread(target=self._run_due, name="rpc timeouts", daemon=True).start()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), action))
            if self._due[0][2] is action:
                self._changed.notify()

    def _run_due(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (not self._due or self._due[0][0] > time.monotonic()):
                    self._changed.wait(None if not self._due else max(0.0, self._due[0][0] - time.monotonic()))
                if self._closed:
                    return
                action = heapq.heappop(self._due)[2]
            action()

    def close(self) -> None:
        with self._changed:
            self._closed, self._due = True, []
            self._changed.notify()


def packed(message: Any) -> bytes:
    return pickle.dumps(message, protocol=5)


def unpacked(data: bytes) -> Any:
    """Decode the message in a frame of an authenticated connection."""
    return pickle.loads(data)
