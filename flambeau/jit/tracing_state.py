"""State of tracing, readable without importing the tracer."""

from __future__ import annotations

import threading
from typing import Any

_state = threading.local()


def active() -> Any:
    """Return the tracer that is active in this thread, or None."""
    return getattr(_state, "tracer", None)


def set_active(tracer: Any) -> Any:
    """Make a tracer the active one of this thread; return the former one."""
    before = active()
    _state.tracer = tracer
    return before


def is_tracing() -> bool:
    """Return whether Python code is being recorded by `trace`."""
    return active() is not None
