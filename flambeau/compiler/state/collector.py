"""Garbage collections in the middle of a call: the finalizers that run then do not belong to the call, and may run at any other moment."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def around_collections(make: Callable[[], contextlib.AbstractContextManager[None]]) -> Iterator[None]:
    """Context manager: whenever a garbage collection begins in this thread, enter a context made by `make`, and leave it at the end. It is
    entered before, and left after, the other functions in `gc.callbacks`."""
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
