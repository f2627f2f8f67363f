"""Names of PyTorch's compiled autograd."""

from __future__ import annotations

from ....core import modes
from ....profiler import session as _profiler
from ....profiler.settings import DeviceType, ProfilerActivity, ProfilerState, kineto_available, supported_activities
from ._profiler import ActiveProfilerType

__all__ = ["DeviceType", "ProfilerActivity", "ProfilerState", "kineto_available"]

_supported_activities = supported_activities
_profiler_enabled = _profiler._profiler_enabled


def _profiler_type() -> ActiveProfilerType:
    """Return the kind of profiler that is on in this thread."""
    observer = modes.observing()
    if observer is None:
        return ActiveProfilerType.NONE
    kinds = {"NVTX": ActiveProfilerType.NVTX, "ITT": ActiveProfilerType.ITT}
    return kinds.get(getattr(observer, "kind", ""), ActiveProfilerType.KINETO)
