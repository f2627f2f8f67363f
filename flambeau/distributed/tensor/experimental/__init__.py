"""`torch.distributed.tensor.experimental`: experiments with spread tensors, which Flambeau does not have yet."""

from __future__ import annotations

from ....core.absent import raising as _raising

_MESSAGE = "torch.distributed.tensor.experimental.{} is not in Flambeau yet: tensors are not spread over ranks"
globals().update(
    _raising("context_parallel implicit_replication local_map register_sharding", NotImplementedError, _MESSAGE)
)
