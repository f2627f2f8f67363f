"""What is kept for the backward pass, and how: hooks that pack and unpack saved tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..core.device import cpu
from ..core.graph import Node, pop_saved_hooks, push_saved_hooks
from ..core.tensor import Tensor


class _Refusal(threading.local):
    message: str | None = None


_refusal = _Refusal()


class saved_tensors_hooks:
    """Inside, every tensor saved for backward is replaced by `pack_hook(tensor)`, and `unpack_hook` brings it back.

    >>> with saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()):
    ...     y = (ones(2, requires_grad=True) ** 2).sum()
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]):
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        if _refusal.message is not None:
            raise RuntimeError(_refusal.message)
        push_saved_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *problem: Any) -> None:
        pop_saved_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Inside, tensors saved for backward are kept in main memory and go back to their device when they are needed."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        def pack(tensor: Tensor) -> tuple:
            return tensor.device, tensor.clone() if tensor.device is cpu else tensor.to(cpu)

        def unpack(packed: tuple) -> Tensor:
            where, tensor = packed
            return tensor.to(where, non_blocking=pin_memory)

        super().__init__(pack, unpack)


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Inside, using hooks on saved tensors is an error with this message."""
    before, _refusal.message = _refusal.message, error_message
    try:
        yield
    finally:
        _refusal.message = before


def increment_version(tensor: Any) -> None:
    """Say that memory was changed behind autograd's back: whoever saved these tensors will notice."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        t._storage.version += 1


__all__ = ["Node", "disable_saved_tensors_hooks", "increment_version", "save_on_cpu", "saved_tensors_hooks"]
