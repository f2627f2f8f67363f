"""`torch.cuda.nccl`: the version of NCCL, and collectives between the GPUs of one process. Those between processes are in
`torch.distributed`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..distributed import nccl_engine
from ..ops.shape.joining import cat

__all__ = ["all_gather", "all_reduce", "broadcast", "is_available", "reduce", "reduce_scatter", "version"]
SUM = 0


def version() -> tuple[int, ...]:
    """Return the version of NCCL: (2, 28, 9) for 2.28.9."""
    return nccl_engine.version()


def is_available(tensors: Sequence[Any]) -> bool:
    """Return whether NCCL can work on these tensors: dense, contiguous and each on a different GPU."""
    if not nccl_engine.available():
        warnings.warn("PyTorch is not compiled with NCCL support", stacklevel=2)
        return False
    devices = set()
    for tensor in tensors:
        if tensor.is_sparse or not tensor.is_contiguous() or not tensor.is_cuda or tensor.device in devices:
            return False
        devices.add(tensor.device)
    return True


def _reduce_to(inputs: Sequence[Any], root: int, op: int) -> Any:
    """Return the tensors reduced, on the device of number `root`."""
    if isinstance(inputs, Tensor) or not inputs:
        raise TypeError("inputs should be a collection of tensors")
    joined = inputs[root].clone()
    for tensor in (*inputs[:root], *inputs[root + 1 :]):
        joined = _REDUCTIONS[op](joined, tensor.to(joined.device))
    return joined


_REDUCTIONS: Any = (Tensor.add, Tensor.mul, Tensor.maximum, Tensor.minimum)  # in the order of NCCL's numbers


def all_reduce(inputs: Any, outputs: Any = None, op: int = SUM, streams: Any = None, comms: Any = None) -> None:
    """Write the reduction of all inputs into each output (by default the inputs). `streams` and `comms` are not used: copies between GPUs
    wait for each other."""
    joined = _reduce_to(inputs, 0, op)
    for output in inputs if outputs is None else outputs:
        output.copy_(joined)


def reduce(
    inputs: Any, output: Any = None, root: int = 0, op: int = SUM, streams: Any = None, comms: Any = None
) -> None:
    """Write the reduction of all inputs into `output`, by default the input of number `root`."""
    (inputs[root] if output is None else output).copy_(_reduce_to(inputs, root, op))


def broadcast(inputs: Any, root: int = 0, streams: Any = None, comms: Any = None) -> None:
    """Write the tensor of number `root` into the others."""
    for tensor in inputs:
        if tensor is not inputs[root]:
            tensor.copy_(inputs[root])


def all_gather(inputs: Any, outputs: Any, streams: Any = None, comms: Any = None) -> None:
    """Concatenate all inputs into each output."""
    for output in outputs:
        output.copy_(cat([tensor.to(output.device) for tensor in inputs]))


def reduce_scatter(inputs: Any, outputs: Any, op: int = SUM, streams: Any = None, comms: Any = None) -> None:
    """Write to each output its part of the reduction of all inputs."""
    for output, part in zip(outputs, _reduce_to(inputs, 0, op).chunk(len(outputs))):
        output.copy_(part)
