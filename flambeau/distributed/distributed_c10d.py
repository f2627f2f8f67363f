"""PyTorch's one module for process groups; the implementation is in `groups`, `collectives`, `object_collectives` and others."""

# ruff: noqa: F401, F403, F405

from __future__ import annotations

from ..core.absent import raising
from . import collectives, groups, object_collectives, subgroups
from .backend import *
from .backend import Backend, BackendConfig
from .collectives import *
from .collectives import _all_gather_base, _coalescing_manager, _CoalescingManager, _reduce_scatter_base
from .errors import DistBackendError, DistError, DistNetworkError, DistStoreError, QueueEmptyError
from .groups import *
from .groups import (
    STORE_BASED_BARRIER_PREFIX,
    _abort_process_group,
    _get_default_group,
    _get_default_store,
    _get_object_coll_device,
    _get_pg_config,
    _get_pg_default_device,
    _get_process_group_name,
    _get_process_group_store,
    _rank_not_in_group,
    _resolve_process_group,
    _store_based_barrier,
    _warn_not_in_group,
    _world,
)
from .object_collectives import *
from .object_collectives import _object_to_tensor, _tensor_to_object
from .options import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    DebugLevel,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    default_pg_timeout,
    get_debug_level,
    set_debug_level,
    set_debug_level_from_env,
)
from .process_group import ProcessGroup
from .reduce_op import ReduceOp
from .reduce_op import premul_sum as _make_nccl_premul_sum
from .rendezvous import _create_store_from_options, register_rendezvous_handler, rendezvous
from .store import FileStore, HashStore, PrefixStore, Store
from .subgroups import *
from .tcp_store import TCPStore
from .work import Work

GroupName = str
ProcessGroupGloo = groups.ProcessGroupGloo
_reduce_op = groups.reduce_op
_pg_map = _world.pg_map
globals().update(
    raising(
        "_new_process_group_helper", NotImplementedError, "{} is an inner step of PyTorch's; use distributed.new_group"
    )
)

__all__ = [
    "AllToAllOptions", "AllreduceCoalescedOptions", "AllreduceOptions", "BarrierOptions", "BroadcastOptions", "DebugLevel",
    "DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "FileStore", "GatherOptions", "GroupName", "HashStore",
    "PrefixStore", "ProcessGroup", "ProcessGroupGloo", "QueueEmptyError", "ReduceOp", "ReduceOptions", "ReduceScatterOptions",
    "ScatterOptions", "Store", "TCPStore", "Work", "default_pg_timeout", "get_debug_level", "register_rendezvous_handler",
    "rendezvous", "set_debug_level", "set_debug_level_from_env", "Backend", "BackendConfig", "is_backend_available",
    "is_gloo_available", "is_mpi_available", "is_nccl_available", "is_ucc_available", "is_xccl_available",
    *collectives.__all__, *groups.__all__, *subgroups.__all__, *object_collectives.__all__,
]  # fmt: skip
