"""Helper to run functions in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def in_thread(
    target: Callable, args: Any = (), name: str | None = None, daemon: bool = True, silent: bool = False
) -> threading.Thread:
    """Run a function in a new thread, and return the thread."""
    if not isinstance(args, tuple):
        raise ValueError(f"args must be a tuple, not {type(args)}, for a single argument use (arg,)")
    thread = threading.Thread(target=target, args=args, name=name, daemon=daemon)
    thread.start()
    return thread
