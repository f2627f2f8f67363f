"""Functions of functions: modules called with the parameters of a caller.

>>> from flambeau.func import functional_call
>>> layer = nn.Linear(2, 2, bias=False)
>>> functional_call(layer, {"weight": torch.eye(2)}, torch.tensor([1.0, 2.0]))
tensor([1., 2.])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .core.tensor import Tensor
from .nn.modules.module import Module
from .nn.utils.stateless import call_with

__all__ = ["functional_call"]


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
        tensors = _merged(parameter_and_buffer_dicts)
    else:
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got"
            f" {type(parameter_and_buffer_dicts)}"
        )
    return call_with(module, tensors, args, kwargs, tie_weights, strict)


def _merged(dicts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    if not all(isinstance(d, dict) for d in dicts):
        raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
    merged: dict[str, Tensor] = {}
    for one in dicts:
        repeated = sorted(set(one) & set(merged))
        if repeated:
            raise ValueError(
                f"{repeated[0]} appears in multiple dictionaries; behavior of functional call is ambiguous"
            )
        merged.update(one)
    return merged
