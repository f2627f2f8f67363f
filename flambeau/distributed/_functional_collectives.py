"""Collectives that return a new tensor, and their derivatives."""

from __future__ import annotations

from typing import Any

from ..core.absent import absent_class as _absent_class
from ..core.absent import raising as _raising
from ..core.tensor import Tensor

_MESSAGE = (
    "torch.distributed._functional_collectives.{} is not in Flambeau yet: use the collectives of torch.distributed"
)
AsyncCollectiveTensor = _absent_class(
    "AsyncCollectiveTensor", _MESSAGE.format("AsyncCollectiveTensor"), bases=(Tensor,)
)
globals().update(
    _raising(
        "all_gather_tensor all_gather_tensor_autograd all_reduce all_to_all_single all_to_all_single_autograd broadcast"
        " permute_tensor reduce_scatter_tensor reduce_scatter_tensor_autograd",
        NotImplementedError,
        _MESSAGE,
    )
)


def wait_tensor(tensor: Any) -> Any:
    """The tensor, once nobody writes to it any more: at once, since no collective here returns before it is done."""
    return tensor
