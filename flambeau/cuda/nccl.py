"""`torch.cuda.nccl`: which NCCL there is. Collectives are in `torch.distributed`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from ..distributed import nccl_engine

__all__ = ["is_available", "version"]


def version() -> tuple[int, ...]:
    """Return the version of NCCL: (2, 28, 9) for 2.28.9."""
    return nccl_engine.version()


def is_available(tensors: Sequence[Any]) -> bool:
    """Return whether NCCL could work on these tensors: each dense, contiguous and on a GPU of its own."""
    if not nccl_engine.available():
        warnings.warn("PyTorch is not compiled with NCCL support", stacklevel=2)
        return False
    devices = set()
    for tensor in tensors:
        if tensor.is_sparse or not tensor.is_contiguous() or not tensor.is_cuda or tensor.device in devices:
            return False
        devices.add(tensor.device)
    return True
