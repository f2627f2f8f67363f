"""Helpers of layer constructors: sizes as tuples, prefixes of saved names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

__all__ = ["consume_prefix_in_state_dict_if_present"]


def _ntuple(count: int, name: str = "parse") -> Callable[[Any], tuple]:
    """Return a function that repeats one value `count` times, and converts iterables to tuples."""

    def parse(x: Any) -> tuple:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, count))

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: Iterable, n: int) -> tuple:
    """Reverse a tuple and repeat its entries: (a, b) with n=2 becomes (b, b, a, a), the order in which `pad` takes amounts."""
    return tuple(x for x in reversed(tuple(t)) for _ in range(n))


def _list_with_default(out_size: list[int], defaults: list[int]) -> list[int]:
    """Fill the None entries of `out_size` from the last entries of `defaults`."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [v if v is not None else d for v, d in zip(out_size, defaults[-len(out_size) :])]


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Strip `prefix` from the names of a state dict, in place (a model saved from inside DataParallel, for example)."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is None:
        return
    for key in list(metadata):
        if key and key.startswith(prefix.rstrip(".")):
            metadata[key[len(prefix) :]] = metadata.pop(key)


def _settings(module: Any, *names: str) -> str:
    """Return attributes of a module as its repr shows them: `a=1, b=(2, 3)`."""
    return ", ".join(f"{name}={getattr(module, name)!r}" for name in names)


def _non_defaults(module: Any, **usual: Any) -> str:
    """Return the attributes of a module that differ from their usual values, as its repr appends them: `, a=1, b=(2, 3)`."""
    values = {name: getattr(module, name) for name in usual}
    other = {n: v for n, v in values.items() if (v is not usual[n] if isinstance(usual[n], bool) else v != usual[n])}
    return "".join(f", {name}={value}" for name, value in other.items())
