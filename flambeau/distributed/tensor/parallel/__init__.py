"""`torch.distributed.tensor.parallel`: models cut into parts over ranks, which Flambeau does not have yet."""

from __future__ import annotations

from ....core.absent import absent_class as _absent_class
from ....core.absent import raising as _raising

_MESSAGE = "torch.distributed.tensor.parallel.{} is not in Flambeau yet: models are not cut into parts over ranks"
globals().update(_raising("parallelize_module loss_parallel", NotImplementedError, _MESSAGE))
globals().update(
    {
        name: _absent_class(name, _MESSAGE.format(name))
        for name in ("ParallelStyle", "ColwiseParallel", "RowwiseParallel", "SequenceParallel", "PrepareModuleInput",
                     "PrepareModuleOutput", "PrepareModuleInputOutput")
    }
)  # fmt: skip
