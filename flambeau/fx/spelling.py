"""Spelling of calls for `__torch_function__`: which arguments PyTorch passes by position and which by name.

Functions it compiles see the arguments as the program wrote them. Those it writes in Python (most of `nn.functional`, and
`torch.functional`) pass on all their parameters: those without a default by position, the others by name.

>>> spelled(flambeau.nn.functional.relu, (1,), {})
((1,), {'inplace': False})
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from .names import home_of

_PYTHON_MODULES = ("torch.nn.functional", "torch.functional")
# Functions whose parameters PyTorch passes on in an order of its own, or not all of them.
_OMITTED = {"l1_loss": ("weight",), "chain_matmul": ("out",), "broadcast_shapes": ()}
_PASSED_BY_NAME = {"unravel_index": ("shape",)}
_AS_WRITTEN = ("einsum",)


@functools.cache
def _signature(function: Callable) -> inspect.Signature | None:
    home = home_of(function)
    if home is None or home.module not in _PYTHON_MODULES or home.name in _AS_WRITTEN:
        return None
    return inspect.signature(function)


def _order(name: str, keywords: dict[str, Any]) -> dict[str, Any]:
    """Return keywords in PyTorch's order, where that differs from the order of the parameters."""
    if name == "multi_head_attention_forward" and "is_causal" in keywords:
        first = ["training", "key_padding_mask", "need_weights", "attn_mask", "is_causal"]
        return {**{key: keywords[key] for key in first}, **keywords}
    return keywords


def spelled(function: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments of a call, arranged as PyTorch's function passes them on."""
    signature = _signature(function)
    if signature is None:
        return args, kwargs
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    home = home_of(function)
    assert home is not None
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        value = bound.arguments[name]
        if name in _OMITTED.get(home.name, ()):
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += value
        elif parameter.kind is parameter.VAR_KEYWORD:
            keywords.update(value)
        elif parameter.default is parameter.empty and name not in _PASSED_BY_NAME.get(home.name, ()):
            positional.append(value)
        else:
            keywords[name] = value
    return tuple(positional), _order(home.name, keywords)
