"""Garbage collections in the middle of a call: finalizers that run then are nobody's doing, and may run at any other moment."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def around_collections(make: Callable[[], contextlib.AbstractContextManager[None]]) -> Iterator[None]:
    """Context manager: enter one that `make` makes whenever a garbage collection begins in this thread, and leave it at the end of that.
    It begins before, and ends behind, what others have put into `gc.callbacks`."""
    thread, entered = threading.get_ident(), list[Any]()

    def begin(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and threading.get_ident() == thread:
            entered.append(make())
            entered[-1].__enter__()

    def end(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and entered and threading.get_ident() == thread:
            entered.pop().__exit__(None, None, None)

    gc.callbacks[:] = [begin, *gc.callbacks, end]
    try:
        yield
    finally:
        gc.callbacks[:] = [call for call in gc.callbacks if call is not begin and call is not end]


__all__ = ["around_collections"]
