"""Dynamic rendezvous, which agents join and leave at any time, stored in a TCPStore.

One value of the store, replaced only by compare-and-set, holds the round, its participants, and the agents that wait for the next one. A
round is complete with the largest number of nodes, or with at least the smallest if nobody else has joined for some time. An agent that
restarts leaves the round and waits for the next; the others notice and follow; when the round is empty, the next one begins. Agents
increment a heartbeat counter: one whose counter stands still is removed, like one that leaves; the others begin a new round then. The agent
that serves the store ends last."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ...errors import DistError, DistNetworkError, DistStoreError
from ...store import PrefixStore, Store
from ...tcp_store import TCPStore
from . import etcd_store
from .api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
    is_this_machine,
    parse_endpoint,
)

_KEY = "state"
_PAUSE = 0.2
_EXIT_TIMEOUT_SECONDS = 10.0


def _empty() -> dict[str, Any]:
    return {"round": 0, "complete": False, "closed": False, "participants": [], "waiting": []}


class _Heartbeats:
    """Heartbeat of this agent, and the last one seen of each other agent."""

    def __init__(self, store: Store, node: str, interval: float):
        self.store, self.node, self.interval = store, node, interval
        self._seen: dict[str, tuple[bytes, float, float]] = {}  # a number, since when, and when last looked at
        self._stopped = threading.Event()
        store.add(f"alive/{node}", 1)
        threading.Thread(target=self._beat, name="rendezvous pulse", daemon=True).start()

    def _beat(self) -> None:
        while not self._stopped.wait(self.interval):
            try:
                self.store.add(f"alive/{self.node}", 1)
            except DistError:
                return  # the store is gone: its next use raises

    def is_dead(self, node: str, patience: float) -> bool:
        """Return whether a node's heartbeat has not changed for too long."""
        key = f"alive/{node}"
        value = self.store.get(key) if self.store.check([key]) else b""
        now = time.monotonic()
        known, since, looked = self._seen.get(node, (None, now, now))
        # A process that was stopped itself cannot tell how long others have been silent.
        if value != known or now - looked > max(self.interval, 2.0):
            since = now
        self._seen[node] = (value, since, now)
        return now - since > patience

    def stop(self) -> None:
        self._stopped.set()


class C10dRendezvous(RendezvousHandler):
    """Rendezvous of `min_nodes` to `max_nodes` nodes, in rounds."""

    def __init__(self, store: Store, params: RendezvousParameters):
        self.store = PrefixStore(f"torch.rendezvous.{params.run_id}", store)
        self.params, self.run_id = params, params.run_id
        self.node = f"{socket.getfqdn()}_{os.getpid()}_{os.urandom(4).hex()}"
        self.join_timeout = float(params.get("join_timeout", 600))
        self.last_call = float(params.get("last_call_timeout", 30))
        interval = float(params.get("keep_alive_interval", 5))
        self.patience = interval * float(params.get("keep_alive_max_attempt", 3))
        self.pulse = _Heartbeats(self.store, self.node, interval)
        self._last_arrival: tuple[Any, float] = (None, 0.0)
        self._worker_store: TCPStore | None = None
        self._serves = isinstance(store, TCPStore) and store.is_server
        self._round, self._members = -1, list[str]()

    def get_backend(self) -> str:
        return self.params.backend

    def get_run_id(self) -> str:
        return self.run_id

    # -- the state --------------------------------------------------------------------------------------------------------

    def _read(self) -> tuple[bytes, dict[str, Any]]:
        try:
            held = self.store.get(_KEY) if self.store.check([_KEY]) else b""
            state = json.loads(held) if held else _empty()
            if set(state) != set(_empty()):
                raise ValueError
            return held, state
        except DistError as problem:
            raise RendezvousConnectionError(
                "The connection to the C10d store has failed. See inner exception for details."
            ) from problem
        except ValueError as problem:
            raise RendezvousStateError("The store holds something that is no state of a rendezvous.") from problem

    def _update(self, change: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Change the state by compare-and-set, with retries; `change` returns whether there is a change."""
        while True:
            held, state = self._read()
            self._remove_dead(state)
            if not change(state):
                return state
            if not state["participants"] and state["complete"]:
                state.update(complete=False, round=state["round"] + 1)
            wanted = json.dumps(state).encode()
            try:
                if self.store.compare_set(_KEY, held, wanted) == wanted:
                    return state
            except DistError as problem:
                raise RendezvousConnectionError("The connection to the C10d store has failed.") from problem
            time.sleep(_PAUSE * (0.5 + os.urandom(1)[0] / 256))

    def _remove_dead(self, state: dict[str, Any]) -> None:
        for place in ("participants", "waiting"):
            state[place] = [n for n in state[place] if n == self.node or not self.pulse.is_dead(n, self.patience)]

    # -- rounds -----------------------------------------------------------------------------------------------------------

    def _leave(self, state: dict[str, Any]) -> bool:
        there = self.node in state["participants"] + state["waiting"]
        for place in ("participants", "waiting"):
            state[place] = [n for n in state[place] if n != self.node]
        return there

    def _join(self, state: dict[str, Any]) -> bool:
        """Take a step towards a complete round with this node in it."""
        if state["closed"]:
            raise RendezvousClosedError
        before = json.dumps(state)
        if not state["participants"] and state["complete"]:
            state.update(complete=False, round=state["round"] + 1)
        if state["complete"]:
            if self.node not in state["participants"] and self.node not in state["waiting"]:
                state["waiting"].append(self.node)
            return json.dumps(state) != before
        if self.node not in state["participants"]:
            if len(state["participants"]) < self.params.max_nodes:
                state["participants"].append(self.node)
                state["waiting"] = [n for n in state["waiting"] if n != self.node]
            elif self.node not in state["waiting"]:
                state["waiting"].append(self.node)
        if self._is_full(state):
            state["complete"] = True
            state["participants"].sort()
        return json.dumps(state) != before

    def _is_full(self, state: dict[str, Any]) -> bool:
        count = len(state["participants"])
        if count >= self.params.max_nodes:
            return True
        # Every round waits anew: the same nodes may have left one before.
        arrival = (state["round"], list(state["participants"]))
        if self._last_arrival[0] != arrival:
            self._last_arrival = (arrival, time.monotonic())
        return count >= self.params.min_nodes and time.monotonic() - self._last_arrival[1] > self.last_call

    def next_rendezvous(self) -> RendezvousInfo:
        self._update(self._leave)
        self._worker_store = None
        deadline = time.monotonic() + self.join_timeout
        while True:
            state = self._update(self._join)
            if state["complete"] and self.node in state["participants"]:
                info = self._round_result(state, deadline)
                if info is not None:
                    return info
                self._update(self._leave)  # a participant has left already: try again
            if time.monotonic() > deadline:
                self._update(self._leave)
                raise RendezvousTimeoutError
            time.sleep(_PAUSE)

    def _round_result(self, state: dict[str, Any], deadline: float) -> RendezvousInfo | None:
        """Return the result of a complete round. Its first node serves a new store for the round, which holds nothing of the last one."""
        rank, size = state["participants"].index(self.node), len(state["participants"])
        self._round, self._members = state["round"], state["participants"]
        store = PrefixStore(f"round {state['round']}", self.store)
        left = timedelta(seconds=max(1.0, deadline - time.monotonic()))
        if rank == 0:
            address = self.params.local_addr or self._own_address(size)
            self._worker_store = TCPStore(address, 0, None, True, left, wait_for_workers=False)
            store.set("workers meet at", f"{address} {self._worker_store.port}")
        while True:
            try:
                store.wait(["workers meet at"], timedelta(seconds=1))
                break
            except DistStoreError:
                if not self.everybody_is_there():
                    return None
                if time.monotonic() > deadline:
                    raise RendezvousTimeoutError from None
        host, port = store.get("workers meet at").decode().split()
        return RendezvousInfo(store, rank, size, RendezvousStoreInfo(host, int(port)))

    def _own_address(self, size: int) -> str:
        host, _ = parse_endpoint(self.params.endpoint, 29400)
        if self.params.max_nodes == 1 or host in ("localhost", "127.0.0.1"):
            return "127.0.0.1"
        return host if self._serves and is_this_machine(host) else socket.getfqdn()

    def num_nodes_waiting(self) -> int:
        """Return the number of agents that wait for the next round and fit into it, or have left this one."""
        _, state = self._read()
        self._remove_dead(state)
        gone = len(self._departed_nodes(state))
        return gone + (len(state["waiting"]) if gone or len(state["participants"]) < self.params.max_nodes else 0)

    def _departed_nodes(self, state: dict[str, Any]) -> list[str]:
        there = state["participants"] if state["round"] == self._round else []
        return [node for node in self._members if node not in there]

    def everybody_is_there(self) -> bool:
        _, state = self._read()
        self._remove_dead(state)
        return not self._departed_nodes(state)

    def set_closed(self) -> None:
        def close(state: dict[str, Any]) -> bool:
            changed = not state["closed"]
            state["closed"] = True
            return changed

        self._update(close)

    def is_closed(self) -> bool:
        return self._read()[1]["closed"]

    def leave(self) -> bool:
        return self._leave_rendezvous(closes=False)

    def shutdown(self) -> bool:
        return self._leave_rendezvous(closes=True)

    def _leave_rendezvous(self, closes: bool) -> bool:
        """Leave the rendezvous, and close it for all if `closes`; return whether the store could be updated."""
        try:
            if closes:
                self.set_closed()
            self._update(self._leave)
            if closes:
                self._await_others()
            return True
        except (RendezvousConnectionError, DistError):
            return False  # the agent that serves the store has ended before
        finally:
            self.pulse.stop()

    def _await_others(self) -> None:
        """Wait, if this agent serves the store, until the others have seen that the job is over."""
        deadline = time.monotonic() + _EXIT_TIMEOUT_SECONDS
        while self._serves and time.monotonic() < deadline:
            _, state = self._read()
            self._remove_dead(state)
            if not state["participants"] + state["waiting"]:
                return
            time.sleep(0.05)


def create_store(params: RendezvousParameters) -> TCPStore:
    """Return the store at the endpoint, served by the agent on that machine unless one exists."""
    host, port = parse_endpoint(params.endpoint, 29400)
    told = params.get_as_bool("is_host")
    timeout = timedelta(seconds=params.get_as_int("read_timeout", 60) or 60)
    candidates = [told] if told is not None else [is_this_machine(host), False]
    for is_host in candidates:
        try:
            return TCPStore(host, port, None, bool(is_host), timeout, wait_for_workers=False)
        except DistNetworkError as problem:
            if is_host and told is None:
                continue  # another agent of this machine was faster
            raise RendezvousConnectionError(
                "The connection to the C10d store has failed. See inner exception for details."
            ) from problem
    raise RendezvousConnectionError(f"no store at {params.endpoint}")


def create_handler(params: RendezvousParameters) -> C10dRendezvous:
    return C10dRendezvous(create_store(params), params)


def create_etcd_handler(params: RendezvousParameters) -> C10dRendezvous:
    """Create a rendezvous in a store on an etcd server, which does not depend on any single agent."""
    try:
        return C10dRendezvous(etcd_store.create_store(params), params)
    except DistNetworkError as problem:
        raise RendezvousConnectionError(
            "The connection to etcd has failed. See inner exception for details."
        ) from problem
