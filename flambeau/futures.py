"""Values that arrive later: `Future`, with callbacks.

>>> future = Future()
>>> after = future.then(lambda f: f.value() + 1)
>>> future.set_result(1)
>>> after.wait()
2
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from .core.device import device as Device
from .core.locks import new_lock

__all__ = ["Future", "collect_all", "wait_all"]
T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value, or an error, that another thread will set."""

    def __init__(self, *, devices: list[int | str | Device] | None = None) -> None:
        for where in devices or []:
            if Device(where).type == "cpu":
                raise ValueError(f"Expected devices to be accelerators, but got {where}")
        self._changed = threading.Condition(new_lock())
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future], Any]] = []

    def done(self) -> bool:
        """Return whether the value or an error has been set."""
        return self._done

    def wait(self) -> T:
        """Wait for the value and return it; raises the error if one was set."""
        with self._changed:
            self._changed.wait_for(lambda: self._done)
        if self._error is not None:
            raise self._error
        return self._value

    def value(self) -> T:
        """Return the value of a future that is done."""
        if not self._done:
            raise RuntimeError("value() can only be called on a future that is done; use wait()")
        return self.wait()

    def set_result(self, result: T) -> None:
        """Set the value; once only. Callbacks run in this thread."""
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Set an error in place of the value; `wait` will raise it."""
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._finish(None, result)

    def _finish(self, value: Any, error: BaseException | None) -> None:
        with self._changed:
            if self._done:
                raise RuntimeError(
                    "Attempting to mark a completed Future as complete again. Note that a Future can only be marked"
                    " completed once."
                )
            self._value, self._error, self._done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[Future], Any]) -> None:
        """Run a callback; its error is printed, because no caller could handle it, and the others run."""
        try:
            callback(self)
        except Exception:
            print(f"Got the following error when running the callback: {traceback.format_exc()}", file=sys.stderr)

    def add_done_callback(self, callback: Callable[[Future[T]], Any]) -> None:
        """Call `callback(self)` when done; at once if it is."""
        with self._changed:
            if not self._done:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """Return a future of the result of `callback(self)`; an error of the callback becomes a RuntimeError with its message."""
        if not callable(callback):
            raise TypeError(f"then(): incompatible function arguments. A callback is called, {callback!r} cannot be")

        def run(future: Future[T]) -> S:
            try:
                return callback(future)
            except Exception as problem:
                raise RuntimeError(
                    f"Got the following error when running the callback: {type(problem).__name__}: {problem}"
                ) from problem

        return self._mapped(run)

    def _mapped(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """Return a future of what `callback(self)` will return or raise."""
        after: Future[S] = Future()

        def run(future: Future[T]) -> None:
            try:
                result = callback(future)
            except Exception as problem:  # raised in the thread that waits for the new future
                after.set_exception(problem)
            else:
                after.set_result(result)

        self.add_done_callback(run)
        return after


def settled(value: T) -> Future[T]:
    """Return a future that has its value already.

    >>> settled(3).wait()
    3
    """
    future: Future[T] = Future()
    future.set_result(value)
    return future


def collect_all(futures: Sequence[Future]) -> Future[list[Future]]:
    """Return a future of the whole list, done when all are, or with the first error."""
    together: Future[list[Future]] = Future()
    waiting, lock = [len(futures)], new_lock()

    def count(done: Future) -> None:
        with lock:
            waiting[0] -= 1
            last = waiting[0] == 0
            failed = done._error is not None and not together.done()
            if failed:
                waiting[0] = -1
        if failed:
            together._finish(None, done._error)
        elif last:
            together.set_result(list(futures))

    for future in futures:
        future.add_done_callback(count)
    if not futures:
        together.set_result([])
    return together


def wait_all(futures: Sequence[Future]) -> list:
    """Return the values of all futures, in order; raises the first error found."""
    return [future.wait() for future in collect_all(futures).wait()]
