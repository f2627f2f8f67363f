"""`Work`: handle of an asynchronous operation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ..core.locks import new_lock
from ..core.tensor import Tensor
from ..futures import Future
from .errors import DistBackendError


class Arrived:
    """Work that is complete for the host: it is queued on the device's stream, or nothing is sent."""

    def __init__(self, peer: int) -> None:
        self.peer = peer

    def done(self) -> bool:
        return True

    def wait(self, seconds: float | None = None) -> int:
        return self.peer


class Work:
    """A started collective or message; `wait()` for it before its tensors are used.

    A subclass in Python overrides what it needs."""

    def __init__(self, future: Future[Any] | None = None, source: Callable[[], int] | None = None, what: str = "") -> None:  # fmt: skip
        self._future: Future = Future() if future is None else future
        self._source = source
        self._what = what

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until it is done; raises the error it met. A timeout of 0 means that of the process group."""
        seconds = timeout.total_seconds() if timeout else 0.0
        if seconds and not self._future.done():
            finished = threading.Event()
            self._future.add_done_callback(lambda _: finished.set())
            if not finished.wait(seconds):
                raise DistBackendError(
                    f"{self._what}: Timed out waiting {seconds * 1000:.0f}ms for send operation to complete"
                )
        self._future.wait()
        return True

    def synchronize(self) -> None:
        self.wait()

    block_current_stream = synchronize

    def is_completed(self) -> bool:
        return self._future.done()

    def is_success(self) -> bool:
        return self._future.done() and self._future._error is None

    def exception(self) -> BaseException | None:
        return self._future._error

    def result(self) -> list[Tensor]:
        """Return the tensors that the operation has written."""
        value = self._future.wait()
        return value if isinstance(value, list) else [value]

    def get_future(self) -> Future[Any]:
        """Return a future of the list of tensors."""
        return self._future

    get_future_result = get_future

    def source_rank(self) -> int:
        """Return the sender of a message that was received from any rank."""
        if self._source is None:
            raise RuntimeError(
                "sourceRank() may only be called on work objects that correspond to a recv or recv-from-any call."
            )
        return self._source()

    _source_rank = source_rank

    def abort(self) -> None:
        raise NotImplementedError("Work.abort(): operations of the CPU engines cannot be taken back; destroy the group")


class _LazyFuture(Future):
    """A future whose value is fetched by the thread that waits for it, and whose callbacks run in that thread, so that its modes see them.
    `ready()` tells whether fetching would take no time."""

    def __init__(self, fetch: Callable[[], Any], ready: Callable[[], bool]) -> None:
        super().__init__()
        self._fetch: Callable[[], Any] | None = fetch
        self._ready = ready

    def _fetch_now(self) -> None:
        fetch, self._fetch = self._fetch, None
        if fetch is None:
            return
        try:
            value = fetch()
        except Exception as problem:  # raised in the thread that waits
            self.set_exception(problem)
        else:
            self.set_result(value)

    def done(self) -> bool:
        if not self._done and self._ready():
            self._fetch_now()
        return self._done

    def wait(self) -> Any:
        self._fetch_now()
        return super().wait()

    def _mapped(self, callback: Callable[[Future], Any]) -> Future:
        def fetch() -> Any:
            self._fetch_now()
            return callback(self)

        after = _LazyFuture(fetch, self.done)
        self.add_done_callback(lambda _: after._fetch_now())
        return after


class WatchedWork(Work):
    """Collective started under a mode: `wait` is an operator that the mode sees."""

    def __init__(self, fetch: Callable[[], list[Tensor]], ready: Callable[[], bool], what: str) -> None:
        super().__init__(_LazyFuture(fetch, ready), what=what)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        self._future.wait()
        return True


class TransferWork(Work):
    """Work of a message between two ranks. Its future is done once it was waited for, or has arrived."""

    def __init__(self, transfer: Any, tensors: list[Tensor], receives: bool) -> None:
        super().__init__(what="recv" if receives else "send")
        self._transfer, self._tensors, self._receives = transfer, tensors, receives
        self._finished = new_lock()
        future = getattr(transfer, "future", None)
        if future is not None:
            future.add_done_callback(lambda done: self._finish(done._error))

    def _finish(self, error: BaseException | None) -> None:
        with self._finished:
            if self._future.done():
                return
            if error is None:
                if self._receives:
                    for tensor in self._tensors:
                        tensor._storage.version += 1
                self._future.set_result(self._tensors)
            else:
                self._future.set_exception(error)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        try:
            self._rank = self._transfer.wait(timeout.total_seconds() or None)
        except BaseException as problem:
            self._finish(problem if isinstance(problem, Exception) else RuntimeError("interrupted"))
            raise
        self._finish(None)
        return True

    def is_completed(self) -> bool:
        if not self._future.done() and self._transfer.done():
            self.wait()
        return self._future.done()

    def source_rank(self) -> int:
        if not self._receives:
            return super().source_rank()
        self.wait()
        return self._rank

    _source_rank = source_rank
