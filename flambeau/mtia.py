"""`torch.mtia`: Meta's accelerators, which are not supported."""

from __future__ import annotations

from typing import Any

from .core import naming as _naming
from .core.absent import absent_classes as _absent_classes
from .core.absent import raising as _raising
from .core.absent import returning as _returning

__path__ = ()  # modules of gathered names are found below this one
_NONE = "there is no such device."
globals().update(_returning("is_available is_initialized", bool, _NONE))
globals().update(_returning("is_bf16_supported", lambda: True, "every such device computes with it."))
globals().update(_returning("device_count memory_allocated max_memory_allocated", int, _NONE))
globals().update(_returning("memory_stats", dict, _NONE))
globals().update(_returning("get_rng_state_all", list, _NONE))
globals().update(
    _returning(
        "manual_seed manual_seed_all seed seed_all set_rng_state_all record_memory_history reset_peak_memory_stats",
        lambda: None,
        _NONE,
    )
)
globals().update(
    _raising(
        "current_device set_device synchronize current_stream init initial_seed get_rng_state set_rng_state",
        AssertionError,
        "Torch not compiled with MTIA enabled: mtia.{}() needs an MTIA device",
    )
)
globals().update(
    _raising(
        "attach_out_of_memory_observer default_stream empty_cache get_device_capability get_device_properties"
        " graph_pool_handle set_stream snapshot stream",
        RuntimeError,
        "Cannot execute mtia.{}() without MTIA backend.",
    )
)
globals().update(_absent_classes("MTIAGraph device graph", "Cannot make a mtia.{} without MTIA backend."))


def __getattr__(name: str) -> Any:
    return _naming.submodule(__name__, name)
