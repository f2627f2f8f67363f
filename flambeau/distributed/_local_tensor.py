"""Stand-ins for PyTorch's local-tensor mode (all ranks in one process), which Flambeau does not have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from ..core.absent import absent_class as _absent_class

_MESSAGE = "torch.distributed._local_tensor.{} is not in Flambeau: the ranks of a program are processes of their own"
LocalIntNode, LocalTensor, LocalTensorMode = (
    _absent_class(name, _MESSAGE.format(name)) for name in ("LocalIntNode", "LocalTensor", "LocalTensorMode")
)


def maybe_run_for_local_tensor(func: Callable) -> Callable:
    """Return the function unchanged: it is called once in each process."""
    return func


def maybe_disable_local_tensor_mode() -> Any:
    """Context manager without effect: there is no local-tensor mode."""
    return contextlib.nullcontext()
