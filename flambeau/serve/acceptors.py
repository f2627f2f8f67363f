"""More front ends, for machines with many cores: processes that handle HTTP and leave the rest to the server.

An acceptor listens on the same inference address (the kernel distributes connections), parses requests and writes answers.
Routing is done by the server, which alone has the models and queues: a request is sent to it as one message, and each answer, or part of
one, comes back as another.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from .channel import Frames, frame
from .errors import ServeError, error_body
from .http import Connection, Listener, Request
from .settings import Address, Settings

WHOLE, PART, LAST = 0, 1, 2


# -- in the server -------------------------------------------------------------------------------------------------------------


class RemoteConnection:
    """The server's view of an acceptor's client; it has the interface that `Connection` has for the server's own clients."""

    def __init__(self, link: Link, number: int, peer: str, request: Request):
        self.link, self.number, self.peer = link, number, peer
        self.current: Request | None = request
        self.streaming = self.has_ended = False

    @property
    def is_open(self) -> bool:
        return self.current is not None and self.link.transport is not None

    def _answer(
        self, status: int, body: bytes, kind: str, headers: dict[str, str] | None, phrase: str, form: int
    ) -> None:
        request = self.current
        if request is None or self.link.transport is None:
            return
        self.link.transport.write(frame((self.number, status, phrase, kind, headers or {}, bytes(body), form)))
        self.streaming = form == PART
        if form != PART:
            self.link.finished(self, request, status)
            self.close()

    def send(
        self, status: int, body: bytes, content_type: str = "application/json", headers: dict[str, str] | None = None,
        phrase: str = "",
    ) -> None:  # fmt: skip
        self._answer(status, body, content_type, headers, phrase, WHOLE)

    def send_part(
        self, status: int, body: bytes, content_type: str, headers: dict[str, str], phrase: str, more: bool
    ) -> None:
        self._answer(status, body, content_type, headers, phrase, PART if more else LAST)

    def fail(self, error: ServeError) -> None:
        self.send(error.status, error.body())

    def close(self) -> None:
        self.current = None
        self.link.clients.pop(self.number, None)


class Link(asyncio.Protocol):
    """The server's end of its connection with an acceptor."""

    def __init__(
        self, handle: Callable[[Any, Request], None], finished: Callable, unexpected: Callable[[Exception], None]
    ):
        self.handle, self.finished, self.unexpected = handle, finished, unexpected
        self.clients: dict[int, RemoteConnection] = {}
        self.transport: Any = None
        self._frames = Frames()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        for client in list(self.clients.values()):
            client.close()

    def data_received(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            number = message[0]
            if len(message) == 1:
                if number in self.clients:
                    self.clients[number].close()
            else:
                self._accept_request(number, *message[1:])

    def _accept_request(self, number: int, peer: str, fields: tuple) -> None:
        request = Request()
        (request.id, request.method, request.target, request.path, request.query, request.headers, request.lower,
         request.body, request.version, request.started) = fields  # fmt: skip
        client = self.clients[number] = RemoteConnection(self, number, peer, request)
        try:
            self.handle(client, request)
        except ServeError as e:
            client.fail(e)
        except Exception as e:
            self.unexpected(e)
            client.send(500, error_body(500, type(e).__name__, str(e)))


class Acceptors:
    """Processes that accept connections: forked before the server's event loop starts, terminated with it."""

    def __init__(self, settings: Settings, count: int):
        address = settings.inference()
        if count and (address.path or not address.port):
            raise ValueError("several front ends need an inference_address with a port of its own")
        self._ends: list[socket.socket] = []
        self._pids: list[int] = []
        for _ in range(count):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            pid = os.fork()
            if pid == 0:
                _close_others(theirs.fileno())
                _main(theirs, address, settings)
            theirs.close()
            ours.setblocking(False)
            self._ends.append(ours)
            self._pids.append(pid)

    async def connect(self, link: Callable[[], Link]) -> None:
        """Connect the server to its acceptor processes."""
        for end in self._ends:
            await asyncio.get_running_loop().create_unix_connection(link, sock=end)

    def stop(self) -> None:
        for pid in self._pids:
            try:
                os.kill(pid, signal.SIGTERM)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                continue
        self._pids.clear()


# -- in an acceptor ------------------------------------------------------------------------------------------------------------


class _Acceptor(asyncio.Protocol):
    """The acceptor's end of the link: numbers requests, and delivers answers to the connections that sent them."""

    def __init__(self, gone: Callable[[], None]):
        self.gone = gone
        self.transport: Any = None
        self._frames = Frames()
        self._waiting: dict[int, Connection] = {}
        self._number = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone()

    def handle(self, connection: Connection, r: Request) -> None:
        self._number += 1
        self._waiting[self._number] = connection
        fields = (r.id, r.method, r.target, r.path, r.query, r.headers, r.lower, r.body, r.version, r.started)
        self.transport.write(frame((self._number, connection.peer, fields)))

    def lost(self, connection: Connection) -> None:
        """Tell the server that a client has disconnected, so that its requests need no answer."""
        for number in [n for n, c in self._waiting.items() if c is connection]:
            del self._waiting[number]
            self.transport.write(frame((number,)))

    def data_received(self, data: bytes) -> None:
        for number, status, phrase, kind, headers, body, form in self._frames.feed(data):
            connection = self._waiting.get(number)
            if connection is None:
                continue
            if form != PART:
                del self._waiting[number]
            if form == WHOLE:
                connection.send(status, body, kind, headers, phrase)
            else:
                connection.send_part(status, body, kind, headers, phrase, form == PART)


async def _accept(end: socket.socket, address: Address, settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, done.set)
    end.setblocking(False)
    _, acceptor = await loop.create_unix_connection(lambda: _Acceptor(done.set), sock=end)

    def unexpected(error: Exception) -> None:
        loop.call_exception_handler({"message": "a request failed", "exception": error})

    size = settings.number("max_request_size", 6_553_500)
    listener = Listener(acceptor.handle, lambda *a: None, unexpected, size, settings.cors_headers(), acceptor.lost)
    tls = settings.tls_context() if address.tls else None
    server = await loop.create_server(listener, address.host, address.port, ssl=tls, backlog=2048, reuse_port=True)
    while not done.is_set():
        listener.check(time.monotonic())
        try:
            await asyncio.wait_for(done.wait(), 0.2)
        except asyncio.TimeoutError:
            continue
    server.close()


def _close_others(kept: int) -> None:
    """Close the files that an acceptor inherited from the server: they would keep the nursery's socket open after the server closed it."""
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def _main(end: socket.socket, address: Address, settings: Settings) -> None:
    """Run an acceptor process until the server ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = 1
    try:
        try:
            import uvloop  # noqa: PLC0415  an optional package
        except ImportError:
            asyncio.run(_accept(end, address, settings))
        else:
            uvloop.run(_accept(end, address, settings))
        code = 0
    finally:
        os._exit(code)
