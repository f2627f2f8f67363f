"""Nursery of workers: a process that has Flambeau loaded and forks a worker in milliseconds.

Starting Python and importing a framework takes longer than loading most models. The nursery does it once; each worker is a fork of it, so
its modules are shared in memory, too. It has no threads and never runs a handler. It communicates over a Unix socket: it receives a JSON
line with the file descriptors of a new worker, and sends lines about processes started and ended.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from ..core import naming

_ROOT = str(Path(__file__).resolve().parents[2])
DESCRIPTORS = 5  # connection, server's arena, worker's arena, stdout, stderr


def python_path_first(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment with PYTHONPATH set so that this copy of Flambeau is imported."""
    paths = [_ROOT, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    return {**environment, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


class Nursery:
    """The server's handle of the nursery: starts it on first use, and again if it dies."""

    def __init__(self, environment: dict[str, str]):
        self.environment = python_path_first(environment)
        self._process: subprocess.Popen | None = None
        self._fork = 0  # the process id, if it was forked from the server
        self._socket: socket.socket | None = None
        self._born: dict[str, asyncio.Future[int]] = {}
        self._buffer = b""
        self._sending = asyncio.Lock()

    def fork(self) -> None:
        """Fork the nursery from this process, which has Flambeau loaded; must be called before threads and an event loop exist."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._fork = os.fork()
        if self._fork == 0:
            # The server's locks and sockets are not the nursery's: they must be free when the server has gone.
            os.closerange(3, theirs.fileno())
            os.closerange(theirs.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
            os.setsid()
            try:
                main(theirs.detach())
            finally:
                os._exit(0)
        theirs.close()
        ours.setblocking(False)
        self._socket = ours

    def start(self) -> None:
        """Start the process unless it runs; it imports Flambeau in the background."""
        if self._socket is not None:
            if self._fork:
                asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        command = [sys.executable, "-m", f"{__package__}.nursery", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=self.environment, stdin=subprocess.DEVNULL, start_new_session=True
        )
        theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._buffer = b""
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read)

    def _read(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._handle_end()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            event = json.loads(line)
            future = self._born.pop(event["name"], None)
            if future is not None and not future.done():
                future.set_result(event["pid"])

    def _handle_end(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        self._await_exit()
        for future in self._born.values():
            if not future.done():
                future.set_exception(ConnectionError("the process that starts workers has died"))
        self._born.clear()

    async def spawn(self, order: dict[str, Any], descriptors: list[int]) -> int:
        """Fork a worker and return its process id."""
        self.start()
        assert self._socket is not None
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._born[order["name"]] = future
        line = json.dumps(order).encode() + b"\n"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        async with self._sending:  # a long order is sent in pieces, which must not mix with another's
            while line:
                if self._socket is None:
                    raise ConnectionError("the process that starts workers has died")
                try:
                    line = line[self._socket.sendmsg([line], rights) :]
                    rights = []
                except BlockingIOError:
                    await asyncio.sleep(0.01)
        return await future

    def stop(self) -> None:
        """End the nursery; workers end when their connections close."""
        self._handle_end()

    def _await_exit(self) -> None:
        """Wait for the nursery, which ends when its socket closes, and terminate it if necessary."""
        if self._fork:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._fork, 0)
            self._fork = 0
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            self._process = None


# -- in the nursery ------------------------------------------------------------------------------------------------------------


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return an order and its file descriptors, or None if the server has closed the connection."""
    line, descriptors = b"", array.array("i")
    while not line.endswith(b"\n"):
        data, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(DESCRIPTORS * 4)) if not line else (
            connection.recv(1 << 16, socket.MSG_PEEK), [], 0, 0)  # fmt: skip
        if not data:
            return None
        if line:  # never beyond the end of this order: the next one has descriptors of its own
            data = connection.recv(data.find(b"\n") + 1 or len(data))
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(content[: len(content) - len(content) % 4])
        line += data
    return json.loads(line), list(descriptors)


def _become_worker(connection: socket.socket, order: dict[str, Any], descriptors: list[int]) -> None:
    """Turn a fork into a worker: set its output, folder and environment, and run it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    connection.close()
    os.setsid()
    talk, ours, theirs, out, err = descriptors
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.environ.clear()
    os.environ.update(order["environment"])
    code = 1
    try:
        code = naming.above("serve.worker").run(order, talk, ours, theirs)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def main(descriptor: int) -> None:
    """Import Flambeau, then fork a worker for each order until the server ends."""
    connection = socket.socket(fileno=descriptor)
    naming.above("serve.worker").prepare()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries the workers; the server sees their sockets close
    gc.freeze()  # what is loaded now is shared with the workers: the collector must not touch its pages
    while (received := _receive(connection)) is not None:
        order, descriptors = received
        pid = os.fork()
        if pid == 0:
            _become_worker(connection, order, descriptors)
        for d in descriptors:
            os.close(d)
        connection.sendall(json.dumps({"name": order["name"], "pid": pid}).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
