"""Activation checkpointing of a module without a wrapper."""

from __future__ import annotations

import functools
from typing import Any

from ...nn import Module
from ...utils.checkpoint import checkpoint as run_checkpointed
from .contract import contract

_OPTIONS = {"preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"}


@contract()
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
        return run_checkpointed(original, *args, use_reentrant=False, **options, **named)

    module.forward = forward
    return module
