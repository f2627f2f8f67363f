"""Context managers for tools that run a model to inspect it: on exit the model and the random generators are restored."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from ..autograd import no_grad
from ..core.tensor import Tensor
from ..random import fork_rng
from .modules.module import Module
from .parameter import is_lazy


@contextlib.contextmanager
def in_mode(model: Any, training: bool | None) -> Iterator[None]:
    """Context manager: put a model into training or evaluation mode, and every submodule back into its own mode on exit.

    With None, or something that is no module, only what happens inside to the modes is undone."""
    before = [(module, module.training) for module in model.modules()] if isinstance(model, Module) else []
    if training is not None and any(flag != training for _, flag in before):
        model.train(training)
    try:
        yield
    finally:
        for module, flag in before:  # from the outside to the inside: `train` sets the modes of the parts, too
            if module.training != flag:
                module.train(flag)


@contextlib.contextmanager
def _own_buffers(model: Any) -> Iterator[None]:
    """Context manager: replace a model's buffers by copies, and restore the untouched originals on exit."""
    kept = [
        (module, name, buffer)
        for module in (model.modules() if isinstance(model, Module) else ())
        for name, buffer in module._buffers.items()
        if buffer is not None and not is_lazy(buffer)
    ]
    copies = {id(buffer): buffer.detach().clone() for _, _, buffer in kept}  # modules that share one go on sharing
    for module, name, buffer in kept:
        module._buffers[name] = copies[id(buffer)]
    try:
        yield
    finally:
        for module, name, buffer in kept:
            module._buffers[name] = buffer


@contextlib.contextmanager
def unchanged(model: Any, training: bool | None = None) -> Iterator[None]:
    """Context manager: a model may run inside, in the given mode; on exit its modes, its buffers and the random generators of all
    devices are restored.

    >>> with unchanged(model, training=False):
    ...     model(example)
    """
    with in_mode(model, training), _own_buffers(model), fork_rng():
        yield


@contextlib.contextmanager
def contents_kept(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Context manager: restore the values of the tensors and the random generators on exit. Unlike `unchanged` it keeps the tensor objects,
    for recorders that identify tensors by them."""
    kept = [(tensor, tensor._version, tensor.detach().clone()) for tensor in tensors if not is_lazy(tensor)]
    with fork_rng():
        try:
            yield
        finally:
            with no_grad():
                for tensor, version, contents in kept:
                    if tensor._version != version:
                        tensor.copy_(contents)
