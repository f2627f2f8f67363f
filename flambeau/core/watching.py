"""Observers of memory events: recordings of whole steps and profilers.

A watcher belongs to the thread in which it was registered, unless it asks for all threads. Code that allocates or reads memory tests
`active`, which is empty while there are no watchers, and calls a `tell` function only if it is not.
Finalizers that a garbage collection runs in the middle of a call do not belong to the call: a thread's own watchers do not see them."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Any

from .uninterrupted import uninterrupted

active: list[None] = []  # one entry per registered watcher of any thread: tested first


class Watcher:
    """The base of objects that are notified of memory events (see `watch`); each method does nothing unless it is overridden."""

    def made(self, new: Any) -> None:
        """Note that a storage was made."""

    def looked(self) -> None:
        """Note that the host reads the values of a tensor."""

    def converted(self, address: int, nbytes: int) -> None:
        """Note that Python gets numbers from a tensor, at this host address if given: whatever follows may depend on them, sizes and branches
        included."""

    def sent(self, what: str) -> None:
        """Note that a message goes to other processes."""

    def once(self, what: str) -> None:
        """Note an effect that later calls of the same function do not have."""

    def reseeded(self) -> None:
        """Note that the state of a random generator is set."""

    def tested(self, address: int, nbytes: int, error: Exception | None) -> None:
        """Note that the number in which a kernel reports errors is tested."""

    def filled(self, address: int, value: int, nbytes: int) -> None:
        """Note that bytes were set to one value."""

    def loaded(self, address: int, nbytes: int) -> None:
        """Note that new memory was filled with values from Python."""

    def constant(self, found: Any) -> None:
        """Note that a tensor that is kept for all calls was used."""


class _Own(threading.local):
    def __init__(self) -> None:
        self.watchers: list[Any] = []


class _Collecting(threading.local):
    now = False


_own = _Own()
_everywhere: list[Any] = []
collecting = _Collecting()  # `now`: whether this thread collects garbage; kept up to date after `notice_collections`


def told() -> list[Any]:
    """Return the watchers that are notified of this thread's events."""
    return [*(() if collecting.now else _own.watchers), *_everywhere]


@uninterrupted  # what a signal's handler raises in a function that the collector calls would be lost
def _begin(phase: str, info: dict[str, int]) -> None:
    if phase == "start":
        collecting.now = True


@uninterrupted
def _end(phase: str, info: dict[str, int]) -> None:
    if phase == "stop":
        collecting.now = False


def notice_collections() -> None:
    """Keep `collecting` up to date from now on: before, and after, the other functions in `gc.callbacks` run."""
    others = [f for f in gc.callbacks if f is not _begin and f is not _end]
    if gc.callbacks != [_begin, *others, _end]:
        gc.callbacks[:] = [_begin, *others, _end]
    collecting.now = False


@contextlib.contextmanager
def watch(watcher: Any, everywhere: bool = False) -> Iterator[None]:
    """Context manager: notify `watcher` of what this thread, or every thread, does to memory."""
    watchers = _everywhere if everywhere else _own.watchers  # remembered: another thread may end it
    watchers.append(watcher)
    active.append(None)
    try:
        yield
    finally:
        active.pop()
        watchers.remove(watcher)


@contextlib.contextmanager
def without(watcher: Any) -> Iterator[None]:
    """Context manager: do not notify this watcher of what the thread does; notify others."""
    watchers, before = _own.watchers, list(_own.watchers)
    watchers[:] = [w for w in before if w is not watcher]
    try:
        yield
    finally:
        watchers[:] = before


def tell_made(new: Any) -> None:
    """Notify watchers that a storage was made."""
    for watcher in told():
        watcher.made(new)


def tell_looked() -> None:
    """Notify watchers that the host computes with the bytes of a tensor."""
    for watcher in told():
        watcher.looked()


def tell_converted(address: int = 0, nbytes: int = 0) -> None:
    """Notify watchers that Python gets numbers from a tensor."""
    for watcher in told():
        watcher.converted(address, nbytes)


def tell_sent(what: str) -> None:
    """Notify watchers that a message goes to other processes."""
    for watcher in told():
        watcher.sent(what)


def tell_once(what: str) -> None:
    """Notify watchers of an effect that later calls of the same function do not have."""
    for watcher in told():
        watcher.once(what)


def tell_reseeded() -> None:
    """Notify watchers that the state of a random generator is set."""
    for watcher in told():
        watcher.reseeded()


def tell_tested(address: int, nbytes: int, error: Exception | None) -> None:
    """Notify watchers that a number in which a kernel reports errors is tested."""
    for watcher in told():
        watcher.tested(address, nbytes, error)


def tell_filled(address: int, value: int, nbytes: int) -> None:
    """Notify watchers that bytes are set to one value."""
    for watcher in told():
        watcher.filled(address, value, nbytes)


def tell_loaded(address: int, nbytes: int) -> None:
    """Notify watchers that new memory got values from Python."""
    for watcher in told():
        watcher.loaded(address, nbytes)


def tell_constant(found: Any) -> None:
    """Notify watchers that a tensor that is kept for all calls is used."""
    for watcher in told():
        watcher.constant(found)
