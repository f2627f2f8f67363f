"""`torch.distributed.tensor`: how a tensor is spread over a mesh of ranks. Placements are here; spread tensors (DTensor) are not yet.

Programs may ask whether something is a DTensor (it is not), and say where parts would lie; making one raises NotImplementedError.
"""

from __future__ import annotations

from ...core import naming as _naming
from ...core.absent import absent_class as _absent_class
from ...core.absent import raising as _raising
from ...core.tensor import Tensor as _Tensor
from .placement_types import Partial, Placement, Replicate, Shard

__all__ = ["DTensor", "Partial", "Placement", "Replicate", "Shard"]

_MESSAGE = "torch.distributed.tensor.{} is not in Flambeau yet: tensors are not spread over ranks"
DTensor = _absent_class("DTensor", _MESSAGE.format("DTensor"), bases=(_Tensor,))
for _name, _function in _raising("from_local", NotImplementedError, _MESSAGE).items():
    setattr(DTensor, _name, staticmethod(_function))
globals().update(
    _raising("distribute_tensor distribute_module empty full ones rand randn zeros", NotImplementedError, _MESSAGE)
)


def __getattr__(name: str):
    if name.startswith("__"):
        raise _naming.no_attribute(__name__, name)
    return _naming.submodule(__name__, name)
