"""Option records of `ProcessGroup`'s methods: root, reduction, timeout."""

from __future__ import annotations

import enum
import os
from datetime import timedelta
from typing import Any

from .reduce_op import RedOpType

default_pg_timeout = timedelta(minutes=30)
NO_TIMEOUT = timedelta(milliseconds=-1)  # that of the process group


class _Options:
    timeout = NO_TIMEOUT
    asyncOp = True


class AllreduceOptions(_Options):
    """Settings of `ProcessGroup.allreduce`."""

    reduceOp: Any = RedOpType.SUM
    sparseIndices: Any = None


class AllreduceCoalescedOptions(AllreduceOptions):
    """Settings of `ProcessGroup.allreduce_coalesced`."""


class GatherOptions(_Options):
    """Settings of `ProcessGroup.gather`."""

    rootRank = 0


class ScatterOptions(GatherOptions):
    """Settings of `ProcessGroup.scatter`."""


class BroadcastOptions(GatherOptions):
    """Settings of `ProcessGroup.broadcast`."""

    rootTensor = 0


class ReduceOptions(BroadcastOptions):
    """Settings of `ProcessGroup.reduce`."""

    reduceOp: Any = RedOpType.SUM


class AllgatherOptions(_Options):
    """Settings of `ProcessGroup.allgather`."""


class ReduceScatterOptions(_Options):
    """Settings of `ProcessGroup.reduce_scatter`."""

    reduceOp: Any = RedOpType.SUM


class AllToAllOptions(_Options):
    """Settings of `ProcessGroup.alltoall`."""


class BarrierOptions(_Options):
    """Settings of `ProcessGroup.barrier`."""

    device_ids: Any = ()
    device: Any = None


class DebugLevel(enum.Enum):
    """Extent of consistency checks: at DETAIL, that all ranks call the same operation with the same shapes."""

    OFF = 0
    INFO = 1
    DETAIL = 2

    def __int__(self) -> int:
        return self.value


class _Debug:
    level = DebugLevel.OFF


def get_debug_level() -> DebugLevel:
    """Return the extent of the checks between ranks."""
    return _Debug.level


def set_debug_level(level: DebugLevel) -> None:
    """Set the extent of the checks between ranks."""
    _Debug.level = level


def set_debug_level_from_env() -> None:
    """Set the extent of the checks from TORCH_DISTRIBUTED_DEBUG: OFF, INFO or DETAIL."""
    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if name not in DebugLevel.__members__:
        raise RuntimeError(
            f"The value of TORCH_DISTRIBUTED_DEBUG must be OFF, DETAIL, or INFO, but is {os.environ['TORCH_DISTRIBUTED_DEBUG']}"
        )
    _Debug.level = DebugLevel[name]


set_debug_level_from_env()
