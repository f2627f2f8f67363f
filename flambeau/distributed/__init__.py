"""Process groups, collectives and launchers, under PyTorch's names.

>>> import flambeau.distributed as dist
>>> dist.init_process_group("gloo")    # torchrun, mpiexec or the environment say which rank this is
>>> dist.all_reduce(tensor)

Ranks of one machine communicate through shared memory, machines through MPI. See docs/distributed.md.
"""

# ruff: noqa: F401

from __future__ import annotations

import importlib
import sys
from datetime import timedelta
from typing import Any

from ..core import naming as _naming
from . import distributed_c10d
from .distributed_c10d import *
from .distributed_c10d import (
    _all_gather_base,
    _coalescing_manager,
    _CoalescingManager,
    _create_store_from_options,
    _get_process_group_name,
    _make_nccl_premul_sum,
    _rank_not_in_group,
    _reduce_scatter_base,
)

# Names that live in modules imported only when they are used.
_HOMES = {
    "DeviceMesh": "device_mesh",
    "init_device_mesh": "device_mesh",
    **dict.fromkeys(
        (
            "BuiltinCommHookType",
            "GradBucket",
            "Logger",
            "Reducer",
            "_DEFAULT_FIRST_BUCKET_BYTES",
            "_compute_bucket_assignment_by_size",
            "_register_builtin_comm_hook",
            "_register_comm_hook",
        ),
        "reducer",
    ),
    **dict.fromkeys(("_broadcast_coalesced", "_verify_params_across_processes"), "replicas"),
}


def breakpoint(rank: int = 0, skip: int = 0, timeout_s: int = 3600) -> None:
    """Stop in the debugger on one rank; the others wait for it."""
    if distributed_c10d.get_rank() == rank:
        import pdb  # noqa: PLC0415

        pdb.Pdb().set_trace(sys._getframe(1))
    distributed_c10d.barrier(timeout=timedelta(seconds=timeout_s))


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(_naming.submodule(__name__, _HOMES[name]), name)
    return _naming.submodule(__name__, name)
