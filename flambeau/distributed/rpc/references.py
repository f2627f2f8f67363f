"""Remote references of this worker: values it owns, forks of them elsewhere, and references not yet confirmed."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import TYPE_CHECKING, NamedTuple

from ...core.locks import new_lock
from ...futures import Future
from .agent import _get_current_rpc_agent

if TYPE_CHECKING:
    from .rref import RRef


class GloballyUniqueId(NamedTuple):
    """A number that is unique together with the id of the worker that assigned it."""

    created_on: int
    local_id: int

    def __repr__(self) -> str:
        return f"GloballyUniqueId(created_on={self.created_on}, local_id={self.local_id})"


class Owned:
    """A value on its owner (once it is computed), and the forks that refer to it."""

    def __init__(self, number: GloballyUniqueId) -> None:
        self.number = number
        self.value: Future = Future()
        self.forks: set[GloballyUniqueId] = set()


class _References:
    """The table of all remote references of this worker."""

    def __init__(self) -> None:
        self.lock = new_lock()
        self.changed = threading.Condition(self.lock)
        self.numbers = itertools.count()
        self.owned: dict[GloballyUniqueId, Owned] = {}
        self.unconfirmed: dict[GloballyUniqueId, RRef] = {}  # forks here that the owner may not know of yet
        self.handed_on: dict[GloballyUniqueId, RRef] = {}  # forks of others that the owner may not know of yet
        self.users: weakref.WeakSet[RRef] = weakref.WeakSet()
        self.creating = 0

    def next_number(self) -> GloballyUniqueId:
        return GloballyUniqueId(_get_current_rpc_agent().get_worker_info().id, next(self.numbers))

    def find_owned(self, number: GloballyUniqueId) -> Owned:
        with self.lock:
            return self.owned.setdefault(number, Owned(number))

    def add_fork(self, owned: Owned, fork: GloballyUniqueId) -> None:
        with self.lock:
            self.owned[owned.number] = owned
            owned.forks.add(fork)

    def drop_fork(self, number: GloballyUniqueId, fork: GloballyUniqueId) -> None:
        with self.lock:
            owned = self.owned.get(number)
            if owned is not None:
                owned.forks.discard(fork)
                if not owned.forks:
                    del self.owned[number]
            self.changed.notify_all()

    def confirm(self, fork: GloballyUniqueId) -> None:
        with self.lock:
            reference = self.unconfirmed.pop(fork, None)
            self.changed.notify_all()
        if reference is not None:
            reference._confirmed = True

    def release_handed_on(self, fork: GloballyUniqueId) -> None:
        with self.lock:
            kept = self.handed_on.pop(fork, None)
            self.changed.notify_all()
        del kept  # outside of the lock: its end may be that of the reference

    def delete_all_users(self, timeout: float) -> None:
        """Delete the references to other workers' values, as soon as their owners know of them."""
        with self.lock:
            self.changed.wait_for(lambda: not self.unconfirmed and not self.handed_on, timeout or None)
            users = list(self.users)
        for reference in users:
            reference._delete_fork_at_owner()

    def forget(self, ignore_leak: bool) -> None:
        with self.lock:
            leaked = [f"{o.number} with fork Ids {sorted(o.forks)}" for o in self.owned.values() if o.forks]
            self.owned, self.unconfirmed, self.handed_on = {}, {}, {}
        if leaked and not ignore_leak:
            raise RuntimeError(
                "Leaking RRef "
                + "\nLeaking RRef ".join(leaked)
                + "\nThis usually means there are some RRef instances that"
                " are not deleted when calling shutdown: make sure that none are left, or ignore them."
            )

    def debug_info(self) -> dict[str, str]:
        with self.lock:
            return {
                "num_owner_rrefs": str(len(self.owned)),
                "num_pending_futures": str(self.creating),
                "num_pending_users": str(len(self.unconfirmed)),
                "num_pending_owners": str(sum(not o.value.done() for o in self.owned.values())),
                "num_forks": str(sum(len(o.forks) for o in self.owned.values())),
            }


references = _References()
