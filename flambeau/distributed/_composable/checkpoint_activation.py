"""Activation checkpointing of a module without a wrapper."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from ...nn import Module
from ...utils.checkpoint import checkpoint as run_checkpointed
from .._composable_state import _State
from .contract import contract

_OPTIONS = {"preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"}


class _CheckpointState(_State):
    """State of a module under `checkpoint`: `enable_hook` says whether its forward pass is checkpointed."""

    enable_hook = True


@contextlib.contextmanager
def _no_hook(module: Module) -> Iterator[None]:
    """Context manager: run the module without checkpointing."""
    state = checkpoint.state(module)
    before, state.enable_hook = state.enable_hook, False
    try:
        yield
    finally:
        state.enable_hook = before


@contract(_CheckpointState)
def checkpoint(module: Module, **kwargs: Any) -> Module:
    """Recompute a module's activations in the backward pass instead of storing them (see `flambeau.utils.checkpoint`).

    >>> checkpoint(model.layers[0])
    """
    if kwargs.pop("use_reentrant", False):
        raise NotImplementedError(
            "use_reentrant=True is not supported in composable checkpoint. Please use torch.utils.checkpoint.checkpoint instead."
        )
    if set(kwargs) - _OPTIONS:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    options = {name: value for name, value in kwargs.items() if value is not None}
    original = module.forward

    @functools.wraps(original)
    def forward(*args: Any, **named: Any) -> Any:
        if not checkpoint.state(module).enable_hook:
            return original(*args, **named)
        return run_checkpointed(original, *args, use_reentrant=False, **options, **named)

    module.forward = forward
    return module
