"""Notice on a terminal when compiling kernels takes so long that a person would wonder; nothing is shown elsewhere.

Kernels are compiled when they are first used on a machine. Later runs read them from the cache.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from . import cache

PATIENCE = 0.5  # seconds of compiling, all kernels together, before something is said


class Notice:
    """Counter of the time that a process has spent compiling; it says so once when that is more than PATIENCE."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.told = False

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Context manager around the compilation of a kernel."""
        stream = None if self.told else _terminal()
        if stream is None:
            yield
            return
        timer = threading.Timer(max(0.0, PATIENCE - self.seconds), self._tell, (stream,))
        timer.daemon = True
        timer.start()
        started = time.perf_counter()
        try:
            yield
        finally:
            timer.cancel()
            self.seconds += time.perf_counter() - started

    def _tell(self, stream: TextIO) -> None:
        if self.told:
            return
        self.told = True
        reason = cache.problem()
        kept = (
            f"kept in {cache.directory()}" if reason is None else f"not kept, because of {cache.directory()}: {reason}"
        )
        with contextlib.suppress(OSError, ValueError):  # a terminal that has gone needs no notice
            stream.write(f"flambeau: compiling kernels for their first use on this machine ({kept})\n")
            stream.flush()


def _terminal() -> TextIO | None:
    """Return stderr if it is a terminal that a person reads: not in a worker process, nor in a rank other than the first."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        return None
    try:
        seen = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("LOCAL_RANK", "0") == "0"
    except ValueError:  # it is closed
        return None
    return sys.stderr if seen else None


NOTICE = Notice()
