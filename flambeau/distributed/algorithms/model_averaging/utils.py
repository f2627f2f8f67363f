"""Averages of parameters over the ranks of a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ....core.graph import unrecorded
from ....core.tensor import Tensor
from ... import collectives, groups

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]


def average_parameters(params: Iterator[Tensor], process_group: Any) -> None:
    """Replace parameters by their average over the ranks."""
    group = groups._get_default_group() if process_group is None else process_group
    if groups._rank_not_in_group(group):
        return
    tensors = [p.detach() for p in params]
    by_dtype: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        by_dtype.setdefault(tensor.dtype, []).append(tensor)
    for same in by_dtype.values():
        for tensor in same:
            unrecorded(tensor.div_, group.size())
        collectives.all_reduce_coalesced(same, group=group)


def get_params_to_average(params: Iterable[Any]) -> list[Tensor]:
    """Parameters, or those of an optimizer's groups, that have gradients."""
    chosen = []
    for entry in params:
        if isinstance(entry, Tensor):
            chosen += [entry] if entry.grad is not None else []
        elif isinstance(entry, dict):
            chosen += [p for p in entry["params"] if p.grad is not None]
        else:
            raise NotImplementedError(f"Parameter input of type {type(entry)} is not supported")
    return chosen


def average_parameters_or_parameter_groups(params: Iterable[Any], process_group: Any) -> None:
    average_parameters(iter(get_params_to_average(params)), process_group)
