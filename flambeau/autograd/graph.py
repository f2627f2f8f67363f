"""Hooks on tensors saved for the backward pass and on gradients of several tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..core.device import cpu
from ..core.graph import GradientEdge, Node, grad_mode, gradient_edge, pop_saved_hooks, push_saved_hooks
from ..core.locks import new_lock
from ..core.tensor import Tensor
from ..core.uninterrupted import uninterrupted
from .engine import Pass, running


class _Refusal(threading.local):
    message: str | None = None


_refusal = _Refusal()


class saved_tensors_hooks:
    """Context manager: every tensor saved for backward is replaced by `pack_hook(tensor)`, and restored by `unpack_hook`.

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

    @uninterrupted
    def __exit__(self, *problem: Any) -> None:
        pop_saved_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Context manager: tensors saved for backward are moved to main memory, and back to their device when they are needed."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        def pack(tensor: Tensor) -> tuple[Any, ...]:
            return tensor.device, tensor.clone() if tensor.device is cpu else tensor.to(cpu)

        def unpack(packed: tuple[Any, ...]) -> Tensor:
            where, tensor = packed
            return tensor.to(where, non_blocking=pin_memory)

        super().__init__(pack, unpack)


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Context manager: using hooks on saved tensors raises an error with this message."""
    if grad_mode.saved_hooks:
        raise RuntimeError(error_message)
    before, _refusal.message = _refusal.message, error_message
    try:
        yield
    finally:
        _refusal.message = before


def increment_version(tensor: Any) -> None:
    """Increase the version of tensors whose memory was changed outside of autograd, so that graphs that saved them notice."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        t._storage.version += 1


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Return the node and output at which the gradient of a tensor arrives; `grad` accepts it instead of the tensor, which may be freed."""
    edge = gradient_edge(tensor) if tensor.requires_grad else None
    if edge is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(*edge)


class MultiGradHandle:
    """Handle that removes the hooks made by `register_multi_grad_hook`."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self.handles = tuple(handles)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> MultiGradHandle:
        return self

    def __exit__(self, *problem: Any) -> None:
        self.remove()


class _MultiGradients:
    """The gradients of several tensors in one backward pass."""

    def __init__(self, nodes: list[Node], function: Callable[[Any], None], waits_for_all: bool) -> None:
        self.nodes, self.function, self.waits_for_all = nodes, function, waits_for_all
        self.owner: Pass | None = None
        self.lock = new_lock()

    def hook(self, position: int) -> Callable[[Tensor], None]:
        return lambda gradient: self.arrived(position, gradient)

    def arrived(self, position: int, gradient: Tensor) -> None:
        with self.lock:
            first = self.owner is not running.current
            if first:  # of a new pass
                self.owner = running.current
                self.found: list[Tensor | None] = [None] * len(self.nodes)
                self.left = sum(node in running.current.reachable for node in self.nodes) if running.current else 0
            self.found[position] = gradient
            self.left -= 1
            complete = self.left == 0
        if complete:
            self.owner = None
        if self.waits_for_all and complete:
            self.function(self.found)
        elif not self.waits_for_all and first:
            self.function(gradient)


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[[Any], None], *, mode: str = "all"
) -> MultiGradHandle:
    """Call `fn(gradients)` when all of the tensors that take part in a backward pass have their gradient (None for the
    others); with mode="any", `fn(gradient)` at the first that arrives."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    edges = [gradient_edge(t) if t.requires_grad else None for t in tensors]
    if any(edge is None for edge in edges):
        raise AssertionError("Expected gradient function to be set: one of the tensors does not require gradients")
    gathering = _MultiGradients([edge[0] for edge in edges if edge is not None], fn, mode == "all")
    return MultiGradHandle([t.register_hook(gathering.hook(i)) for i, t in enumerate(tensors)])


class _Copies:
    """Copies that `allow_mutation_on_saved_tensors` keeps."""

    def __init__(self) -> None:
        self.kept: dict[int, Tensor] = {}
        self.open = True

    def pack(self, tensor: Tensor) -> int:
        self.kept[len(self.kept)] = tensor.clone()
        return len(self.kept) - 1

    def unpack(self, key: int) -> Tensor:
        if not self.open or key not in self.kept:
            raise AssertionError("Trying to backward outside of the 'allow_mutation_on_saved_tensors' context")
        return self.kept[key]

    def clear(self) -> None:
        self.kept.clear()


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_Copies]:
    """Context manager: tensors may be changed in place after they were saved for backward, since a copy of each is kept."""
    if any(isinstance(getattr(pack, "__self__", None), _Copies) for pack, _ in grad_mode.saved_hooks):
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    copies = _Copies()
    try:
        with saved_tensors_hooks(copies.pack, copies.unpack):
            yield copies
    finally:
        copies.open = False
        copies.clear()


__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge",
    "increment_version", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks",
]  # fmt: skip
