"""Secret of the processes of a job: the key with which they authenticate to each other.

It is FLAMBEAU_DISTRIBUTED_SECRET if that is set (`torchrun` sets it for its workers), else a key in a file that only the user can read,
created on first use. So processes of one user on one machine, or with a common home directory, find each other without configuration; on
machines that share no files the variable has to be the same everywhere."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from ..core.ownership import distrust
from .errors import DistNetworkError

VARIABLE = "FLAMBEAU_DISTRIBUTED_SECRET"
GREETING = b"flambeau store 1"
_NONCE, _PROOF = 16, 32
_HANDSHAKE_SECONDS = 10.0


def shared_secret() -> bytes:
    """Return the key that processes of this user or job share."""
    given = os.environ.get(VARIABLE)
    if given:
        return hashlib.sha256(given.encode()).digest()
    return hashlib.sha256(
        _from_file(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flambeau" / "distributed.key")
    ).digest()


def _from_file(path: Path) -> bytes:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        draft = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(32))
        try:
            os.link(draft, path)  # the first process wins, and no process ever sees half a key
        except FileExistsError:
            pass
        finally:
            os.unlink(draft)
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        state = os.fstat(file.fileno())
        if distrust(state) is not None or state.st_mode & 0o077:
            raise RuntimeError(f"{path} can be read by others, so it is no secret: remove it, or set {VARIABLE}")
        return file.read()


def _hmac_digest(secret: bytes, side: bytes, asked: bytes, answered: bytes) -> bytes:
    return hmac.new(secret, side + asked + answered, hashlib.sha256).digest()


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    """Receive `count` bytes from a socket; raises if it is closed before."""
    parts = bytearray(count)
    view, have = memoryview(parts), 0
    while have < count:
        got = connection.recv_into(view[have:])
        if not got:
            raise DistNetworkError(
                "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?"
            )
        have += got
    return bytes(parts)


def admit(connection: socket.socket, secret: bytes) -> bool:
    """Authenticate a client (the server's side): return whether it knows the secret. Both sides prove it by HMAC and never send it."""
    mine = os.urandom(_NONCE)
    connection.sendall(GREETING + mine)
    theirs = receive_exactly(connection, _NONCE + _PROOF)
    nonce, proof = theirs[:_NONCE], theirs[_NONCE:]
    if not hmac.compare_digest(proof, _hmac_digest(secret, b"client", mine, nonce)):
        return False
    connection.sendall(_hmac_digest(secret, b"server", nonce, mine))
    return True


def introduce(connection: socket.socket, secret: bytes) -> None:
    """Authenticate to a server: the client's side of `admit`."""
    greeting = receive_exactly(connection, len(GREETING) + _NONCE)
    if not greeting.startswith(GREETING):
        raise DistNetworkError("what answers at this address is not a store of Flambeau's")
    asked, mine = greeting[len(GREETING) :], os.urandom(_NONCE)
    connection.sendall(mine + _hmac_digest(secret, b"client", asked, mine))
    try:
        answer = receive_exactly(connection, _PROOF)
    except (OSError, DistNetworkError):
        raise DistNetworkError(
            f"the store refused this process: it has another secret. Set {VARIABLE} to the same value on every machine"
        ) from None
    if not hmac.compare_digest(answer, _hmac_digest(secret, b"server", mine, asked)):
        raise DistNetworkError("the server at this address does not know the secret of this job")


class Listener:
    """Accepts processes that know the secret; `serve(connection)` runs in a thread of each connection until it returns."""

    def __init__(self, listener: socket.socket, name: str, serve: Callable[[socket.socket], None]) -> None:
        self.listener, self.name, self.serve, self.secret = listener, name, serve, shared_secret()
        self.port: int = listener.getsockname()[1]
        self.connections: set[socket.socket] = set()
        threading.Thread(target=self._accept, name=f"{name} listener", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return  # closed
            self.connections.add(connection)
            name = f"{self.name} connection"
            threading.Thread(target=self._admit, args=(connection,), name=name, daemon=True).start()

    def _admit(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(_HANDSHAKE_SECONDS)
            if self._trusts(connection):
                connection.settimeout(None)
                self.serve(connection)
        except (OSError, DistNetworkError, struct.error):
            pass  # a stranger, or the other side has gone, or it talks nonsense: this connection is over
        finally:
            self.connections.discard(connection)
            connection.close()

    def _trusts(self, connection: socket.socket) -> bool:
        return admit(connection, self.secret)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
