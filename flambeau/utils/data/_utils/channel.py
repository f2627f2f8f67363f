"""Channel between a loader and one worker: pickled messages over a socket pair, with shared memory for tensors.

The worker's end blocks. The loader's end never does: a worker that hangs or dies in the middle of a message must not block the loader. Only
the loader's process holds the loader's ends (a forked child closes its copies), so each side sees the end of the stream as soon as the
other is gone.
"""

from __future__ import annotations

import array
import os
import pickle
import socket
import struct
import weakref
from typing import Any

from flambeau.multiprocessing import pack, unpack

from .blocks import MOST_NEW, LoaderBlocks, worker_pool
from .failure import Failure

# Bytes of the message, epoch and number of the task, new blocks (their descriptors go with the head), dropped blocks.
_HEAD = struct.Struct("<QQQII")
_NEW = struct.Struct("<QQ")  # number and size of a block
_DROPPED = struct.Struct("<Q")
_ANCILLARY = socket.CMSG_SPACE(MOST_NEW * 4)
_CHUNK = 1 << 18

_loader_ends: weakref.WeakSet[LoaderEnd] = weakref.WeakSet()


Answer = tuple[int, int, Any]  # epoch, number of the task, result


class ChannelClosed(Exception):
    """Raised when the other side has closed the channel."""


class LoaderEnd:
    """The loader's end: sends tasks to a worker and collects its answers."""

    def __init__(self, sock: socket.socket):
        sock.setblocking(False)
        self._socket = sock
        self._arrived = bytearray()
        self._descriptors: list[int] = []
        self._blocks = LoaderBlocks()
        self._waiting = bytearray()  # what the socket would not take yet
        self._closed_by_worker = False
        _loader_ends.add(self)

    def fileno(self) -> int:
        return self._socket.fileno()

    def wants_to_send(self) -> bool:
        return bool(self._waiting)

    def send(self, message: Any) -> None:
        data = pickle.dumps((message, *self._blocks.take_ended()), pickle.HIGHEST_PROTOCOL)
        self._waiting += _HEAD.pack(len(data), 0, 0, 0, 0) + data
        self.flush()

    def flush(self) -> None:
        """Send as many queued bytes as the socket accepts. A dead worker is noticed when reading."""
        try:
            while self._waiting:
                del self._waiting[: self._socket.send(self._waiting)]
        except BlockingIOError:
            pass
        except OSError:
            self._waiting.clear()

    def receive(self) -> list[Answer]:
        """Return all complete answers that have arrived; raises ChannelClosed after the last one."""
        self._receive_pending()
        messages: list[Answer] = []
        while (message := self._next_message()) is not None:
            messages.append(message)
        if not messages and self._closed_by_worker:
            raise ChannelClosed
        return messages

    def _receive_pending(self) -> None:
        while not self._closed_by_worker:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(_CHUNK, _ANCILLARY, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            except OSError:
                data, ancillary = b"", []
            for _, _, fds in ancillary:
                numbers = array.array("i")
                numbers.frombytes(fds[: len(fds) - len(fds) % numbers.itemsize])
                self._descriptors.extend(numbers)
            if not data:
                self._closed_by_worker = True
            self._arrived += data
            if len(data) < _CHUNK:
                return

    def _next_message(self) -> Answer | None:
        if len(self._arrived) < _HEAD.size:
            return None
        nbytes, epoch, number, new, dropped = _HEAD.unpack_from(self._arrived)
        start = _HEAD.size + new * _NEW.size + dropped * _DROPPED.size
        if len(self._arrived) < start + nbytes:
            return None
        self._note_blocks(new, dropped)
        data = bytes(memoryview(self._arrived)[start : start + nbytes])
        del self._arrived[: start + nbytes]
        try:
            return epoch, number, unpack(data, self._blocks.receive)
        except Exception as problem:  # a class that this process does not have, say: a failure of that batch
            return epoch, number, Failure.of(problem, "while reading a batch of a DataLoader worker")

    def _note_blocks(self, new: int, dropped: int) -> None:
        if len(self._descriptors) < new:
            raise RuntimeError(
                f"{new - len(self._descriptors)} of {new} shared memory files from a data-loader worker did not arrive:"
                " too many open files in this process? (see `ulimit -n`)"
            )
        for i in range(new):
            block, size = _NEW.unpack_from(self._arrived, _HEAD.size + i * _NEW.size)
            self._blocks.add(block, self._descriptors.pop(0), size)
        for i in range(dropped):
            (block,) = _DROPPED.unpack_from(self._arrived, _HEAD.size + new * _NEW.size + i * _DROPPED.size)
            self._blocks.forget(block)

    def close(self) -> None:
        self._socket.close()
        for fd in self._descriptors:
            os.close(fd)
        self._descriptors.clear()
        self._blocks = LoaderBlocks()  # tensors that are still in use keep what they need


def _close_copies() -> None:
    for end in list(_loader_ends):
        end.close()
    _loader_ends.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_copies)


class WorkerEnd:
    """The worker's end: receives tasks and sends results; picklable while a process is being started."""

    def __init__(self, sock: socket.socket):
        self._socket = sock

    def close(self) -> None:
        self._socket.close()

    def receive(self) -> Any:
        nbytes, *_ = _HEAD.unpack(self._receive_exactly(_HEAD.size))
        message, returned, lost = pickle.loads(self._receive_exactly(nbytes))
        worker_pool().taken_back(returned, lost)
        return message

    def _receive_exactly(self, count: int) -> bytes:
        parts = []
        while count:
            try:
                data = self._socket.recv(count)
            except ConnectionError:
                data = b""
            if not data:
                raise ChannelClosed
            parts.append(data)
            count -= len(data)
        return b"".join(parts)

    def send(self, epoch: int, number: int, result: Any) -> None:
        """Send a result; pickling errors are raised before anything is sent."""
        pool = worker_pool()
        try:
            data = pack(result, pool.send)
        except Exception:
            pool.recall()
            raise
        new, dropped = pool.take_news()
        head = _HEAD.pack(len(data), epoch, number, len(new), len(dropped))
        head += b"".join(_NEW.pack(block, root.nbytes) for block, root in new)
        head += b"".join(_DROPPED.pack(block) for block in dropped)
        try:
            if new:  # descriptors ride on bytes
                descriptors = array.array("i", [root.fd for _, root in new])
                while not self._socket.sendmsg([head[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]):
                    pass
                head = head[1:]
                for _, root in new:
                    root.give_up_descriptor()
            if len(data) < _CHUNK:
                self._socket.sendall(head + data)
            else:
                self._socket.sendall(head)
                self._socket.sendall(data)
        except ConnectionError:
            raise ChannelClosed from None


def open_channel() -> tuple[LoaderEnd, WorkerEnd]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return LoaderEnd(ours), WorkerEnd(theirs)
