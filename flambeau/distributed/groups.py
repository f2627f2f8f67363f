"""Process groups: their creation and destruction, and their members.

>>> init_process_group("gloo", init_method="tcp://127.0.0.1:29500", rank=0, world_size=2)
>>> all_reduce(tensor)
"""

from __future__ import annotations

import itertools
import os
import warnings
from datetime import timedelta
from typing import Any

from ..core import watching
from ..core.compile_options import generation
from ..core.device import device as Device
from . import mpi_world
from .backend import Backend, BackendConfig, engine_maker, is_mpi_available, is_nccl_available, nccl_maker, plugin_group
from .options import default_pg_timeout, set_debug_level_from_env
from .process_group import ProcessGroup
from .reduce_op import RedOpType
from .rendezvous import default_pg_nccl_timeout, launcher_ranks, rendezvous
from .shared_engine import SharedEngine
from .store import HashStore, PrefixStore, Store

STORE_BASED_BARRIER_PREFIX = "store_based_barrier_key"


class _World:
    """The process groups of this process."""

    def __init__(self) -> None:
        self.default_pg: ProcessGroup | None = None
        self.pg_map: dict[ProcessGroup, tuple[str, Store]] = {}
        self.pg_names: dict[ProcessGroup, str] = {}
        self.pg_group_ranks: dict[ProcessGroup, dict[int, int]] = {}
        self.pg_backend_config: dict[ProcessGroup, str] = {}
        self.group_count = 0
        self.own_groups: dict[tuple[int, ...], itertools.count] = {}  # of new_group(use_local_synchronization=True)

    @property
    def pg_config_info(self) -> list[dict[str, Any]]:
        return [_get_pg_config(pg) for pg in self.pg_map]


_world = _World()


class ProcessGroupGloo(ProcessGroup):
    """A process group made directly from a store, besides those of `init_process_group`."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta = default_pg_timeout):
        store.set(f"process/{rank}", SharedEngine.describe())
        ranks = tuple(range(size))
        maker = engine_maker(Backend.GLOO, store, rank, size, timeout, list(ranks))
        super().__init__(store, rank, size, maker, Backend.GLOO, timeout, ranks, "", "")


class _WorldMeta(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The group of all ranks."""
        return _world.default_pg

    @WORLD.setter
    def WORLD(cls, group: ProcessGroup | None) -> None:
        _world.default_pg = group


class group(metaclass=_WorldMeta):
    """`group.WORLD` is the group of all ranks."""


class GroupMember(metaclass=_WorldMeta):
    """`GroupMember.NON_GROUP_MEMBER` is what `new_group` returns to ranks that are not in the group."""

    NON_GROUP_MEMBER = -100


class reduce_op:
    """Deprecated: use ReduceOp."""

    SUM, PRODUCT, MIN, MAX = RedOpType.SUM, RedOpType.PRODUCT, RedOpType.MIN, RedOpType.MAX


def is_available() -> bool:
    """Return True: process groups are part of the library."""
    return True


def is_initialized() -> bool:
    """Return whether init_process_group has been called."""
    return _world.default_pg is not None


def is_torchelastic_launched() -> bool:
    """Return whether torchrun started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


# -- beginning and end --------------------------------------------------------------------------------------------------


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
    _ranks: list[int] | None = None,
) -> None:
    """Initialise communication; returns when all ranks have called it.

    Ranks find each other through `store`, or through `init_method` (env://, tcp://host:port or file:///path)."""
    set_debug_level_from_env()
    if _world.default_pg is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    name = str(backend).lower() if backend else "undefined"
    limit = timeout if timeout is not None else _default_timeout(name)
    if not isinstance(limit, timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {limit}")
    if store is None and name == Backend.FAKE:
        store = HashStore()
    if store is not None:
        if world_size <= 0:
            raise ValueError("world_size must be positive if using store")
        if rank < 0:
            raise ValueError("rank must be non-negative if using store")
    elif name == "mpi" and init_method is None and "MASTER_ADDR" not in os.environ and launcher_ranks() is not None:
        store, rank, world_size = mpi_world.store_of_launched_world(limit)
    else:
        store, rank, world_size = next(rendezvous(init_method or "env://", rank, world_size, timeout=limit))
        store.set_timeout(limit)
    store = PrefixStore("default_pg", store)
    members = list(range(world_size))
    pg = _new_process_group(name, store, rank, members, limit, group_name or "0", "default_pg", members)
    if pg is None:
        raise ValueError(f"rank {rank} is not in a world of {world_size}")
    pg.bound_device_id = None if device_id is None else Device(device_id)
    _world.default_pg = pg
    # Which meet in their own way, or not at all.
    if pg.backend_name == Backend.FAKE or pg.backend_name in Backend._plugins:
        return
    try:
        _start_mpi(pg)
        store.barrier("everybody is there", world_size, limit)  # after it, the store is no longer needed for this
    except BaseException:
        _shutdown_all()
        raise


def _default_timeout(backend: str) -> timedelta:
    return default_pg_nccl_timeout if backend == "nccl" else default_pg_timeout


def _start_mpi(pg: ProcessGroup) -> None:
    """Start MPI if a group may need it, since an MPI world can only be created by all ranks together."""
    places = pg.store.multi_get([f"process/{r}" for r in range(pg.size())])
    several = len({place.rpartition(b" ")[0] for place in places}) > 1
    if pg.backend_name == "mpi" or (several and is_mpi_available()):
        mpi_world.start(pg.store, pg.rank(), pg.size())


def _new_process_group(
    backend: str,
    store: Store,
    rank: int,
    members: list[int],
    timeout: timedelta,
    name: str,
    desc: str,
    ranks: list[int],
) -> ProcessGroup | None:
    """Return the group of the global ranks `members`; None on a rank that is not among them."""
    _announce_change("new_group")
    if rank not in members:
        return None
    config = BackendConfig(backend)
    cpu_backend = config.cpu_backend()
    own = members.index(rank)
    if cpu_backend in Backend._plugins or cpu_backend == Backend.FAKE:
        pg = plugin_group(cpu_backend, store, own, len(members), timeout)
        pg.group_name, pg.group_desc, pg.ranks, pg.backend_name = name, desc, ranks, cpu_backend
    else:
        store.set(f"process/{own}", SharedEngine.describe())
        gpu_backend, about = config.device_backend_map.get("cuda"), (store, own, len(members), timeout, ranks)
        on_gpu = gpu_backend == Backend.NCCL
        if on_gpu and not cpu_backend and not is_nccl_available():
            raise RuntimeError(
                "Distributed package doesn't have NCCL built in: pip install nvidia-nccl-cu13, or use gloo"
            )
        maker = engine_maker(cpu_backend or ("gloo" if on_gpu else str(Backend(backend))), *about)
        pg = ProcessGroup(
            store, own, len(members), maker, str(cpu_backend or gpu_backend), timeout, ranks, name, desc,
            nccl_maker(*about) if on_gpu else None,
        )  # fmt: skip
    _world.pg_map[pg] = (
        str(Backend(backend)) if ":" not in backend and backend != "undefined" else pg.backend_name,
        store,
    )
    _world.pg_names[pg] = name
    _world.pg_group_ranks[pg] = {world: position for position, world in enumerate(members)}
    _world.pg_backend_config[pg] = repr(config)
    return pg


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Destroy one group, or all of them."""
    _announce_change("destroy_process_group")
    if group == GroupMember.NON_GROUP_MEMBER:
        return
    pg = _world.default_pg if group is None else group
    if pg is None:
        raise AssertionError(
            "Default process group has not been initialized, please make sure to call init_process_group."
        )
    if pg not in _world.pg_map:
        raise ValueError("Invalid process group specified")
    if group is None or pg is _world.default_pg:
        _shutdown_all()
        return
    pg.shutdown()
    for table in (_world.pg_map, _world.pg_names, _world.pg_group_ranks, _world.pg_backend_config):
        table.pop(pg, None)


def _announce_change(what: str) -> None:
    """Tell recorders that the process groups change: recordings may name a rank or a group."""
    generation[0] += 1
    if watching.active:
        watching.tell_sent(what)


def _shutdown_all() -> None:
    for pg in reversed(list(_world.pg_map)):
        pg.shutdown()
    _World.__init__(_world)


def _abort_process_group(group: ProcessGroup | None = None) -> None:
    destroy_process_group(group)


# -- who is where ---------------------------------------------------------------------------------------------------------


def _get_default_group() -> ProcessGroup:
    if _world.default_pg is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return _world.default_pg


def _get_default_store() -> Store:
    return _world.pg_map[_get_default_group()][1]


def _group_or_default(group: Any) -> ProcessGroup:
    return _get_default_group() if group is None else group


def _resolve_process_group(group_name: str) -> ProcessGroup:
    for pg, name in _world.pg_names.items():
        if name == group_name:
            return pg
    raise RuntimeError(f"Could not resolve the process group registered under the name {group_name}")


def _rank_not_in_group(group: Any) -> bool:
    return group == GroupMember.NON_GROUP_MEMBER if group is not None else False


def _warn_not_in_group(name: str) -> None:
    rank = -1 if _world.default_pg is None else _world.default_pg.rank()
    warnings.warn(f"Running {name} on global rank {rank} which does not belong to the given group.", stacklevel=3)


def get_rank(group: ProcessGroup | None = None) -> int:
    """Return the rank of this process in the group; -1 if it is not a member."""
    return -1 if _rank_not_in_group(group) else _group_or_default(group).rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """Return the number of processes in the group; -1 if this one is not in it."""
    return -1 if _rank_not_in_group(group) else _group_or_default(group).size()


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Return the rank of this process on its machine, from torchrun's environment."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work"
    )


def get_backend(group: ProcessGroup | None = None) -> str:
    """Return the name of a group's backend."""
    pg = _group_or_default(group)
    if _rank_not_in_group(pg) or pg not in _world.pg_map:
        raise ValueError("Invalid process group specified")
    return Backend(_world.pg_map[pg][0])


def get_backend_config(group: ProcessGroup | None = None) -> str:
    """Return a group's backends by type of device, as in "cpu:gloo,cuda:nccl"."""
    pg = _group_or_default(group)
    if _rank_not_in_group(pg) or pg not in _world.pg_map:
        raise ValueError("Invalid process group specified")
    return _world.pg_backend_config[pg]


def get_default_backend_for_device(device: Any) -> str:
    """Return the backend for tensors of a device."""
    kind = device.type if isinstance(device, Device) else str(device).partition(":")[0]
    name = Backend.default_device_backend_map.get(kind)
    if name is None:
        raise ValueError(f"Default backend not registered for device : {device}")
    return name


def get_pg_count() -> int:
    """Return the number of process groups."""
    return len(_world.pg_map)


def _get_process_group_name(group: ProcessGroup) -> str:
    return _world.pg_names.get(group, "None")


def _get_process_group_store(group: ProcessGroup) -> Store:
    return _world.pg_map[group][1]


def _get_pg_default_device(group: ProcessGroup | None = None) -> Device:
    return Device("cpu")


_get_object_coll_device = _get_pg_default_device


def _get_pg_config(group: ProcessGroup | None = None) -> dict[str, Any]:
    pg = _group_or_default(group)
    return {
        "pg_name": _get_process_group_name(pg),
        "pg_desc": pg.group_desc,
        "backend_config": get_backend_config(pg),
        "pg_size": pg.size(),
        "ranks": get_process_group_ranks(pg),
    }


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """Return the global ranks of the members."""
    return list(_world.pg_group_ranks[_group_or_default(group)])


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """Convert a global rank to a rank in the group."""
    if group is GroupMember.WORLD:
        return global_rank
    if group not in _world.pg_group_ranks:
        raise ValueError(f"Group {group} is not registered, please create group with torch.distributed.new_group API")
    ranks = _world.pg_group_ranks[group]
    if global_rank not in ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return ranks[global_rank]


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """Convert a rank in the group to a global rank."""
    if group is GroupMember.WORLD:
        return group_rank
    if group not in _world.pg_group_ranks:
        raise ValueError(f"Group {group} is not registered, please create group with torch.distributed.new_group API")
    for world, own in _world.pg_group_ranks[group].items():
        if own == group_rank:
            return world
    raise ValueError(f"Group rank {group_rank} is not part of group {group}")


def _store_based_barrier(rank: int, store: Store, group_name: str, count: int, timeout: timedelta) -> None:
    store.barrier(f"{STORE_BASED_BARRIER_PREFIX}:{group_name}", count, timeout)


__all__ = [
    "GroupMember", "destroy_process_group", "get_backend", "get_backend_config", "get_default_backend_for_device",
    "get_global_rank", "get_group_rank", "get_node_local_rank", "get_pg_count", "get_process_group_ranks", "get_rank",
    "get_world_size", "group", "init_process_group", "is_available", "is_initialized", "is_torchelastic_launched", "reduce_op",
]  # fmt: skip
