"""Messages between two ranks of one machine, over a Unix socket for each direction.

A message has its sender, a tag and its length. It is read as soon as it arrives: into the memory of a pending receive, or into a buffer
until there is one. So sending never waits for the other side, and never deadlocks."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ..core.locks import new_lock
from ..futures import Future
from .errors import DistBackendError
from .store import Store

_HEADER = struct.Struct("<qqQ")  # sender, tag, bytes
_TOKEN = 16
_LIVE_CHECK = 0.2


def _check_user(connection: socket.socket) -> None:
    """Raise unless the listening process belongs to this user: the name of a socket that is gone can be taken by anybody."""
    _, user, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    if user != os.geteuid():
        connection.close()
        raise DistBackendError(f"the mailbox of a rank is held by another user (number {user})")


class _Receive:
    """A pending receive, waiting for its message."""

    def __init__(self, memory: Any, sender: int | None, tag: int) -> None:
        self.memory, self.sender, self.tag = memory, sender, tag
        self.future: Future = Future()

    def wants(self, sender: int, tag: int) -> bool:
        return self.tag == tag and self.sender in (None, sender)


class Transfer:
    """A message in flight; `wait` returns the rank at the other end."""

    def __init__(self, future: Future, check: Callable[[], None], deadline: float, late: Callable[[], Exception]):
        self.future, self.check, self.deadline, self.late = future, check, deadline, late

    def done(self) -> bool:
        return self.future.done()

    def wait(self, seconds: float | None = None) -> int:
        deadline = self.deadline if seconds is None else time.monotonic() + seconds
        finished = threading.Event()
        self.future.add_done_callback(lambda _: finished.set())
        while not finished.wait(min(_LIVE_CHECK, max(0.001, deadline - time.monotonic()))):
            self.check()
            if time.monotonic() > deadline:
                raise self.late()
        return self.future.wait()


class Mailbox:
    """The messages of one rank in one group. Sockets and threads are created for the first one."""

    def __init__(self, store: Store, rank: int, size: int, engine: Any):
        self.store, self.rank, self.size, self.engine = store, rank, size, engine
        self._lock = new_lock()
        self._waiting: list[_Receive] = []
        self._kept: list[tuple[int, int, bytearray]] = []
        self._listener: socket.socket | None = None
        self._token = b""
        self._outgoing: dict[int, queue.SimpleQueue] = {}
        self._sockets: list[socket.socket] = []
        self._closed = False

    # -- receiving ----------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        with self._lock:
            if self._listener is not None:
                return
            self._token = os.urandom(_TOKEN)
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            name = f"flambeau-{os.getpid()}-{os.urandom(8).hex()}"  # in the abstract namespace: no file to leave behind
            self._listener.bind(f"\0{name}")
            self._listener.listen(self.size)
        self.store.set(f"mail/{self.rank}", f"{name} {self._token.hex()}")
        threading.Thread(target=self._accept, args=(self._listener,), name="mailbox", daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._sockets.append(connection)
            threading.Thread(target=self._read, args=(connection,), name="mailbox reader", daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(10)
            if bytes(_receive_into(connection, bytearray(_TOKEN))) != self._token:
                return
            connection.settimeout(None)
            while True:
                sender, tag, nbytes = _HEADER.unpack(_receive_into(connection, bytearray(_HEADER.size)))
                self._receive_message(connection, sender, tag, nbytes)
        except (OSError, EOFError):
            pass  # the sender is gone; pending receives will notice
        finally:
            connection.close()

    def _receive_message(self, connection: socket.socket, sender: int, tag: int, nbytes: int) -> None:
        with self._lock:
            receive = next((r for r in self._waiting if r.wants(sender, tag)), None)
            if receive is not None:
                self._waiting.remove(receive)
        if receive is None or receive.memory.nbytes != nbytes:
            data = _receive_into(connection, bytearray(nbytes))
            if receive is None:
                self._keep_or_deliver(sender, tag, data)
            else:
                receive.future.set_exception(self._size_error(sender, nbytes, receive.memory.nbytes))
            return
        target = (ctypes.c_char * nbytes).from_address(receive.memory.address)
        _receive_into(connection, target)
        receive.future.set_result(sender)

    def _keep_or_deliver(self, sender: int, tag: int, data: bytearray) -> None:
        with self._lock:  # the receive may have come while the message was read
            receive = next((r for r in self._waiting if r.wants(sender, tag)), None)
            if receive is None:
                self._kept.append((sender, tag, data))
                return
            self._waiting.remove(receive)
        self._deliver(receive, sender, data)

    def _deliver(self, receive: _Receive, sender: int, data: bytearray) -> None:
        if len(data) != receive.memory.nbytes:
            receive.future.set_exception(self._size_error(sender, len(data), receive.memory.nbytes))
            return
        if data:
            ctypes.memmove(receive.memory.address, (ctypes.c_char * len(data)).from_buffer(data), len(data))
        receive.future.set_result(sender)

    def _size_error(self, sender: int, sent: int, room: int) -> DistBackendError:
        return DistBackendError(
            f"recv: the message of rank {self.engine.ranks[sender]} has {sent} bytes, and the tensor to receive it {room}"
        )

    def receive(self, memory: Any, sender: int | None, tag: int, timeout: float) -> Transfer:
        self._listen()
        receive = _Receive(memory, sender, tag)
        found = None
        with self._lock:
            for position, (source, label, _) in enumerate(self._kept):
                if receive.wants(source, label):
                    found = self._kept.pop(position)
                    break
            else:
                self._waiting.append(receive)
        if found is not None:
            self._deliver(receive, found[0], found[2])
        return self._watched_transfer(receive.future, sender, "recv from", timeout, receive)

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, memory: Any, peer: int, tag: int, timeout: float) -> Transfer:
        with self._lock:
            outgoing = self._outgoing.get(peer)
            if outgoing is None:
                outgoing = self._outgoing[peer] = queue.SimpleQueue()
                arguments = (peer, outgoing, timeout)
                threading.Thread(target=self._deliver_all, args=arguments, name="mailbox sender", daemon=True).start()
        future: Future = Future()
        outgoing.put((memory, tag, future))
        return self._watched_transfer(future, peer, "send to", timeout)

    def _deliver_all(self, peer: int, outgoing: queue.SimpleQueue, timeout: float) -> None:
        problem: Exception | None = None
        connection: socket.socket | None = None
        while (item := outgoing.get()) is not None:
            memory, tag, future = item
            try:
                if problem is not None:
                    raise problem
                connection = connection or self._connect(peer, timeout)
                data = (ctypes.c_char * memory.nbytes).from_address(memory.address or 1) if memory.nbytes else b""
                connection.sendall(_HEADER.pack(self.rank, tag, memory.nbytes))
                connection.sendall(data)
            except Exception as error:  # raised in the thread that waits for this message
                name = self.engine.ranks[peer]
                problem = DistBackendError(f"send to rank {name} failed: Connection closed by peer: {error}")
                future.set_exception(problem)
            else:
                future.set_result(peer)

    def _connect(self, peer: int, timeout: float) -> socket.socket:
        self.store.wait([f"mail/{peer}"], timedelta(seconds=timeout))
        name, token = self.store.get(f"mail/{peer}").decode().split()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(f"\0{name}")
        _check_user(connection)
        connection.sendall(bytes.fromhex(token))
        self._sockets.append(connection)
        return connection

    # -- both ---------------------------------------------------------------------------------------------------------

    def _watched_transfer(
        self, future: Future, peer: int | None, what: str, timeout: float, receive: _Receive | None = None
    ) -> Transfer:
        name = "any rank" if peer is None else f"rank {self.engine.ranks[peer]}"

        def check() -> None:
            dead = self.engine.peers().dead()
            if (peer in dead or (peer is None and dead)) and not future.done():
                time.sleep(0.05)  # what it sent before may still be on its way
                if not future.done():
                    gone = self.engine.ranks[dead[0] if peer is None else peer]
                    raise DistBackendError(f"{what} {name}: rank {gone} has ended. Connection closed by peer")

        def late() -> Exception:
            with self._lock:
                if receive in self._waiting:
                    self._waiting.remove(receive)
            return DistBackendError(f"{what} {name}: Timed out waiting {timeout * 1000:.0f}ms for it")

        return Transfer(future, check, time.monotonic() + timeout, late)

    def close(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for outgoing in self._outgoing.values():
            outgoing.put(None)
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)


def _receive_into(connection: socket.socket, target: Any) -> Any:
    """Fill a buffer from a socket."""
    view = memoryview(target).cast("B")
    have = 0
    while have < len(view):
        got = connection.recv_into(view[have:])
        if not got:
            raise EOFError
        have += got
    return target
