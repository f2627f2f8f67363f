"""`torch.distributed.pipelining`: a model in stages on several ranks, which process parts of a batch (microbatches) one after another.

>>> stage = PipelineStage(my_part_of_the_model, rank, world_size, device)
>>> schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=loss_fn)
>>> schedule.step(x) if rank == 0 else schedule.step(target=y, losses=losses)

See docs/sharding.md.
"""

from __future__ import annotations

from ...core import naming as _naming
from ._IR import Pipe, SplitPoint, pipe_split, pipeline
from .schedules import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    _ScheduleForwardOnly,
)
from .stage import PipelineStage, build_stage

__all__ = [
    "Pipe", "PipelineStage", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble", "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "SplitPoint", "_ScheduleForwardOnly",
    "build_stage", "pipe_split", "pipeline",
]  # fmt: skip


def __getattr__(name: str):
    return _naming.submodule(__name__, name)
