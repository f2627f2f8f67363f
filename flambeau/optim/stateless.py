"""Running an optimizer on parameters and state other than its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core.tensor import Tensor
from .optimizer import Optimizer

_NAME = "swap_in_optimizer_params_and_state"


@contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: dict[str, Tensor], swapin_optim_state: dict[str, Any]
) -> Iterator[None]:
    """Context manager: the optimizer works on the given parameters (in the order of its groups) with the given state, which is in the form
    of `state_dict()`. On exit its own are restored. Tensors in the given state are updated in place."""
    saved, groups = _check_state_dict(optimizer, swapin_optim_state)
    params = list(swapin_parameters.values())
    state: defaultdict[Tensor, Any] = defaultdict(dict)
    chosen: list[list[Tensor]] = []
    start = 0
    for group in groups:
        mine = params[start : start + len(group["params"])]
        if len(mine) != len(group["params"]):
            raise RuntimeError(
                f"{_NAME} requires the explicit parameter state to match optimizer.param_groups ordering: got"
                f" {len(params)} parameters, too few for group {len(chosen)}."
            )
        start += len(mine)
        chosen.append(mine)
        for p, number in zip(mine, group["params"]):
            state[p] = dict(saved.get(number, {}))
    own_state, own_groups = optimizer.state, [dict(group) for group in optimizer.param_groups]
    try:
        for live, group, mine in zip(optimizer.param_groups, groups, chosen):
            live.update(group, params=mine)
        optimizer.state = state
        yield
    finally:
        for live, before in zip(optimizer.param_groups, own_groups):
            live.clear()
            live.update(before)
        optimizer.state = own_state


def _check_state_dict(optimizer: Optimizer, given: Any) -> tuple[dict, list[dict[str, Any]]]:
    """Return state and groups of the given state dict, which must have the structure of the optimizer's own."""
    if not optimizer.state:
        raise RuntimeError(f"{_NAME} requires initialized optimizer state.")
    if not isinstance(given, dict):
        raise RuntimeError(f"{_NAME} requires an optimizer state_dict, got {type(given).__name__}.")
    state, groups = given.get("state"), given.get("param_groups")
    if not isinstance(state, dict):
        raise RuntimeError(f"{_NAME} requires swapin_optim_state['state'] to be a dict, got {type(state).__name__}.")
    if any(isinstance(key, Tensor) for key in state):
        raise RuntimeError(f"{_NAME} requires optimizer.state_dict()-style state keyed by packed parameter ids.")
    if any(isinstance(key, int) and not isinstance(value, dict) for key, value in state.items()):
        raise RuntimeError(f"{_NAME} requires per-parameter optimizer state entries to be dictionaries.")
    if not isinstance(groups, list):
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['param_groups'] to be a list, got {type(groups).__name__}."
        )
    if len(groups) != len(optimizer.param_groups):
        raise RuntimeError("swapin_optim_state has a different number of parameter groups than the live optimizer.")
    known: set[int] = set()
    for i, (live, group) in enumerate(zip(optimizer.param_groups, groups)):
        _check_group(i, live, group)
        known.update(group["params"])
    extra = [key for key in state if key not in known]
    if extra:
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['state'] to be keyed only by packed parameter ids from"
            f" param_groups[*]['params']; got extra keys {extra!r}."
        )
    return state, groups


def _check_group(i: int, live: dict[str, Any], group: Any) -> None:
    if not isinstance(group, dict):
        raise RuntimeError(f"{_NAME} requires each optimizer param group to be a dictionary.")
    numbers = group.get("params")
    if not isinstance(numbers, list) or not all(isinstance(n, int) for n in numbers):
        raise RuntimeError(
            f"{_NAME} requires optimizer.state_dict()-style param_groups[*]['params'] entries keyed by packed parameter"
            " ids."
        )
    if len(live["params"]) != len(numbers):
        raise RuntimeError(
            f"swapin_optim_state param group {i} has a different number of params than the live optimizer param group."
        )
    if set(live) != set(group):
        raise RuntimeError(
            f"{_NAME} requires the keys of param group {i} to match the live optimizer's. Keys only in swap-in:"
            f" {[k for k in group if k not in live]}. Keys only in live: {[k for k in live if k not in group]}."
        )
