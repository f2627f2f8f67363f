"""TCPStore: one process serves the keys, the others query it over TCP.

A message is a list of byte strings: their number, their lengths, their bytes. The first one of a request is the command; of an answer, the
status. Nothing is unpickled, clients must know the secret (see `secret`), and anything else that arrives at the port only closes its own
connection."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing.util
import socket
import struct
import time
import weakref
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from . import secret
from .errors import DistNetworkError, DistStoreError, QueueEmptyError
from .store import DEFAULT_TIMEOUT, Store, Table, as_bytes

_MOST_PARTS, _MOST_BYTES = 1 << 16, 1 << 31
_EXIT_TIMEOUT_SECONDS = 2.0
_ANSWER_SECONDS = (
    30.0  # that an answer may take beyond what the request lets it wait: the process that serves the store may hang
)
_LONGEST_SECONDS = 1e8  # that a socket is told to wait
_COUNT = struct.Struct("<I")


def _send(connection: socket.socket, parts: Sequence[bytes]) -> None:
    sizes = struct.pack(f"<{len(parts) + 1}I", len(parts), *map(len, parts))
    connection.sendall(sizes + b"".join(parts))


def _receive(connection: socket.socket) -> list[bytes]:
    (count,) = _COUNT.unpack(secret.receive_exactly(connection, 4))
    if not 0 < count <= _MOST_PARTS:
        raise DistNetworkError(f"a message of {count} parts is none")
    sizes = struct.unpack(f"<{count}I", secret.receive_exactly(connection, 4 * count))
    if sum(sizes) > _MOST_BYTES:
        raise DistNetworkError(f"a message of {sum(sizes)} bytes is too long for a store")
    return [secret.receive_exactly(connection, size) for size in sizes]


class _Server(secret.Listener):
    """Answers requests, one thread for each connection."""

    def __init__(self, host: str, port: int, listen_fd: int | None = None) -> None:
        self.table = Table()
        self.asking: set[socket.socket] = set()  # connections with a request that has no answer yet
        try:
            listener = self._listen(port) if listen_fd is None else socket.socket(fileno=listen_fd)
        except OSError as problem:
            raise DistNetworkError(
                f"The server socket has failed to listen on any local network address. port: {port}, useIpv6: false, code:"
                f" {-(problem.errno or 0)}, name: {errno_name(problem)}, message: {(problem.strerror or str(problem)).lower()}"
            ) from None
        super().__init__(listener, "store", self._serve)
        # Runs in processes that multiprocessing forks, too, where atexit does not.
        self._at_exit = multiprocessing.util.Finalize(None, self.finish, exitpriority=0)

    @staticmethod
    def _listen(port: int) -> socket.socket:
        if socket.has_dualstack_ipv6():
            with contextlib.suppress(OSError):
                return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
        return socket.create_server(("", port), backlog=1024)

    def _serve(self, connection: socket.socket) -> None:
        try:
            while True:
                command, *arguments = _receive(connection)
                self.asking.add(connection)
                _send(connection, self._answer(command, arguments))
                self.asking.discard(connection)
        finally:
            self.asking.discard(connection)

    def finish(self) -> None:
        """Answer pending requests before the process ends. The last key of a barrier wakes the process that serves the store as well as the
        others, and it must not end before they have got their answers."""
        deadline = time.monotonic() + _EXIT_TIMEOUT_SECONDS
        while self.asking and time.monotonic() < deadline:
            time.sleep(0.005)

    def _answer(self, command: bytes, arguments: list[bytes]) -> list[bytes]:
        handler = getattr(self, f"_do_{command.decode('ascii', 'replace')}", None)
        if handler is None:
            return [b"error", b"there is no such command"]
        try:
            return handler(*arguments)
        except (TypeError, ValueError, UnicodeDecodeError) as problem:
            return [b"error", str(problem).encode()]

    def _do_set(self, *pairs: bytes) -> list[bytes]:
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            self.table.set(key.decode(), value)
        return [b"ok"]

    def _do_get(self, seconds: bytes, *keys: bytes) -> list[bytes]:
        names = [key.decode() for key in keys]
        if not self.table.wait(names, float(seconds)):
            return [b"timeout"]
        return [b"ok", *(self.table.get(name, 0) or b"" for name in names)]

    def _do_wait(self, seconds: bytes, *keys: bytes) -> list[bytes]:
        return [b"ok" if self.table.wait([key.decode() for key in keys], float(seconds)) else b"timeout"]

    def _do_check(self, *keys: bytes) -> list[bytes]:
        return [b"ok", b"1" if self.table.check([key.decode() for key in keys]) else b"0"]

    def _do_add(self, key: bytes, amount: bytes) -> list[bytes]:
        return [b"ok", str(self.table.add(key.decode(), int(amount))).encode()]

    def _do_compare_set(self, key: bytes, expected: bytes, desired: bytes) -> list[bytes]:
        return [b"ok", self.table.compare_set(key.decode(), expected, desired)]

    def _do_append(self, key: bytes, value: bytes) -> list[bytes]:
        self.table.append(key.decode(), value)
        return [b"ok"]

    def _do_delete(self, key: bytes) -> list[bytes]:
        return [b"ok", b"1" if self.table.delete(key.decode()) else b"0"]

    def _do_list(self) -> list[bytes]:
        return [b"ok", *(key.encode() for key in list(self.table.values))]

    def _do_push(self, key: bytes, value: bytes) -> list[bytes]:
        self.table.push(key.decode(), value)
        return [b"ok"]

    def _do_pop(self, key: bytes, seconds: bytes) -> list[bytes]:
        value = self.table.pop(key.decode(), float(seconds))
        return [b"timeout"] if value is None else [b"ok", value]

    def _do_length(self, key: bytes) -> list[bytes]:
        return [b"ok", str(self.table.length(key.decode())).encode()]

    def close(self) -> None:
        self._at_exit.cancel()
        super().close()


def errno_name(problem: OSError) -> str:
    return errno.errorcode.get(problem.errno or 0, "?")


_shared_servers: weakref.WeakValueDictionary[int, _Server] = weakref.WeakValueDictionary()  # of multi_tenant stores


class TCPStore(Store):
    """A store that one process (`is_master`) serves and others reach under `host_name` and `port`."""

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        super().__init__()
        self._timeout = timeout
        self.host = host_name
        self._server = self._serve(port, multi_tenant, master_listen_fd) if is_master else None
        self.port = self._server.port if self._server else port
        self.libuvBackend = use_libuv
        self._secret = secret.shared_secret()
        self._free: list[socket.socket] = []
        self._free.append(self._connect())
        self._count_worker(world_size, wait_for_workers)
        if self._server is not None and not multi_tenant:
            weakref.finalize(self, self._server.close)

    @staticmethod
    def _serve(port: int, multi_tenant: bool, listen_fd: int | None) -> _Server:
        server = _shared_servers.get(port) if multi_tenant else None
        if server is None:
            server = _Server("", port, listen_fd)
            if multi_tenant:
                _shared_servers[server.port] = server
        return server

    @property
    def is_server(self) -> bool:
        """Return whether this process stores the values."""
        return self._server is not None

    def _count_worker(self, world_size: int | None, wait: bool) -> None:
        """Count this process; the master waits for the others."""
        count = int(self._request(b"add", b"init/", b"1")[0])
        if not (self._server is not None and wait and world_size):
            return
        deadline = time.monotonic() + self._timeout.total_seconds()
        while count < world_size:
            if time.monotonic() > deadline:
                seconds = int(self._timeout.total_seconds())
                raise DistStoreError(
                    f"Timed out after {seconds + 1} seconds waiting for clients. {count}/{world_size} clients joined."
                )
            time.sleep(0.01)
            count = int(self._request(b"add", b"init/", b"0")[0])

    def _connect(self) -> socket.socket:
        deadline, pause = time.monotonic() + self._timeout.total_seconds(), 0.01
        host = "127.0.0.1" if self._server is not None else self.host
        while True:
            try:
                connection = socket.create_connection((host, self.port), max(0.1, deadline - time.monotonic()))
                break
            except OSError as problem:
                if time.monotonic() + pause > deadline:
                    milliseconds = int(self._timeout.total_seconds() * 1000)
                    raise DistNetworkError(
                        f"The client socket has timed out after {milliseconds}ms while trying to connect to"
                        f" ({self.host}, {self.port}): {problem}."
                    ) from None
            time.sleep(pause)  # the master may not have begun yet
            pause = min(2 * pause, 0.5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(max(1.0, min(60.0, self._timeout.total_seconds())))
        try:
            secret.introduce(connection, self._secret)
        except OSError as problem:
            connection.close()
            raise DistNetworkError(f"({self.host}, {self.port}) does not answer like a store: {problem}") from None
        except DistNetworkError:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def _connection(self) -> Iterator[socket.socket]:
        """Context manager: yield an unused connection, so that a thread that waits for a key does not block the others."""
        try:
            connection = self._free.pop()
        except IndexError:
            connection = self._connect()
        try:
            yield connection
        except BaseException:
            connection.close()  # data still in flight on it has no receiver any more
            raise
        self._free.append(connection)

    def _request(self, *request: bytes, wait: timedelta = timedelta()) -> list[bytes]:
        try:
            with self._connection() as connection:
                connection.settimeout(min(wait.total_seconds(), _LONGEST_SECONDS) + _ANSWER_SECONDS)
                _send(connection, request)
                state, *answer = _receive(connection)
        except OSError as problem:
            raise DistNetworkError(f"{problem.strerror or problem}: the store ({self.host}, {self.port})") from None
        if state == b"timeout":
            raise TimeoutError
        if state != b"ok":
            message = answer[0].decode(errors="replace") if answer else "the store did not understand"
            raise DistNetworkError(message)
        return answer

    def _timeout_error(self, keys: Sequence[str], timeout: timedelta) -> DistStoreError:
        names = ", ".join(f"/{key}" for key in keys)
        return DistStoreError(f"wait timeout after {int(timeout.total_seconds() * 1000)}ms, keys: {names}")

    @staticmethod
    def _key(key: str) -> bytes:
        return b"/" + key.encode()

    def set(self, key: str, value: str | bytes) -> None:
        self._request(b"set", self._key(key), as_bytes(value))

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        if len(keys) != len(values):
            raise ValueError(f"multi_set(): {len(keys)} keys and {len(values)} values")
        if keys:
            pairs = [part for key, value in zip(keys, values) for part in (self._key(key), as_bytes(value))]
            self._request(b"set", *pairs)

    def _seconds(self, timeout: timedelta) -> bytes:
        return str(timeout.total_seconds()).encode()

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        try:
            names = map(self._key, keys)
            return self._request(b"get", self._seconds(self._timeout), *names, wait=self._timeout) if keys else []
        except TimeoutError:
            raise self._timeout_error(keys, self._timeout) from None

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        timeout = timeout or self._timeout
        try:
            self._request(b"wait", self._seconds(timeout), *map(self._key, keys), wait=timeout)
        except TimeoutError:
            raise self._timeout_error(keys, timeout) from None

    def check(self, keys: Sequence[str]) -> bool:
        return self._request(b"check", *map(self._key, keys)) == [b"1"]

    def add(self, key: str, amount: int) -> int:
        if not isinstance(amount, int):
            raise TypeError(f"add(): incompatible function arguments: expected an int, got {type(amount).__name__}")
        return int(self._request(b"add", self._key(key), str(amount).encode())[0])

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        return self._request(b"compare_set", self._key(key), as_bytes(expected_value), as_bytes(desired_value))[0]

    def append(self, key: str, value: str | bytes) -> None:
        self._request(b"append", self._key(key), as_bytes(value))

    def delete_key(self, key: str) -> bool:
        return self._request(b"delete", self._key(key)) == [b"1"]

    def num_keys(self) -> int:
        return len(self._request(b"list"))

    def list_keys(self) -> list[str]:
        return [key.decode()[1:] for key in self._request(b"list") if key.startswith(b"/")]

    def has_extended_api(self) -> bool:
        return True

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._request(b"push", self._key(key), as_bytes(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        timeout = self._timeout if block else timedelta(0)
        try:
            return self._request(b"pop", self._key(key), self._seconds(timeout), wait=timeout)[0]
        except TimeoutError:
            if not block:
                raise QueueEmptyError("queue is empty") from None
            raise self._timeout_error([key], timeout) from None

    def queue_len(self, key: str) -> int:
        return int(self._request(b"length", self._key(key))[0])

    def clone(self) -> TCPStore:
        return TCPStore(self.host, self.port, None, False, self._timeout)

    def __repr__(self) -> str:
        served = f"TCPServer(port={self.port})" if self._server else "<nullptr>"
        return f"TCPStore(client=TCPClient({self.host}:{self.port}), server={served})"

    def __del__(self) -> Any:
        for connection in getattr(self, "_free", ()):
            connection.close()
