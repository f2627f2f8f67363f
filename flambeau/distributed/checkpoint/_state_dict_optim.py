"""Optimizers' state keyed by names of parameters: collected from several optimizers, merged, and loaded back into each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...autograd import no_grad
from ...core.device import device as Device
from ...core.tensor import Tensor
from ...nn import Module
from ...ops.creation.filled import zeros_like
from ...optim import Optimizer
from .. import fsdp, groups
from .._state_dict_utils import (
    _broadcast_state_dict,
    _distribute_state_dict,
    _flatten_state_dict,
    _unflatten_state_dict,
)
from ._state_dict_names import _get_fqns, _maybe_full_or_cpu_state_dict, _single_name, _state_dict_fn, _StateDictInfo

_PG, _PARAMS, _STATE = "param_groups", "params", "state"


def _common_device(tensors: Iterable[Any]) -> tuple[Device, bool]:
    """Return the device of all tensors with dimensions, and whether some are on meta."""
    found = {t.device for t in tensors if isinstance(t, Tensor) and t.dim() > 0}
    meta = Device("meta") in found
    found.discard(Device("meta"))
    if len(found) > 1:
        raise ValueError("Multiple devices found")
    return found.pop() if found else groups._get_pg_default_device(), meta


def _init_optim_state(optim: Optimizer) -> None:
    """Initialise an optimizer's state by one step with gradients and a learning rate of zero."""
    parameters = [p for group in optim.param_groups for p in group[_PARAMS]]
    if optim.state or any(p.grad is not None for p in parameters):
        return
    for parameter in parameters:
        if parameter.requires_grad:
            parameter.grad = zeros_like(parameter)
    rates = [group.get("lr") for group in optim.param_groups]
    for group in optim.param_groups:
        if "lr" in group:
            group["lr"] = zeros_like(group["lr"]) if isinstance(group["lr"], Tensor) else 0.0
    optim.step(closure=None)
    for group, rate in zip(optim.param_groups, rates, strict=True):
        if "lr" in group:
            group["lr"] = rate
    optim.zero_grad(set_to_none=True)


def _flatten_optim_state_dict(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Convert {"state": {name: {key: value}}, "param_groups": [...]} to {"state.name.key": value, "param_groups.name.key": value}."""
    flat: dict[str, Any] = {}

    def put(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, entry in value.items():
                put(f"{prefix}.{key}", entry)
            return
        if not isinstance(value, (Tensor, int, float)):
            raise NotImplementedError(
                "Flattening optimizer state_dict only supports tensor, int, float, dict states now. Type is"
                f" {type(value)}."
            )
        flat[prefix] = value

    for fqn, state in state_dict[_STATE].items():
        put(f"{_STATE}.{fqn}", state)
    for group in state_dict[_PG]:
        for fqn in group.pop(_PARAMS):
            flat.update({f"{_PG}.{fqn}.{key}": value for key, value in group.items()})
    return flat


def _nested_under(prefix: str, flat: dict[str, Any]) -> dict[str, Any]:
    """Return the entries under a prefix of a flat dictionary, as a nested one."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        if key.startswith(f"{prefix}."):
            *path, last = key[len(prefix) + 1 :].split(".")
            inner = nested
            for part in path:
                inner = inner.setdefault(part, {})
            inner[last] = value
    return nested


def _unflatten_optim_state_dict(optim: Optimizer, state_dict: dict[str, Any], info: _StateDictInfo) -> dict[str, Any]:
    state: dict[str, Any] = {}
    made_groups: list[dict[str, Any]] = []
    for group in optim.param_groups:
        names: list[str] = []
        options = [key for key in group if key != _PARAMS]
        for parameter in group[_PARAMS]:
            for fqn in info.fqn_param_mapping[parameter]:
                if fqn in info.shared_params_mapping and options and f"{_PG}.{fqn}.{options[0]}" not in state_dict:
                    continue  # a shared parameter is saved under one of its names
                names.append(fqn)
                if parameter.requires_grad:
                    state[fqn] = {}
                    for name in optim.state[parameter]:
                        key = f"{_STATE}.{fqn}.{name}"
                        state[fqn][name] = state_dict[key] if key in state_dict else _nested_under(key, state_dict)
        made = {_PARAMS: names, **{key: state_dict[f"{_PG}.{names[0]}.{key}"] for key in options}}
        for fqn in names:
            for key in options:
                if state_dict.get(f"{_PG}.{fqn}.{key}", made[key]) != made[key]:
                    raise RuntimeError(
                        "All the parameters in the same parameter group should have the same saved param_group value. But"
                        f" {names[0]}.{key} is {made[key]} while other(s) is {state_dict[f'{_PG}.{fqn}.{key}']}."
                    )
        made_groups.append(made)
    return {_STATE: state, _PG: made_groups}


@no_grad()
def _get_optim_state_dict(model: Module, optimizers: tuple[Optimizer, ...], info: _StateDictInfo) -> dict[str, Any]:
    if not info.handle_optim:
        return {}
    whole: dict[str, Any] = {_STATE: {}, _PG: []}
    for optim in optimizers:
        _init_optim_state(optim)
        own = _state_dict_fn(optim, "state_dict")()
        own = _fsdp_optim_state(model, optim, own, info) if info.fsdp_modules else _key_by_names(model, optim, own)
        if own:
            whole[_STATE].update(own[_STATE])
            whole[_PG].extend(own[_PG])
    if info.flatten_optimizer_state_dict:
        whole = _flatten_optim_state_dict(whole)
    return _maybe_full_or_cpu_state_dict(whole, info)


def _key_by_names(model: Module, optim: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """Return the optimizer's state keyed by names of parameters instead of numbers."""
    numbers = {p: i for i, p in enumerate(p for group in optim.param_groups for p in group[_PARAMS])}
    names = {
        numbers[parameter]: _single_name(_get_fqns(model, key), key)
        for key, parameter in model.named_parameters()
        if parameter in numbers
    }
    return {
        _STATE: {names[number]: state for number, state in state_dict[_STATE].items()},
        _PG: [{**group, _PARAMS: [names[number] for number in group[_PARAMS]]} for group in state_dict[_PG]],
    }


def _fsdp_optim_state(
    model: Module, optim: Optimizer, state_dict: dict[str, Any], info: _StateDictInfo
) -> dict[str, Any]:

    with info.fsdp_context():
        found = fsdp.FullyShardedDataParallel.optim_state_dict(model, optim, state_dict)
    return _rename_keys(found, {compiled: name for name, compiled in _compiled_names(model).items()})


def _compiled_names(model: Module) -> dict[str, str]:
    """Return the names that FSDP has for parameters inside compiled modules, by their plain names."""
    names = {}
    for key, _ in model.named_parameters():
        plain, compiled = _get_fqns(model, key), _get_fqns(model, key, skip_compiler_prefix=False)
        if plain != compiled:
            names[_single_name(plain, key)] = _single_name(compiled, key)
    return names


def _rename_keys(state_dict: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    if not names or not state_dict:
        return state_dict
    return {
        _STATE: {names.get(key, key): value for key, value in state_dict[_STATE].items()},
        _PG: [{**group, _PARAMS: [names.get(key, key) for key in group[_PARAMS]]} for group in state_dict[_PG]],
    }


def _split_optim_state_dict(
    model: Module, optim: Optimizer, optim_state_dict: dict[str, Any], info: _StateDictInfo
) -> dict[str, Any]:
    """Return the part of a state dict of several optimizers that belongs to one."""
    loaded = optim_state_dict[_STATE]
    if all(isinstance(key, int) for key in loaded):
        return optim_state_dict
    state: dict[str, Any] = {}
    made_groups = []
    for group in optim.param_groups:
        names, origin = [], None
        for parameter in group[_PARAMS]:
            for fqn in info.fqn_param_mapping[parameter]:
                source = next((g for g in optim_state_dict[_PG] if fqn in g[_PARAMS]), None)
                if fqn in info.shared_params_mapping and source is None:
                    continue
                names.append(fqn)
                origin = source or origin
                if parameter.requires_grad:
                    if fqn in loaded:
                        state[fqn] = loaded[fqn]
                    elif info.strict:
                        raise RuntimeError(
                            f"Missing optimizer state for parameter '{fqn}' in checkpoint. The parameter requires gradients"
                            " but has no saved optimizer state. To load anyway, use StateDictOptions(strict=False)."
                        )
        if not group[_PARAMS]:
            origin = _empty_group(optim, optim_state_dict[_PG])
        options = {} if origin is None else {key: value for key, value in origin.items() if key != _PARAMS}
        made_groups.append({_PARAMS: names, **options})
    return {_STATE: state, _PG: made_groups}


def _empty_group(optim: Optimizer, loaded: list[dict[str, Any]]) -> dict[str, Any]:
    empty = [group for group in loaded if not group[_PARAMS]]
    if len(empty) != 1:
        raise ValueError(
            "There are param groups that have zero parameters. In such a case, DSD only support exactly one param group with"
            " zero parameters.But the loaded state_dict has zero or more than one param groups that have zero parameters."
        )
    if len(loaded) != len(optim.param_groups):
        raise ValueError(
            "When there is a parameter group that has zero parameters, multiple optimizers are not supported."
        )
    return empty[0]


@no_grad()
def _load_optim_state_dict(
    model: Module, optimizers: tuple[Optimizer, ...], state_dict: dict[str, Any], info: _StateDictInfo
) -> None:
    if not info.handle_optim:
        return
    for optim in optimizers:
        _init_optim_state(optim)
        own: dict[str, Any] = {}
        if state_dict:
            take = _split_optim_state_dict if _STATE in state_dict else None
            own = take(model, optim, state_dict, info) if take else _unflatten_optim_state_dict(optim, state_dict, info)
        if info.fsdp_modules:
            with info.fsdp_context():
                named = _rename_keys(own, _compiled_names(model))
                own = fsdp.FullyShardedDataParallel.optim_state_dict_to_load(model, optim, named)
        elif info.full_state_dict:
            own = _spread_optim_state(model, optim, own, info)
        _state_dict_fn(optim, "load_state_dict")(own)


def _spread_optim_state(model: Module, optim: Optimizer, given: dict[str, Any], info: _StateDictInfo) -> dict[str, Any]:
    """Distribute whole tensors (rank 0's, if it broadcasts them) like the optimizer's own state."""
    info.full_state_dict = False
    try:
        own = _get_optim_state_dict(model, (optim,), info)
    finally:
        info.full_state_dict = True
    if info.flatten_optimizer_state_dict:
        own = _unflatten_optim_state_dict(optim, own, info)
    flat, paths = _flatten_state_dict(given)
    local, local_paths = _flatten_state_dict(own)
    device, _ = _common_device(local.values())
    if info.broadcast_from_rank0:
        _broadcast_state_dict(flat, local, device)
    else:
        _distribute_state_dict(flat, local, device)
    for key, value in flat.items():
        if key not in local:
            local[key], local_paths[key] = value, paths[key]
    spread = _unflatten_state_dict(local, {**paths, **local_paths})
    for group in spread[_PG]:
        group.setdefault(_PARAMS, [])
    spread.setdefault(_STATE, {})
    return spread
