"""Locks that survive a fork.

A child process has a copy of every lock, but only the thread that forked: a lock that another thread held would stay locked for good, and
what it protects might be inconsistent. So a fork first acquires the locks that have an `order`, so that no thread is inside, and in the child
all locks are new. Every lock of this package is made here.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any

# The order in which a fork takes the locks: a thread that holds one may wait for a later one, never for an earlier one.
IMPORTS, GENERATOR, COMPILER, ONEDNN, MODES = range(5)

_PATIENCE = 10.0  # seconds a fork waits in all: forking while another thread holds a lock is better than never

_known: dict[weakref.ref[Any], int | None] = {}
_held: list[Any] = []


def new_lock(order: int | None = None) -> Any:
    """Return a re-entrant lock. A fork waits for it if it has an order; else it is only replaced in the child."""
    lock = threading.RLock()
    _known[weakref.ref(lock, _known.pop)] = order
    return lock


def _before_fork() -> None:
    deadline = time.monotonic() + _PATIENCE
    waited = [(order, reference()) for reference, order in list(_known.items()) if order is not None]
    for _, lock in sorted(((order, lock) for order, lock in waited if lock is not None), key=lambda entry: entry[0]):
        if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            _held.append(lock)


def _after_in_parent() -> None:
    while _held:
        _held.pop().release()


def _after_in_child() -> None:
    _held.clear()
    for reference in list(_known):
        lock = reference()
        if lock is not None:
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
