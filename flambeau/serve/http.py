"""HTTP/1.1 on an event loop: requests in, answers out, nothing about models.

A connection is an `asyncio.Protocol` over httptools' parser: measured twice as fast here as any framework. It holds what
hostile clients try: headers and bodies have limits, a request must arrive within a time, answers to clients that do not read
wait, and requests sent ahead of answers are taken one by one.
"""

from __future__ import annotations

import asyncio
import http as _status
import os
import time
import urllib.parse
from collections import deque
from collections.abc import Callable
from typing import Any

import httptools

from .errors import BadRequestException, RequestTooLargeException, ServeError, error_body

MAX_HEADERS = 64 << 10
REQUEST_SECONDS = 60.0  # for a request to arrive wholly, from its first byte
IDLE_SECONDS = 600.0
_PHRASES = {s.value: s.phrase for s in _status.HTTPStatus}
_STATIC = (
    b"Pragma: no-cache\r\nCache-Control: no-cache; no-store, must-revalidate, private\r\n"
    b"Expires: Thu, 01 Jan 1970 00:00:00 UTC\r\n"
)
_LINE_BREAKS = str.maketrans({"\r": " ", "\n": " ", "\0": " "})


class _Random:
    """Random digits, fetched many at a time."""

    digits = ""
    at = 0


def new_id() -> str:
    """A request's id: a random UUID."""
    if _Random.at >= len(_Random.digits):
        _Random.digits, _Random.at = os.urandom(4096).hex(), 0
    d = _Random.digits[_Random.at : _Random.at + 32]
    _Random.at += 32
    return f"{d[:8]}-{d[8:12]}-4{d[13:16]}-{'89ab'[int(d[16], 16) & 3]}{d[17:20]}-{d[20:]}"


class Request:
    """One HTTP request."""

    __slots__ = (
        "method", "target", "path", "query", "headers", "lower", "body", "id", "started", "keep_alive", "version",
    )  # fmt: skip

    def __init__(self) -> None:
        self.method = ""
        self.target = b""
        self.path = ""
        self.query = ""
        self.headers: dict[str, str] = {}  # names as the client wrote them: handlers see these
        self.lower: dict[str, str] = {}
        self.body: bytes = b""
        self.id = ""
        self.started = 0.0
        self.keep_alive = True
        self.version = "1.1"

    def parameters(self) -> dict[str, list[str]]:
        """The query's parameters."""
        return urllib.parse.parse_qs(self.query, keep_blank_values=True)

    @property
    def content_type(self) -> str:
        """The body's type, without parameters."""
        return self.lower.get("content-type", "").partition(";")[0].strip().lower()


class Connection(asyncio.Protocol):
    """One client. `handle` gets each request with this object and answers by `send`, `send_part` or `fail`."""

    def __init__(self, server: Listener):
        self.server = server
        self.transport: Any = None
        self.peer = "127.0.0.1"
        self._parser: Any = httptools.HttpRequestParser(self)
        self._request: Request | None = None
        self._pieces: list[bytes] = []
        self._size = self._header_size = 0
        self._waiting: deque[Request] = deque()
        self.current: Request | None = None
        self.streaming = False
        self.deadline = float("inf")
        self._broken = False

    # -- the connection --

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = f"/{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "/unix"
        self.server.connections.add(self)
        self.deadline = time.monotonic() + REQUEST_SECONDS

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.connections.discard(self)
        self.transport = None
        self._waiting.clear()
        if self.current is not None:
            self.server.lost(self)

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(BadRequestException("This server does not change protocols."))
        except httptools.HttpParserCallbackError as e:
            cause = e.__context__
            self._refuse(cause if isinstance(cause, ServeError) else BadRequestException("Invalid HTTP message."))
        except httptools.HttpParserError:
            self._refuse(BadRequestException("Invalid HTTP message."))

    def _refuse(self, error: ServeError) -> None:
        """Answers what is no proper request, and closes."""
        if self._broken or self.transport is None:
            return
        self._broken = True
        if self.current is None:
            self.current = self._request or Request()
            self.current.keep_alive = False
            self.fail(error)
        else:
            self.transport.close()

    def expire(self, now: float) -> None:
        """Closes a connection whose request does not come, or which has been silent for long."""
        if now > self.deadline and self.transport is not None:
            self.transport.abort()

    # -- what the parser sees --

    def on_message_begin(self) -> None:
        self._request = Request()
        self._pieces, self._size, self._header_size = [], 0, 0
        self.deadline = time.monotonic() + REQUEST_SECONDS

    def on_url(self, url: bytes) -> None:
        assert self._request is not None
        self._request.target += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        assert self._request is not None
        self._count(len(name) + len(value))
        text, content = name.decode("latin-1"), value.decode("latin-1") if value else ""
        lower = text.lower()
        if lower in self._request.lower and lower in ("content-length", "transfer-encoding", "authorization", "host"):
            raise BadRequestException("Invalid HTTP message.")
        self._request.headers[text] = content
        self._request.lower[lower] = content

    def _count(self, size: int) -> None:
        self._header_size += size
        if self._header_size > MAX_HEADERS:
            raise RequestTooLargeException("The request's headers are too large.")

    def on_headers_complete(self) -> None:
        request = self._request
        assert request is not None
        length = request.lower.get("content-length")
        if length is not None and (not length.isdigit() or int(length) > self.server.max_request_size):
            raise RequestTooLargeException(f"The request is larger than {self.server.max_request_size} bytes.")
        if request.lower.get("expect", "").lower() == "100-continue" and self.transport is not None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self.server.max_request_size:
            raise RequestTooLargeException(f"The request is larger than {self.server.max_request_size} bytes.")
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        request = self._request
        assert request is not None
        pieces = self._pieces
        request.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        request.method = self._parser.get_method().decode("latin-1")
        request.version = self._parser.get_http_version()
        request.keep_alive = self._parser.should_keep_alive()
        self._request, self._pieces = None, []
        self.deadline = time.monotonic() + IDLE_SECONDS
        self._waiting.append(request)
        if self.current is None:
            self._next()
        elif len(self._waiting) > 16 and self.transport is not None:
            self.transport.pause_reading()

    def _next(self) -> None:
        """Takes up the next request that has come."""
        if not self._waiting or self.transport is None:
            return
        request = self.current = self._waiting.popleft()
        if len(self._waiting) == 8:
            self.transport.resume_reading()
        request.id = new_id()
        request.started = time.perf_counter()
        self.deadline = float("inf")  # the server's own time limits hold from here
        path, _, query = request.target.decode("latin-1").partition("?")
        request.path = urllib.parse.unquote(path) if "%" in path else path
        request.query = query
        try:
            self.server.handle(self, request)
        except ServeError as e:
            self.fail(e)
        except Exception as e:
            self.server.unexpected(e)
            self.send(500, error_body(500, type(e).__name__, str(e)))

    # -- answers --

    def send(
        self, status: int, body: bytes, content_type: str = "application/json", headers: dict[str, str] | None = None,
        phrase: str = "",
    ) -> None:  # fmt: skip
        """A whole answer."""
        request = self.current
        if request is None or self.transport is None:
            return
        close = not request.keep_alive
        head = self._head(request, status, phrase, content_type, headers, close)
        if request.method == "HEAD":
            body = b""
        self.transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
        self._finish(request, status, close)

    def send_part(
        self, status: int, body: bytes, content_type: str, headers: dict[str, str], phrase: str, more: bool
    ) -> None:
        """A part of a streamed answer; the last one has `more` false."""
        request = self.current
        if request is None or self.transport is None:
            return
        data = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
        if not self.streaming:
            self.streaming = True
            head = self._head(request, status, phrase, content_type, headers, not request.keep_alive)
            data = head + b"transfer-encoding: chunked\r\n\r\n" + data
        if not more:
            data += b"0\r\n\r\n"
        self.transport.write(data)
        if not more:
            self.streaming = False
            self._finish(request, status, not request.keep_alive)

    def _head(
        self, request: Request, status: int, phrase: str, content_type: str, headers: dict[str, str] | None, close: bool
    ) -> bytes:
        lines = [f"HTTP/1.1 {status} {phrase.translate(_LINE_BREAKS) or _PHRASES.get(status, 'Unknown')}"]
        if content_type:
            lines.append(f"content-type: {content_type.translate(_LINE_BREAKS)}")
        for name, value in (headers or {}).items():
            if name.lower() not in ("content-type", "content-length", "transfer-encoding", "connection"):
                lines.append(f"{name.translate(_LINE_BREAKS)}: {value.translate(_LINE_BREAKS)}")
        lines.append(f"x-request-id: {request.id}\r\nconnection: {'close' if close else 'keep-alive'}\r\n")
        return "\r\n".join(lines).encode("utf-8", "replace") + _STATIC + self.server.cors

    def _finish(self, request: Request, status: int, close: bool) -> None:
        self.server.finished(self, request, status)
        self.current = None
        if close or self._broken:
            if self.transport is not None:
                self.transport.close()
            return
        self.deadline = time.monotonic() + IDLE_SECONDS
        if self._waiting:
            self._next()

    def fail(self, error: ServeError) -> None:
        """An error answer."""
        if self.streaming:  # the answer has begun: all that is left is to end it visibly
            if self.transport is not None:
                self.transport.abort()
            return
        self.send(error.status, error.body())


class Listener:
    """What all connections of one address share."""

    def __init__(
        self,
        handle: Callable[[Connection, Request], None],
        finished: Callable[[Connection, Request, int], None],
        unexpected: Callable[[Exception], None],
        max_request_size: int,
        cors: dict[str, str],
        lost: Callable[[Connection], None] = lambda connection: None,
    ):
        self.handle, self.finished, self.unexpected, self.lost = handle, finished, unexpected, lost
        self.max_request_size = max_request_size
        self.cors = "".join(f"{k}: {v}\r\n" for k, v in cors.items()).encode("latin-1")
        self.connections: set[Connection] = set()

    def __call__(self) -> Connection:
        return Connection(self)

    def check(self, now: float) -> None:
        for connection in list(self.connections):
            connection.expire(now)


# -- bodies --------------------------------------------------------------------------------------------------------------------


def body_parameters(request: Request) -> list[tuple[str, str, bytes]]:
    """The body as named values with their types: the fields of a form, or one called `body`."""
    kind = request.content_type
    if kind == "multipart/form-data":
        return _multipart(request.body, request.lower["content-type"])
    if kind == "application/x-www-form-urlencoded":
        pairs = urllib.parse.parse_qsl(request.body.decode("latin-1"), keep_blank_values=True, encoding="utf-8")
        return [(name, "", value.encode()) for name, value in pairs]
    return [("body", kind, request.body)]


def _options(header: str) -> dict[str, str]:
    """`form-data; name="a"; filename="b"` -> {"name": "a", "filename": "b"}."""
    found = {}
    for part in header.split(";")[1:]:
        key, _, value = part.partition("=")
        found[key.strip().lower()] = value.strip().strip('"')
    return found


def _multipart(body: bytes, content_type: str) -> list[tuple[str, str, bytes]]:
    boundary = _options(content_type).get("boundary", "")
    if not boundary:
        raise BadRequestException("A multipart request needs a boundary.")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1"))
    if len(parts) < 2 or not parts[-1].startswith(b"--"):
        raise BadRequestException("The multipart request is not complete.")
    fields = []
    for part in parts[1:-1]:
        head, blank, content = part.partition(b"\r\n\r\n")
        headers = {}
        for line in head.decode("utf-8", "replace").split("\r\n"):
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        options = _options(headers.get("content-disposition", ""))
        if not blank or "name" not in options:
            raise BadRequestException("A part of the multipart request has no name.")
        default = "application/octet-stream" if "filename" in options else ""
        kind = headers.get("content-type", default).partition(";")[0].strip() if "filename" in options else ""
        fields.append((options["name"], kind, content))
    return fields
