"""Channel between the server and a worker: messages over a socket, large values through shared memory.

A message is a length and a marshalled tuple. A value of `LARGE` bytes or more is put into the sender's arena, a memory file inherited by
the worker, and the message has its offset: the pixels of an image are copied once on each side, never through the kernel's socket buffers.
Arenas are reset when the server sends a batch while no other is in flight.
"""

from __future__ import annotations

import marshal
import mmap
import os
import socket
import struct
from typing import Any

LARGE = 16 << 10
MOST = 256 << 20
_LENGTH = struct.Struct("!I")
_STEP = 1 << 20


class Arena:
    """Shared memory file: one side writes values, the other reads them."""

    def __init__(self, descriptor: int | None = None):
        self.descriptor = os.memfd_create("flambeau-arena") if descriptor is None else descriptor
        self._map: mmap.mmap | None = None
        self._used = 0

    def reset(self) -> None:
        """Empty the arena: the other side has read all values."""
        self._used = 0

    def room(self, size: int) -> bool:
        """Return whether a value of this size may be added: an arena that is not emptied for long must not grow without bound."""
        return not self._used or self._used + size <= MOST

    def put(self, value: bytes | bytearray | memoryview) -> tuple[int, int]:
        """Copy a value into shared memory and return its (offset, size)."""
        start, size = self._used, len(value)
        end = start + size
        if self._map is None or end > len(self._map):
            room = -(-end // _STEP) * _STEP
            os.ftruncate(self.descriptor, room)
            self._remap(room)
        assert self._map is not None
        self._map[start:end] = value
        self._used = (end + 63) & ~63
        return start, size

    def take(self, place: tuple[int, int]) -> bytes:
        """Copy a value out of shared memory."""
        start, size = place
        end = start + size
        if self._map is None or end > len(self._map):
            self._remap(os.fstat(self.descriptor).st_size)
        assert self._map is not None
        if start < 0 or size < 0 or end > len(self._map):
            raise ValueError("a message names a place outside of the shared memory")
        return self._map[start:end]

    def _remap(self, size: int) -> None:
        if self._map is not None:
            self._map.close()
        self._map = mmap.mmap(self.descriptor, size)

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def frame(message: Any) -> bytes:
    """Encode a message as bytes."""
    body = marshal.dumps(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        buffer = self._buffer
        buffer += data
        messages, start = [], 0
        while len(buffer) - start >= 4:
            (size,) = _LENGTH.unpack_from(buffer, start)
            if len(buffer) - start - 4 < size:
                break
            messages.append(marshal.loads(memoryview(buffer)[start + 4 : start + 4 + size]))
            start += 4 + size
        if start:
            del buffer[:start]
        return messages


class BlockingChannel:
    """The worker's end of the channel, with blocking receive and send."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self._frames = Frames()
        self._waiting: list[Any] = []

    def receive(self) -> Any:
        """Return the next message, or None if the server has closed the connection."""
        while not self._waiting:
            try:
                data = self.connection.recv(1 << 18)
            except (ConnectionError, OSError):
                return None
            if not data:
                return None
            self._waiting = self._frames.feed(data)
        return self._waiting.pop(0)

    def send(self, message: Any) -> None:
        self.connection.sendall(frame(message))
