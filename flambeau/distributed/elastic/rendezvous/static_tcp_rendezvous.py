"""Static rendezvous: the number of nodes and their ranks are fixed, the first node serves the store."""

from __future__ import annotations

from datetime import timedelta

from ...store import PrefixStore
from ...tcp_store import TCPStore
from .api import RendezvousHandler, RendezvousInfo, RendezvousParameters, RendezvousStoreInfo, parse_endpoint


class StaticRendezvous(RendezvousHandler):
    """Rendezvous in which node 0 serves the store and the others connect to it."""

    def __init__(self, params: RendezvousParameters):
        if "rank" not in params.config:
            raise ValueError("rank is absent in RendezvousParameters.Try add --node-rank to the cmd request")
        if params.min_nodes != params.max_nodes:
            raise ValueError("a static rendezvous needs a fixed number of nodes")
        self.run_id, self.world_size = params.run_id, params.max_nodes
        self.rank = int(params.config["rank"])
        self.timeout = timedelta(seconds=params.get_as_int("timeout", 900) or 900)
        self.host, self.port = parse_endpoint(params.endpoint, 29500)
        self._store: TCPStore | None = None
        self._round = 0

    def get_backend(self) -> str:
        return "static"

    def next_rendezvous(self) -> RendezvousInfo:
        if self._store is None:
            self._store = TCPStore(
                self.host,
                self.port,
                self.world_size,
                self.rank == 0,
                self.timeout,
                wait_for_workers=False,
                multi_tenant=True,
            )
            self.port = self._store.port
        self._round += 1
        store = PrefixStore(f"{self.run_id}/{self._round}", self._store)
        store.barrier("arrived", self.world_size, self.timeout)
        return RendezvousInfo(store, self.rank, self.world_size, RendezvousStoreInfo(self.host, self.port))

    def num_nodes_waiting(self) -> int:
        """Return how many nodes wait for the next round: a failed node restarts in it, and the others must follow."""
        if self._store is None or self.world_size == 1:
            return 0
        key = f"{self.run_id}/{self._round + 1}/arrived/count"
        return int(self._store.get(key)) if self._store.check([key]) else 0

    def set_closed(self) -> None:
        pass

    def is_closed(self) -> bool:
        return False

    def get_run_id(self) -> str:
        return self.run_id


def create_rdzv_handler(params: RendezvousParameters) -> StaticRendezvous:
    """Make the static rendezvous of parameters that have a `rank`."""
    return StaticRendezvous(params)
