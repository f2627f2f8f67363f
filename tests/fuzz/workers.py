"""Programs in processes of their own, which may crash or hang without ending the search."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

HANGS = 60.0  # seconds without a word after which a process is ended


def reports(work: Callable[[Callable[[Any], None]], None], seconds: float = HANGS) -> Iterator[Any]:
    """What `work(tell)` tells in a forked process; at last ("ended", signal): 0 if it came to its end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            work(lambda value: _send(writing, value))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    hung = False
    with os.fdopen(reading, "rb") as pipe:
        while True:
            if not select.select([pipe], [], [], seconds)[0]:
                hung = True
                os.kill(child, signal.SIGKILL)
                break
            size = pipe.read(4)
            if len(size) < 4:
                break
            yield pickle.loads(pipe.read(int.from_bytes(size, "little")))
    status = os.waitpid(child, 0)[1]
    yield ("ended", "hang" if hung else signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))  # fmt: skip


def _send(pipe: int, value: Any) -> None:
    data = pickle.dumps(value)
    data = len(data).to_bytes(4, "little") + data
    while data:
        data = data[os.write(pipe, data) :]


def ends(work: Callable[[], None], seconds: float = 10.0) -> Any:
    """How a process that does this work ends: 0, a status, the name of a signal, or "hang"."""
    start = time.monotonic()
    *_, (_, how) = reports(lambda tell: work(), seconds)
    return "hang" if time.monotonic() - start > seconds else how
