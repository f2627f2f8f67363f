"""Identity of this process in a job: init and shutdown, ranks, process sets."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ...distributed import groups, mpi_world
from ...distributed.backend import is_mpi_available
from ...distributed.process_group import ProcessGroup
from ...distributed.rendezvous import launcher_ranks, rendezvous
from ...distributed.store import HashStore, PrefixStore, Store
from .negotiation import Negotiator

__all__ = [
    "Adasum", "Average", "Max", "Min", "ProcessSet", "Product", "Sum", "add_process_set", "ccl_built", "cross_rank",
    "cross_size", "cuda_built", "ddl_built", "global_process_set", "gloo_built", "gloo_enabled", "init",
    "is_homogeneous", "is_initialized", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported",
    "nccl_built", "rank", "remove_process_set", "rocm_built", "shutdown", "size",
]  # fmt: skip

Average, Sum, Adasum, Min, Max, Product = "Average", "Sum", "Adasum", "Min", "Max", "Product"

_STORE_TIMEOUT = timedelta(days=7)  # Horovod waits without limit; ending a stalled rank is up to the launcher


class ProcessSet:
    """Set of processes that communicate among themselves."""

    def __init__(self, ranks: Sequence[int] | Any = ()) -> None:
        self.ranks: list[int] | None = sorted(int(r) for r in ranks) if len(ranks) else None
        self.process_set_id: int | None = None
        self.group: ProcessGroup | None = None
        self.negotiator: Negotiator | None = None

    def included(self) -> bool | None:
        """Return whether this process is in the set."""
        return None if self.process_set_id is None else self.group is not None

    def size(self) -> int | None:
        return None if self.process_set_id is None or self.ranks is None else len(self.ranks)

    def rank(self) -> int | None:
        """Return this process's rank in the set."""
        return None if self.group is None else self.group.rank()

    def member(self) -> Negotiator:
        if self.negotiator is None:
            if not is_initialized():
                raise ValueError("Horovod has not been initialized; use hvd.init().")
            raise ValueError(f"rank {rank()} is not in the process set of ranks {self.ranks}, or the set was removed")
        return self.negotiator

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ProcessSet) and self.ranks == other.ranks and self.process_set_id == other.process_set_id
        )

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm=None)"


global_process_set = ProcessSet()
_sets: dict[int, ProcessSet] = {}


class _State:
    initialized = False
    store: Store | None = None
    rank, size, local_rank, local_size = 0, 1, 0, 1
    attempts = 0
    sets_made = 0


def _find_ranks() -> tuple[int, int] | None:
    for names in (("HOROVOD_RANK", "HOROVOD_SIZE"), ("RANK", "WORLD_SIZE")):
        if all(name in os.environ for name in names):
            return int(os.environ[names[0]]), int(os.environ[names[1]])
    return launcher_ranks()


def _find_store(rank: int, size: int) -> tuple[Store, int, int]:
    if "MASTER_ADDR" in os.environ:
        return next(rendezvous("env://", rank, size, timeout=timedelta(minutes=5)))
    if size == 1:
        return HashStore(), 0, 1
    if is_mpi_available():
        return mpi_world.store_of_launched_world(timedelta(minutes=5))
    raise RuntimeError("hvd.init(): neither MASTER_ADDR is set, as horovodrun and torchrun do, nor is there an MPI")


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Initialise: connect to the other processes."""
    if _State.initialized:
        return
    told = _find_ranks() or (0, 1)
    if _State.store is None:
        _State.store, _State.rank, _State.size = _find_store(*told)
    _State.attempts += 1
    _State.sets_made = 0
    store = PrefixStore(f"horovod/{_State.attempts}", _State.store)
    store.set(f"host/{_State.rank}", socket.gethostname())
    hosts = store.multi_get([f"host/{r}" for r in range(_State.size)])
    mine = hosts[_State.rank]
    _State.local_rank = hosts[: _State.rank].count(mine)
    _State.local_size = hosts.count(mine)
    _State.initialized = True
    _make_process_set(global_process_set, list(range(_State.size)), 0)
    for one in process_sets or []:
        if isinstance(one, ProcessSet):
            add_process_set(one)


def _make_process_set(one: ProcessSet, ranks: list[int], number: int) -> None:
    one.ranks, one.process_set_id = ranks, number
    _sets[number] = one
    if _State.rank in ranks:
        assert _State.store is not None
        store = PrefixStore(f"horovod/{_State.attempts}/set {number}", _State.store)
        one.group = groups._new_process_group(
            "gloo", store, _State.rank, ranks, _STORE_TIMEOUT, f"horovod {number}", "horovod", ranks
        )
        assert one.group is not None
        one.negotiator = Negotiator(one.group)


def _remove_process_set(one: ProcessSet) -> None:
    if one.negotiator is not None:
        one.negotiator.stop()
    if one.group is not None:
        one.group.shutdown()
        for table in (groups._world.pg_map, groups._world.pg_names, groups._world.pg_group_ranks):
            table.pop(one.group, None)
        groups._world.pg_backend_config.pop(one.group, None)
    _sets.pop(one.process_set_id or 0, None)
    one.process_set_id, one.group, one.negotiator = None, None, None


def shutdown() -> None:
    """Shut down; `init` may be called again."""
    if not _State.initialized:
        return
    for one in list(_sets.values()):
        _remove_process_set(one)
    _State.initialized = False


def is_initialized() -> bool:
    return _State.initialized


def add_process_set(process_set: Any) -> ProcessSet:
    """Add a set of processes; all processes must call it."""
    one = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    ranks = list(range(size())) if one.ranks is None else one.ranks
    if any(known.ranks == ranks for known in _sets.values()):
        raise ValueError(f"A process set with the ranks {ranks} is registered already")
    if any(not 0 <= r < size() for r in ranks):
        raise ValueError(f"ranks of a process set must be in [0, {size()}), got {ranks}")
    _State.sets_made += 1
    _make_process_set(one, ranks, _State.sets_made)
    global_process_set.member().call("barrier", f"process set {_State.sets_made}", [], {})
    return one


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a set; all processes must call it."""
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    name = f"remove process set {process_set.process_set_id}"
    global_process_set.member().call("barrier", name, [], {})
    _remove_process_set(process_set)
    return True


def _require_initialized(value: int) -> int:
    if not _State.initialized:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return value


def rank() -> int:
    return _require_initialized(_State.rank)


def size() -> int:
    return _require_initialized(_State.size)


def local_rank() -> int:
    """Return this process's rank on its machine."""
    return _require_initialized(_State.local_rank)


def local_size() -> int:
    return _require_initialized(_State.local_size)


def cross_rank() -> int:
    """Return the index of this machine in the job."""
    return _require_initialized(_State.rank // max(1, _State.local_size))


def cross_size() -> int:
    return _require_initialized(max(1, _State.size // max(1, _State.local_size)))


def is_homogeneous() -> bool:
    return _require_initialized(_State.size) % max(1, _State.local_size) == 0


def mpi_built() -> bool:
    return is_mpi_available()


def mpi_enabled() -> bool:
    """Return whether the ranks were started by an MPI launcher."""
    return "HOROVOD_RANK" not in os.environ and "RANK" not in os.environ and launcher_ranks() is not None


def mpi_threads_supported() -> bool:
    return is_mpi_available()


def gloo_built() -> bool:
    return True


def gloo_enabled() -> bool:
    return not mpi_enabled()


def nccl_built() -> int:
    return 0


def ddl_built() -> bool:
    return False


ccl_built = cuda_built = rocm_built = ddl_built
