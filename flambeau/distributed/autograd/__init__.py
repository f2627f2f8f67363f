"""`torch.distributed.autograd`: backward passes through functions that were called on other workers.

>>> with context() as context_id:
...     loss = rpc.rpc_sync("worker1", torch.add, args=(t1, t2)).sum()
...     backward(context_id, [loss])
...     gradients = get_gradients(context_id)
"""

from __future__ import annotations

from typing import Any

from .contexts import DistAutogradContext, backward, container, get_gradients

__all__ = ["DistAutogradContext", "backward", "context", "get_gradients", "is_available"]


def is_available() -> bool:
    """Return True: distributed autograd is part of the library."""
    return True


class context:
    """Context manager of a forward and backward pass shared by several workers; yields its id."""

    def __enter__(self) -> int:
        self.autograd_context = container.new()
        return self.autograd_context._context_id()

    def __exit__(self, *error: Any) -> None:
        container.release(self.autograd_context._context_id())


def _init(worker_id: int) -> None:
    container.begin(worker_id)


def _new_context() -> DistAutogradContext:
    return container.new()


def _release_context(context_id: int) -> None:
    container.find(context_id)
    container.release(context_id)


def _retrieve_context(context_id: int) -> DistAutogradContext:
    return container.find(context_id)


def _is_valid_context(context_id: int) -> None:
    container.find(context_id)


def _current_context() -> DistAutogradContext:
    if container.here is None:
        raise RuntimeError("Current thread doesn't have a valid autograd context. Please wrap your code using: `with torch.distributed.autograd.context() as context_id` to generate a valid context")  # noqa: E501 # fmt: skip
    return container.here


def _get_max_id() -> int:
    if container.worker is None:
        raise RuntimeError("Need to initialize distributed autograd using torch.distributed.autograd.init()")
    return (container.worker << 48) | ((1 << 48) - 1)


def _get_debug_info() -> dict[str, str]:
    running = sum(c.running is not None for c in list(container.contexts.values()))
    return {"num_current_backward_passes": str(running), "num_autograd_contexts": str(len(container.contexts))}
