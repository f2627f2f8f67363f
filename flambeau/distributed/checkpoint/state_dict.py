"""State dicts with the names that the model's modules have without wrappers: DDP, FSDP, `torch.compile`, checkpoint wrappers.

>>> model_state, optimizer_state = get_state_dict(model, optimizer)
>>> set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from ...autograd import no_grad
from ...nn import Module
from ...nn.modules.module import _IncompatibleKeys
from ...optim import Optimizer
from .. import groups
from .._state_dict_utils import _broadcast_state_dict, _distribute_state_dict
from ._state_dict_names import (
    FQNS_T,
    StateDictOptions,
    _get_fqns,
    _iterate_valid_model_state,
    _maybe_full_or_cpu_state_dict,
    _patched_state_dict,
    _single_name,
    _state_dict_fn,
    _StateDictInfo,
    _verify_options,
    _verify_state_dict,
)
from ._state_dict_optim import (
    _PARAMS,
    _PG,
    _STATE,
    _common_device,
    _flatten_optim_state_dict,
    _get_optim_state_dict,
    _init_optim_state,
    _load_optim_state_dict,
    _split_optim_state_dict,
    _unflatten_optim_state_dict,
)

__all__ = [
    "FQNS_T", "PrimitiveType", "StateDictOptions", "ValueType", "_PARAMS", "_PG", "_STATE", "_flatten_optim_state_dict",
    "_get_fqns", "_init_optim_state", "_split_optim_state_dict", "_unflatten_optim_state_dict", "get_model_state_dict",
    "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict", "set_optimizer_state_dict", "set_state_dict",
]  # fmt: skip

PrimitiveType = Any
ValueType = Any

DictValueType = dict[str, Any]
ListDictValueType = list[DictValueType]
OptimizerStateType = dict[str, DictValueType | ListDictValueType]


# -- models ---------------------------------------------------------------------------------------------------------------------


@no_grad()
def _get_model_state_dict(model: Module, info: _StateDictInfo) -> dict[str, Any]:
    if not info.handle_model:
        return {}
    with info.fsdp_context():
        state = _state_dict_fn(model, "state_dict")()
    for key in list(state):
        fqn = _single_name(_get_fqns(model, key), key)
        if fqn != key:
            state[fqn] = state.pop(key)
    if info.submodule_prefixes:
        state = {
            key if info.keep_submodule_prefixes else key[len(prefix) :]: value
            for key, value in state.items()
            for prefix in info.submodule_prefixes
            if key.startswith(prefix)
        }
    if info.ignore_frozen_params:
        for key, parameter in model.named_parameters():
            if not parameter.requires_grad:
                for fqn in _get_fqns(model, key):
                    state.pop(fqn)
    return _maybe_full_or_cpu_state_dict(state, info)


@no_grad()
def _load_model_state_dict(model: Module, state_dict: dict[str, Any], info: _StateDictInfo) -> Any:
    if not info.handle_model or (not state_dict and not info.broadcast_from_rank0):
        return _IncompatibleKeys([], [])
    local: dict[str, Any] = {}
    has_values = not info.broadcast_from_rank0 or groups.get_rank() == 0
    for key, value in _iterate_valid_model_state(model, info.dsd_fqn_modifiers):
        fqns = _get_fqns(model, key, info.dsd_fqn_modifiers)
        wrapped = _get_fqns(model, key, info.dsd_fqn_modifiers, skip_ddp_prefix=False, skip_compiler_prefix=False)
        for fqn, with_prefix in zip(fqns, wrapped, strict=True):
            if has_values and fqn != with_prefix:
                given = state_dict.pop(fqn, None)
                if given is not None:
                    state_dict[with_prefix] = given
                elif info.strict:
                    raise RuntimeError(f"Missing key: {fqn}.")
            local[with_prefix] = value
    assign = False
    if info.full_state_dict:
        device, assign = _common_device(local.values())
        if info.broadcast_from_rank0:
            _broadcast_state_dict(state_dict, local, device, strict=info.strict, cpu_offload=info.cpu_offload)
        else:
            _distribute_state_dict(state_dict, local, device)
        state_dict.update(local)
    with info.fsdp_context():
        return _state_dict_fn(model, "load_state_dict")(state_dict, strict=info.strict, assign=assign)


# -- the functions --------------------------------------------------------------------------------------------------------------


def _as_tuple(optimizers: Optimizer | Iterable[Optimizer]) -> tuple[Optimizer, ...]:
    return (optimizers,) if isinstance(optimizers, Optimizer) else tuple(optimizers)


def get_model_state_dict(
    model: Module, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """Return the model's state, under the names that it would have without wrappers."""
    info = _verify_options(model, (), optim_only=False, submodules=submodules, options=options)
    state = _get_model_state_dict(model, info)
    _verify_state_dict(state, {}, info)
    return state


def get_optimizer_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:
    """Return the merged state of a model's optimizers, keyed by the names of the parameters."""
    chosen = _as_tuple(optimizers)
    info = _verify_options(model, chosen, optim_only=True, submodules=submodules, options=options)
    state = _get_optim_state_dict(model, chosen, info)
    _verify_state_dict({}, state, info)
    return state


def get_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (the model's state, the optimizers' state), under names without wrappers: a checkpoint of them can be loaded however the model
    is wrapped and sharded then."""
    chosen = _as_tuple(optimizers)
    info = _verify_options(model, chosen, optim_only=False, submodules=submodules, options=options)
    state, optim_state = _get_model_state_dict(model, info), _get_optim_state_dict(model, chosen, info)
    _verify_state_dict(state, optim_state, info)
    return state, optim_state


def _unflatten_model_state_dict(model: Module, state_dict: Any) -> dict[str, Any]:
    """Merge state dicts of submodules, keyed by submodule, into one of the model."""
    if not state_dict or not isinstance(next(iter(state_dict)), Module):
        return state_dict
    warnings.warn(
        "Passing model_state_dict as a ``Dict[nn.Module, Dict[str, Any]]``is deprecated and will be removed in 2.5. If you"
        " need this feature, please preprocessing the model_state_dict to achieve the same functionality.",
        FutureWarning,
        stacklevel=3,
    )
    whole = {}
    for submodule, state in state_dict.items():
        for name, module in model.named_modules():
            if module is submodule:
                prefix = f"{_single_name(_get_fqns(model, name), name)}."
                whole.update({prefix + key: value for key, value in state.items()})
    return whole


def set_model_state_dict(model: Module, model_state_dict: Any, *, options: StateDictOptions | None = None) -> Any:
    """Load a state made by `get_model_state_dict`; returns the missing and the unexpected keys."""
    state = _unflatten_model_state_dict(model, model_state_dict)
    info = _verify_options(model, (), optim_only=False, options=options)
    _verify_state_dict(state, {}, info)
    return _load_model_state_dict(model, state, info)


def set_optimizer_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    optim_state_dict: dict[str, Any],
    *,
    options: StateDictOptions | None = None,
) -> None:
    """Load a state made by `get_optimizer_state_dict`."""
    chosen = _as_tuple(optimizers)
    info = _verify_options(model, chosen, optim_only=True, options=options)
    _verify_state_dict({}, optim_state_dict, info)
    _load_optim_state_dict(model, chosen, optim_state_dict, info)


def set_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    model_state_dict: Any,
    optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> Any:
    """Load the states made by `get_state_dict`; returns the model's missing and unexpected keys."""
    state = _unflatten_model_state_dict(model, model_state_dict)
    chosen = _as_tuple(optimizers)
    sent = options is not None and options.broadcast_from_rank0  # other ranks than 0 have nothing yet
    info = _verify_options(model, chosen, optim_only=not state and not sent, options=options)
    _verify_state_dict(state, optim_state_dict, info)
    _load_optim_state_dict(model, chosen, optim_state_dict, info)
    return _load_model_state_dict(model, state, info)


def _patch_model_state_dict(model: Module, *, options: StateDictOptions | None = None) -> None:
    """Replace model.state_dict() and load_state_dict() by the distributed functions."""
    methods: dict[str, Any] = {
        "state_dict": lambda: get_model_state_dict(model, options=options),
        "load_state_dict": lambda state_dict: set_model_state_dict(model, state_dict, options=options),
    }
    model.__dict__.update(methods)  # of this very module: a compiled one hands attributes on to what it wraps
    _patched_state_dict.update(methods.values())
