"""HTTP/1.1 on an event loop: requests in, answers out, nothing about models.

A connection is an `asyncio.Protocol` over httptools' parser: measured twice as fast here as any framework. It resists hostile clients:
headers and bodies have limits, a request must arrive within a time, answers to clients that do not read wait, and pipelined requests are
handled one by one.
"""

from __future__ import annotations

import asyncio
import http as _status
import os
import resource
import time
import urllib.parse
from collections import deque
from collections.abc import Callable
from typing import Any

import httptools

from ..core.records import record
from .errors import BadRequestException, RequestTooLargeException, ServeError, error_body

MAX_HEADERS = 64 << 10
REQUEST_SECONDS = 60.0  # for a request to arrive wholly, from its first byte
IDLE_SECONDS = 600.0
LINGER_SECONDS, LINGER_BYTES = 2.0, 8 << 20  # what a client may still send after it was refused
SLICE = 4 << 10  # bytes parsed at a time: room for a few requests, not for thousands
# Requests that may wait for an answer to another, and that are taken up before others have their turn.
AHEAD, TURN = 16, 16
SMALL_CHUNK = 8  # bytes around each byte of a body that comes in the smallest of chunks
MOST_UNSENT = 64 << 20  # of a streamed answer that the client does not read
_PHRASES = {s.value: s.phrase for s in _status.HTTPStatus}
_STATIC = (
    b"Pragma: no-cache\r\nCache-Control: no-cache; no-store, must-revalidate, private\r\n"
    b"Expires: Thu, 01 Jan 1970 00:00:00 UTC\r\n"
)
_LINE_BREAKS = str.maketrans({"\r": " ", "\n": " ", "\0": " "})


class _RandomDigits:
    """Buffer of random digits, which are fetched many at a time."""

    digits = ""
    at = 0


def new_id() -> str:
    """Return a random UUID as the id of a request."""
    if _RandomDigits.at >= len(_RandomDigits.digits):
        _RandomDigits.digits, _RandomDigits.at = os.urandom(4096).hex(), 0
    d = _RandomDigits.digits[_RandomDigits.at : _RandomDigits.at + 32]
    _RandomDigits.at += 32
    return f"{d[:8]}-{d[8:12]}-4{d[13:16]}-{'89ab'[int(d[16], 16) & 3]}{d[17:20]}-{d[20:]}"


@record
class Request:
    """An HTTP request."""

    method: str = ""
    target: bytes = b""
    path: str = ""
    query: str = ""
    headers: dict[str, str] = {}  # names as the client wrote them: handlers see these
    lower: dict[str, str] = {}
    body: bytes = b""
    id: str = ""
    started: float = 0.0
    keep_alive: bool = True
    version: str = "1.1"

    def parameters(self) -> dict[str, list[str]]:
        """Return the parameters of the query."""
        return urllib.parse.parse_qs(self.query, keep_blank_values=True)

    @property
    def content_type(self) -> str:
        """The body's media type, without parameters."""
        return self.lower.get("content-type", "").partition(";")[0].strip().lower()


class Connection(asyncio.Protocol):
    """A client's connection. `handle` gets each request with this object and answers by `send`, `send_part` or `fail`.

    Bytes are parsed in slices, and only while there is room: few requests wait, and none is handled while the client does not read its
    answers. While unparsed bytes remain, the transport reads no more."""

    def __init__(self, server: Listener):
        self.server = server
        self.transport: Any = None
        self.peer = "127.0.0.1"
        self._parser: Any = httptools.HttpRequestParser(self)
        self._unread, self._at = b"", 0  # received and not parsed, from that position
        self._request: Request | None = None
        self._in_body = False
        self._body_left = 0
        self._pieces: list[bytes] = []
        self._size = self._header_size = self._overhead = 0
        self._waiting: deque[Request] = deque()
        self.current: Request | None = None
        self.streaming = False
        self.deadline = float("inf")
        self._problem: ServeError | None = None  # what came is no HTTP: answered last, then the connection ends
        self._broken = self.has_ended = self._lingering = False
        self._paused = self._clogged = False
        self._discarded = 0
        self._unsent = (0, 0.0)  # bytes that the client does not take, and since when
        self._turn = TURN  # requests that may still be taken up before others have their turn
        self._is_advancing = self._is_scheduled = False

    # -- the connection --

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = f"/{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "/unix"
        self.server.make_room()
        self.server.connections.add(self)
        self.deadline = time.monotonic() + REQUEST_SECONDS

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.connections.discard(self)
        self.transport = None
        self._waiting.clear()
        self._unread, self._at = b"", 0
        if self.current is not None:
            self.server.lost(self)

    @property
    def is_open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        if self._broken:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES and self.transport is not None:
                self.transport.abort()
            return
        self._unread = self._unread[self._at :] + data if self._at < len(self._unread) else data
        self._at = 0
        if not self._is_scheduled:
            self._turn = TURN
            self._parse_and_handle()

    def eof_received(self) -> bool:
        """Still answer pending requests after the client has closed its side; with TLS both directions end at once."""
        self.has_ended = True
        busy = self.current is not None or bool(self._waiting) or self._at < len(self._unread)
        return busy and not self._lingering and self.transport.get_extra_info("sslcontext") is None

    def pause_writing(self) -> None:
        self._clogged = True
        self._unsent = (0, time.monotonic())

    def resume_writing(self) -> None:
        self._clogged = False
        self._go_on_soon()

    def _go_on_soon(self) -> None:
        """Yield to other connections, then continue."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_next_turn)

    def _run_next_turn(self) -> None:
        self._is_scheduled = False
        self._turn = TURN
        self._parse_and_handle()

    def _parse_and_handle(self) -> None:
        """Parse and handle requests while there is room for both."""
        self._advance()
        while self._at < len(self._unread) and len(self._waiting) < AHEAD and not self._clogged and self._turn > 0:
            end = self._at + max(SLICE, self._body_left)
            data = self._unread[self._at : end]
            self._at = end
            self._feed(data)
            self._advance()
        if self._at >= len(self._unread):
            self._unread, self._at = b"", 0
        self._pause_or_resume()

    def _pause_or_resume(self) -> None:
        """Pause or resume reading: read from the client only if no unparsed bytes are left."""
        full = bool(self._unread)
        if self.transport is None or full == self._paused or self.has_ended or self.transport.is_closing():
            return
        self._paused = full
        if full:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _advance(self) -> None:
        """Handle waiting requests one after the other: an immediate answer makes room for the next."""
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            while self.current is None and self._waiting and not self._clogged and self.transport is not None:
                if self._turn <= 0:
                    break
                self._turn -= 1
                self._take(self._waiting.popleft())
        finally:
            self._is_advancing = False
        if self.current is not None or self.transport is None or self._clogged:
            return
        if self._turn <= 0 and (self._waiting or self._unread):
            self._go_on_soon()
        elif self._waiting:
            return
        elif self._problem is not None:
            self._send_problem(self._problem)
        elif self.has_ended and self._at >= len(self._unread):
            self.transport.close()

    def _feed(self, data: bytes) -> None:
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
            if self._overhead > MAX_HEADERS:
                self._refuse(RequestTooLargeException("The request's headers are too large."))
        except httptools.HttpParserUpgrade as e:
            self._decline_upgrade(data[e.args[0] :])
        except httptools.HttpParserCallbackError as e:
            cause = e.__context__
            self._refuse(cause if isinstance(cause, ServeError) else BadRequestException("Invalid HTTP message."))
        except httptools.HttpParserError:
            self._refuse(BadRequestException("Invalid HTTP message."))

    def _decline_upgrade(self, rest: bytes) -> None:
        """Read a request again as if it had not asked for another protocol: the parser has taken its body for something else's."""
        request = self._waiting[-1]
        if request.method == "CONNECT":
            request.keep_alive = False
            self._broken = True
            return
        self._waiting.pop()
        lines = [f"{request.method} {request.target.decode('latin-1')} HTTP/{request.version}"]
        lines += [f"{name}: {value}" for name, value in request.headers.items() if name.lower() != "upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self._feed("\r\n".join([*lines, "\r\n"]).encode("latin-1") + rest)

    def _refuse(self, error: ServeError) -> None:
        """Answer with an error and stop reading from the connection."""
        if not self._broken:
            self._broken = True
            self._problem = error
            self._unread, self._at = b"", 0

    def _send_problem(self, error: ServeError) -> None:
        self._problem = None
        self.current = self._request or Request()
        self.current.keep_alive = False
        self.fail(error)

    def expire(self, now: float) -> None:
        """Close a connection that has been idle too long, whose request does not arrive, or which does not read its answers."""
        if self.transport is None:
            return
        if self._clogged:
            size = self.transport.get_write_buffer_size()
            if size != self._unsent[0]:
                self._unsent = (size, now)
            elif now - self._unsent[1] > REQUEST_SECONDS:
                self.transport.abort()
        elif now > self.deadline and self.current is None:
            self.transport.abort()

    # -- what the parser sees --

    def on_message_begin(self) -> None:
        self._request = Request()
        self._in_body = False
        self._pieces, self._size, self._header_size, self._overhead = [], 0, 0, 0
        self.deadline = time.monotonic() + REQUEST_SECONDS

    def on_url(self, url: bytes) -> None:
        assert self._request is not None
        self._request.target += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        assert self._request is not None
        self._count(len(name) + len(value))
        if self._in_body:
            return  # what follows a body in chunks must not change what was said before it
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
        self._in_body = True
        if request.lower.get("transfer-encoding", "chunked").strip().lower() != "chunked":
            raise BadRequestException("The only Transfer-Encoding that this server knows is chunked.")
        length = request.lower.get("content-length")
        if length is not None:
            if not length.isdigit() or int(length) > self.server.max_request_size:
                raise RequestTooLargeException(f"The request is larger than {self.server.max_request_size} bytes.")
            self._body_left = int(length)
        idle = self.current is None and not self._waiting  # else it would come amid another answer
        if idle and request.lower.get("expect", "").lower() == "100-continue" and self.transport is not None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        self._body_left = max(self._body_left - len(data), 0)
        self._overhead = max(self._overhead - SMALL_CHUNK * len(data), 0)
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
        self._in_body, self._body_left, self._overhead = False, 0, 0
        self.deadline = time.monotonic() + IDLE_SECONDS
        self._waiting.append(request)

    def _take(self, request: Request) -> None:
        """Handle a request that has arrived."""
        self.current = request
        request.id = new_id()
        request.started = time.perf_counter()
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
        """Send a complete response."""
        request = self.current
        if request is None or self.transport is None:
            return
        close = not request.keep_alive
        head = self._head(request, status, phrase, content_type, headers, close)
        shown = b"" if request.method == "HEAD" else body
        self.transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), shown))
        self._finish(request, status, close)

    def send_part(
        self, status: int, body: bytes, content_type: str, headers: dict[str, str], phrase: str, more: bool
    ) -> None:
        """Send a part of a streamed answer; the last one has `more` false."""
        request = self.current
        if request is None or self.transport is None:
            return
        knows_chunks = request.version >= "1.1"
        if not knows_chunks:  # the answer ends with the connection
            request.keep_alive = False
            data = body
        else:
            data = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if not more:
                data += b"0\r\n\r\n"
        if request.method == "HEAD":
            data = b""
        if not self.streaming:
            self.streaming = True
            head = self._head(request, status, phrase, content_type, headers, not request.keep_alive)
            data = head + (b"transfer-encoding: chunked\r\n\r\n" if knows_chunks else b"\r\n") + data
        self.transport.write(data)
        if not more:
            self.streaming = False
            self._finish(request, status, not request.keep_alive)
        elif self.transport.get_write_buffer_size() > MOST_UNSENT:
            self.transport.abort()  # the client does not read what it has asked for

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
        if self.transport is None:
            return
        if close:
            self._close()
            return
        self.deadline = time.monotonic() + (IDLE_SECONDS if self._request is None else REQUEST_SECONDS)
        if self._waiting or self._unread or self.has_ended or self._problem is not None:
            if self._is_advancing:
                return
            self._go_on_soon()

    def _close(self) -> None:
        """Close the connection. After a request that was refused unread, the client may still be sending: closing at once would reset the
        connection, and the client would lose the answer."""
        self._waiting.clear()
        if self._broken and not self.has_ended and self.transport.can_write_eof():
            self._lingering = True
            self.deadline = time.monotonic() + LINGER_SECONDS
            self.transport.write_eof()
        else:
            self._broken = True
            self.transport.close()

    def fail(self, error: ServeError) -> None:
        """Send an error response."""
        if self.streaming:  # the answer has begun: all that is left is to end it visibly
            if self.transport is not None:
                self.transport.abort()
            return
        self.send(error.status, error.body())


class Listener:
    """State shared by all connections of one address."""

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
        # Some of the process's descriptors are left for workers, files and the other addresses.
        self.most = max(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4, 16)

    def __call__(self) -> Connection:
        return Connection(self)

    def make_room(self) -> None:
        """Close the connection that has waited longest for a request, if the limit is reached."""
        if len(self.connections) >= self.most:
            idle = [c for c in self.connections if c.current is None and c.transport is not None]
            if idle:
                oldest = min(idle, key=lambda connection: connection.deadline)
                self.connections.discard(oldest)
                oldest.transport.abort()

    def check(self, now: float) -> None:
        for connection in list(self.connections):
            connection.expire(now)
