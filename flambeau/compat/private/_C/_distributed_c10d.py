"""`torch._C._distributed_c10d`: the C++ part of PyTorch's process groups, which is in `distributed` here."""

from __future__ import annotations

from typing import Any

from .... import distributed as _distributed
from ....core import naming as _naming

_HOMES = {"FakeProcessGroup": "fake_engine", "Backend": "process_group", "ProcessGroup": "process_group"}
_NAMES = frozenset(
    ["AllToAllOptions", "AllgatherOptions", "AllreduceCoalescedOptions", "AllreduceOptions", "BarrierOptions",
     "BroadcastOptions", "BuiltinCommHookType", "DebugLevel", "FileStore", "GatherOptions", "GradBucket", "HashStore", "Logger",
     "PrefixStore", "ReduceOp", "ReduceOptions", "ReduceScatterOptions", "Reducer", "ScatterOptions", "Store", "TCPStore",
     "Work", "_broadcast_coalesced", "_compute_bucket_assignment_by_size", "_make_nccl_premul_sum", "_register_comm_hook",
     "_register_builtin_comm_hook", "_resolve_process_group", "_verify_params_across_processes", "get_debug_level",
     "set_debug_level", "set_debug_level_from_env"]
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = _naming.submodule(_distributed.__name__, _HOMES[name])
        return found.ProcessGroup if name == "Backend" else getattr(found, name)
    if name in _NAMES:
        return getattr(_distributed if hasattr(_distributed, name) else _distributed.distributed_c10d, name)
    raise _naming.no_attribute(__name__, name)
