"""Modules as functions: called with the parameters of a caller, or with those of many modules at once.

>>> from flambeau.func import functional_call
>>> layer = nn.Linear(2, 2, bias=False)
>>> functional_call(layer, {"weight": torch.eye(2)}, torch.tensor([1.0, 2.0]))
tensor([1., 2.])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..nn import Module, modules
from ..nn.utils.stateless import call_with
from ..ops.shape.joining import stack


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call `module` with the given tensors in place of its own; the module is left unchanged."""
    if isinstance(parameter_and_buffer_dicts, dict):
        tensors = parameter_and_buffer_dicts
    elif isinstance(parameter_and_buffer_dicts, Sequence):
        tensors = _merge(parameter_and_buffer_dicts)
    else:
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got"
            f" {type(parameter_and_buffer_dicts)}"
        )
    return call_with(module, tensors, args, kwargs, tie_weights, strict)


def _merge(dicts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    if not all(isinstance(d, dict) for d in dicts):
        raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    merged: dict[str, Tensor] = {}
    for one in dicts:
        repeated = [name for name in merged if name in one]
        if repeated:
            raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        merged.update(one)
    return merged


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters and the buffers of several modules of one kind, stacked: for vmap over `functional_call`."""
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if not all(type(m) is type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    parameters = [dict(m.named_parameters()) for m in models]
    buffers = [dict(m.named_buffers()) for m in models]
    return (
        {name: _stack_to_leaf([p[name] for p in parameters]) for name in parameters[0]},
        {name: _stack_to_leaf([b[name] for b in buffers]) for name in buffers[0]},
    )


def _stack_to_leaf(tensors: list[Tensor]) -> Tensor:
    """Stack tensors to a new leaf, which requires grad if the stacked ones are leaves that do."""
    if not all(t.requires_grad is tensors[0].requires_grad for t in tensors):
        raise RuntimeError("Expected parameters from each model to have the same .requires_grad")
    if not all(t.is_leaf for t in tensors):
        return stack(tensors)
    return stack(tensors).detach().requires_grad_(tensors[0].requires_grad)


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Disable the running statistics of all batch normalisations below `root`, so that they work under vmap."""
    for module in root.modules():
        if isinstance(module, modules.batchnorm._BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
