"""`torch.xpu`: Intel's GPUs, which are not supported."""

from __future__ import annotations

from collections import OrderedDict as _OrderedDict
from typing import Any

from .core import naming as _naming
from .core.absent import absent_classes as _absent_classes
from .core.absent import raising as _raising
from .core.absent import returning as _returning

__path__ = ()  # modules of gathered names are found below this one
_NONE = "there is no such device."
_NEEDED = "Torch not compiled with XPU enabled: xpu.{} needs an XPU device"
default_generators: tuple = ()
globals().update(
    _returning(
        "is_available is_initialized is_bf16_supported is_tf32_supported is_current_stream_capturing", bool, _NONE
    )
)
globals().update(
    _returning("device_count memory_allocated max_memory_allocated memory_reserved max_memory_reserved", int, _NONE)
)
globals().update(_returning("memory_stats", _OrderedDict, _NONE))
globals().update(_returning("memory_stats_as_nested_dict", dict, _NONE))
globals().update(_returning("get_arch_list get_rng_state_all memory_snapshot", list, _NONE))
globals().update(_returning("get_gencode_flags", str, _NONE))
globals().update(
    _returning("empty_cache manual_seed manual_seed_all seed seed_all set_rng_state_all", lambda: None, _NONE)
)
globals().update(
    _raising(
        "current_device set_device synchronize get_device_name get_device_properties get_device_capability device get_rng_state"
        " set_rng_state mem_get_info reset_peak_memory_stats reset_accumulated_memory_stats can_device_access_peer"
        " change_current_allocator clock_rate current_stream device_memory_used get_per_process_memory_fraction"
        " set_per_process_memory_fraction get_stream_from_external graph_pool_handle init initial_seed make_graphed_callables"
        " memory_usage power_draw set_stream stream temperature use_mem_pool utilization",
        AssertionError,
        _NEEDED,
    )
)
globals().update(
    _absent_classes("Event MemPool Stream StreamContext XPUGraph XPUPluggableAllocator device_of graph", _NEEDED)
)


def __getattr__(name: str) -> Any:
    return _naming.submodule(__name__, name)
