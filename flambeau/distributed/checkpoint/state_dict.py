"""State dicts with the names that the model's modules have, whatever wraps them: DDP, FSDP, `torch.compile`, checkpoint wrappers.

>>> model_state, optimizer_state = get_state_dict(model, optimizer)
>>> set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from ...autograd import no_grad
from ...core.device import device as Device
from ...core.tensor import Tensor
from ...nn import Module
from ...nn.modules.module import _EXTRA_STATE_KEY_SUFFIX, _IncompatibleKeys
from ...nn.parallel import DistributedDataParallel
from ...ops.creation.filled import zeros_like
from ...optim import Optimizer
from .. import groups
from .._state_dict_utils import (
    _broadcast_state_dict,
    _distribute_state_dict,
    _flatten_state_dict,
    _gather_state_dict,
    _offload_state_dict_to_cpu,
    _unflatten_state_dict,
)

__all__ = [
    "FQNS_T", "PrimitiveType", "StateDictOptions", "ValueType", "get_model_state_dict", "get_optimizer_state_dict",
    "get_state_dict", "set_model_state_dict", "set_optimizer_state_dict", "set_state_dict",
]  # fmt: skip

FQNS_T = set[str]
PrimitiveType = Any
ValueType = Any
_PG, _PARAMS, _STATE = "param_groups", "params", "state"
_FLAT_PARAM = "_flat_param"
_CHECKPOINT_PREFIX = "_checkpoint_wrapped_module."
_FSDP_WRAPPED = "_fsdp_wrapped_module"
_patched_state_dict: set[Callable] = set()


@dataclass
class StateDictOptions:
    """`full_state_dict`: whole tensors, gathered from all ranks. `cpu_offload`: in host memory; together with the former only rank 0
    gets them. `ignore_frozen_params`: leave out parameters without gradient. `strict`: as in `load_state_dict`.
    `broadcast_from_rank0`: rank 0 has whole tensors and sends every rank its parts. `flatten_optimizer_state_dict`: one key for each
    value, so that parts of several optimizers can be put together."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


@dataclass
class _StateDictInfo(StateDictOptions):
    fqn_param_mapping: dict[Any, Any] = field(default_factory=dict)  # parameter -> its names, name -> parameter
    shared_params_mapping: dict[Any, Any] = field(default_factory=dict)  # the same of those with several names
    submodule_prefixes: set[str] = field(default_factory=set)
    handle_model: bool = True
    handle_optim: bool = True
    fsdp_context: Callable = contextlib.nullcontext
    fsdp_modules: list[Module] = field(default_factory=list)


# -- names ----------------------------------------------------------------------------------------------------------------------


class _EXTRA_STATE:
    """Stands for what a module's `get_extra_state` gives."""


def _get_fqns(
    model: Module,
    name: str,
    dsd_fqn_modifiers: str = "_fqn_modifiers",
    skip_ddp_prefix: bool = True,
    skip_compiler_prefix: bool = True,
) -> FQNS_T:
    """The names that a parameter would have without wrappers: one, or several of a flat parameter of FSDP's."""
    name = name.replace(_CHECKPOINT_PREFIX, "")
    if "." not in name:
        return {name}
    parts, kept = name.split("."), []
    current: Any = model
    for position, part in enumerate(parts):
        if isinstance(current, DistributedDataParallel):
            if part != "module":
                raise AssertionError(f"Expected 'module', got '{part}'")
            current = current.module
            if not skip_ddp_prefix:
                kept.append(part)
        elif _is_fsdp(current):
            if parts[position + 1 : position + 2] == [_FLAT_PARAM]:
                prefix = ".".join([*kept, ""])
                return {f"{prefix}{piece.fqn}" for piece in current._handle.pieces}
            current = getattr(current, _FSDP_WRAPPED)
            if part != _FSDP_WRAPPED:
                kept.append(part)
                current = getattr(current, part)
        elif part == "_orig_mod" and hasattr(current, "_orig_mod"):
            current = current._orig_mod
            if not skip_compiler_prefix:
                kept.append(part)
        else:
            if hasattr(current, dsd_fqn_modifiers):
                hidden = getattr(current, dsd_fqn_modifiers)().get(part)
                if hidden and hasattr(current, hidden):
                    current = getattr(current, hidden)
            kept.append(part)
            if part == _EXTRA_STATE_KEY_SUFFIX:
                if position != len(parts) - 1:
                    raise RuntimeError("Expect `_extra_state` to be the last obj name")
            else:
                current = getattr(current, part)
    return {".".join(kept)}


def _is_fsdp(module: Any) -> bool:
    return isinstance(module, Module) and _FSDP_WRAPPED in module._modules


def _only(names: FQNS_T, key: str) -> str:
    if len(names) != 1:
        raise AssertionError(f"Expected 1 FQN for key '{key}', got {len(names)}: {names}")
    return next(iter(names))


def _iterate_valid_model_state(model: Module, dsd_fqn_modifiers: str = "_fqn_modifiers") -> Generator:
    """(name, parameter, buffer or extra state) of all that a state dict of the model has."""
    visited: set[Module] = set()

    def walk(module: Module, path: str) -> Generator:
        visited.add(module)
        prefix = f"{path}." if path else ""
        for name, child in module.named_children():
            if child in visited:
                continue
            hidden = hasattr(module, dsd_fqn_modifiers) and name in getattr(module, dsd_fqn_modifiers)().values()
            yield from walk(child, path if hidden else f"{prefix}{name}")
        for name, value in chain(module.named_buffers(recurse=False), module.named_parameters(recurse=False)):
            if name not in module._non_persistent_buffers_set:
                yield f"{prefix}{name}", value
        if getattr(type(module), "get_extra_state", Module.get_extra_state) is not Module.get_extra_state:
            yield f"{prefix}{_EXTRA_STATE_KEY_SUFFIX}", _EXTRA_STATE()

    yield from walk(model, "")


# -- options --------------------------------------------------------------------------------------------------------------------


def _fsdp_parts(model: Module, options: StateDictOptions) -> tuple[list[Module], Callable]:
    """The modules that FSDP's class wraps, and a context in which they give the state dict that is wanted."""
    modules = [module for module in model.modules() if _is_fsdp(module)]
    if not modules:
        return [], contextlib.nullcontext
    from .. import fsdp  # noqa: PLC0415 - only for those who use it

    if options.full_state_dict:
        alone = options.cpu_offload
        kind = fsdp.StateDictType.FULL_STATE_DICT
        config: Any = fsdp.FullStateDictConfig(offload_to_cpu=options.cpu_offload, rank0_only=alone)
        optim_config: Any = fsdp.FullOptimStateDictConfig(
            offload_to_cpu=options.cpu_offload, rank0_only=alone or options.broadcast_from_rank0
        )
    else:
        kind = fsdp.StateDictType.SHARDED_STATE_DICT
        config = fsdp.ShardedStateDictConfig(offload_to_cpu=options.cpu_offload)
        optim_config = fsdp.ShardedOptimStateDictConfig(offload_to_cpu=options.cpu_offload)

    @contextlib.contextmanager
    def context() -> Generator:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="FSDP.state_dict_type", category=FutureWarning)
            with fsdp.FullyShardedDataParallel.state_dict_type(model, kind, config, optim_config):
                yield

    return modules, context


def _verify_options(
    model: Module,
    optims: tuple[Optimizer, ...],
    optim_only: bool,
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> _StateDictInfo:
    if submodules:
        warnings.warn(
            "Getting submodules only model/optim state_dict is deprecated and will be removed in 2.5. This feature can be"
            " achieved by manually filtering out the state_dict returned from get_state_dict.",
            FutureWarning,
            stacklevel=3,
        )
    if optim_only and not optims:
        raise RuntimeError("Optimizers are not passed in but optim_only is set to True.")
    options = options or StateDictOptions()
    if options.broadcast_from_rank0 and not options.full_state_dict:
        raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
    names: dict[Any, Any] = {}
    shared: dict[Any, Any] = {}
    for name, value in _iterate_valid_model_state(model):
        if isinstance(value, _EXTRA_STATE):
            continue
        fqns = _get_fqns(model, name)
        if value in names:
            names[value].update(fqns)
            shared[value] = names[value]
        else:
            names[value] = set(fqns)
        names.update(dict.fromkeys(fqns, value))
    for value, fqns in list(shared.items()):
        shared.update(dict.fromkeys(fqns, value))
    prefixes = {
        f"{_only(_get_fqns(model, name), name)}."
        for name, module in model.named_modules()
        if submodules and module in submodules
    }
    fsdp_modules, fsdp_context = _fsdp_parts(model, options)
    return _StateDictInfo(
        **asdict(options),
        fqn_param_mapping=names,
        shared_params_mapping=shared,
        submodule_prefixes=prefixes,
        fsdp_context=fsdp_context,
        fsdp_modules=fsdp_modules,
        handle_model=not optim_only,
        handle_optim=len(optims) > 0,
    )


def _verify_state_dict(model_state_dict: dict[str, Any], optim_state_dict: Any, info: _StateDictInfo) -> None:
    elsewhere = info.broadcast_from_rank0 or (info.cpu_offload and info.full_state_dict)
    may_be_empty = info.submodule_prefixes or info.ignore_frozen_params or not info.strict
    if info.handle_model and not model_state_dict and not may_be_empty and not elsewhere:
        raise RuntimeError(
            "The option indicates that model state_dict is required to save or load, but model state_dict is empty."
            f"rank = dist.get_rank()={groups.get_rank() if groups.is_initialized() else 0}."
        )
    if info.handle_optim and not optim_state_dict and not elsewhere:
        raise RuntimeError(
            "The option indicates that model state_dict is required to save, or load but optim state_dict is empty."
            f" {optim_state_dict}"
        )
    for key in model_state_dict:
        if _FLAT_PARAM in key:
            raise RuntimeError(f"{key} contains {_FLAT_PARAM}. This can happen if the model is not the root module.")


def _state_dict_fn(obj: Any, api: str) -> Callable:
    """The method itself, also where `_patch_model_state_dict` has put another in its place."""
    method = getattr(obj, api)
    return functools.partial(getattr(type(obj), api), obj) if method in _patched_state_dict else method


def _maybe_full_or_cpu_state_dict(state_dict: dict[str, Any], info: _StateDictInfo) -> dict[str, Any]:
    if info.full_state_dict:
        ranks = (0,) if info.cpu_offload and groups.is_initialized() else ()
        return _gather_state_dict(state_dict, cpu_offload=info.cpu_offload, ranks_only=ranks)
    return _offload_state_dict_to_cpu(state_dict) if info.cpu_offload else state_dict


# -- models ---------------------------------------------------------------------------------------------------------------------


@no_grad()
def _get_model_state_dict(model: Module, info: _StateDictInfo) -> dict[str, Any]:
    if not info.handle_model:
        return {}
    with info.fsdp_context():
        state = _state_dict_fn(model, "state_dict")()
    for key in list(state):
        fqn = _only(_get_fqns(model, key), key)
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


def _common_device(tensors: Iterable[Any]) -> tuple[Device, bool]:
    """The device that all tensors with dimensions are on, and whether some are on meta."""
    found = {t.device for t in tensors if isinstance(t, Tensor) and t.dim() > 0}
    meta = Device("meta") in found
    found.discard(Device("meta"))
    if len(found) > 1:
        raise ValueError("Multiple devices found")
    return found.pop() if found else groups._get_pg_default_device(), meta


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


# -- optimizers -----------------------------------------------------------------------------------------------------------------


def _init_optim_state(optim: Optimizer) -> None:
    """Let an optimizer make its state: one step with gradients and a learning rate of zero."""
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
    """{"state": {name: {key: value}}, "param_groups": [...]} as {"state.name.key": value, "param_groups.name.key": value}."""
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
    """What lies under a prefix of a flat dictionary, as a nested one."""
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
        own = _fsdp_optim_state(model, optim, own, info) if info.fsdp_modules else _named(model, optim, own)
        if own:
            whole[_STATE].update(own[_STATE])
            whole[_PG].extend(own[_PG])
    if info.flatten_optimizer_state_dict:
        whole = _flatten_optim_state_dict(whole)
    return _maybe_full_or_cpu_state_dict(whole, info)


def _named(model: Module, optim: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """The optimizer's state under the names of parameters in place of their numbers."""
    numbers = {p: i for i, p in enumerate(p for group in optim.param_groups for p in group[_PARAMS])}
    names = {
        numbers[parameter]: _only(_get_fqns(model, key), key)
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
    from .. import fsdp  # noqa: PLC0415 - only for those who use it

    with info.fsdp_context():
        return fsdp.FullyShardedDataParallel.optim_state_dict(model, optim, state_dict)


def _split_optim_state_dict(
    model: Module, optim: Optimizer, optim_state_dict: dict[str, Any], info: _StateDictInfo
) -> dict[str, Any]:
    """The part of a state dict of several optimizers that belongs to one."""
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
            from .. import fsdp  # noqa: PLC0415 - only for those who use it

            with info.fsdp_context():
                own = fsdp.FullyShardedDataParallel.optim_state_dict_to_load(model, optim, own)
        elif info.full_state_dict:
            own = _spread_optim_state(model, optim, own, info)
        _state_dict_fn(optim, "load_state_dict")(own)


def _spread_optim_state(model: Module, optim: Optimizer, given: dict[str, Any], info: _StateDictInfo) -> dict[str, Any]:
    """Whole tensors (rank 0's, if it sends them) spread as the optimizer's own are."""
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


# -- the functions --------------------------------------------------------------------------------------------------------------


def _as_tuple(optimizers: Optimizer | Iterable[Optimizer]) -> tuple[Optimizer, ...]:
    return (optimizers,) if isinstance(optimizers, Optimizer) else tuple(optimizers)


def get_model_state_dict(
    model: Module, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The model's state, under the names that it would have without wrappers."""
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
    """The state of the optimizers of a model, together, under the names of the parameters."""
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
    """(the model's state, the optimizers' state), under names without wrappers: a checkpoint of them can be loaded however the model
    is wrapped and spread then."""
    chosen = _as_tuple(optimizers)
    info = _verify_options(model, chosen, optim_only=False, submodules=submodules, options=options)
    state, optim_state = _get_model_state_dict(model, info), _get_optim_state_dict(model, chosen, info)
    _verify_state_dict(state, optim_state, info)
    return state, optim_state


def _unflatten_model_state_dict(model: Module, state_dict: Any) -> dict[str, Any]:
    """State dicts of submodules, by submodule, as one of the model."""
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
                prefix = f"{_only(_get_fqns(model, name), name)}."
                whole.update({prefix + key: value for key, value in state.items()})
    return whole


def set_model_state_dict(model: Module, model_state_dict: Any, *, options: StateDictOptions | None = None) -> Any:
    """Load a state that `get_model_state_dict` has given; returns the missing and the unexpected keys."""
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
    """Load a state that `get_optimizer_state_dict` has given."""
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
    """Load the states that `get_state_dict` has given; returns the model's missing and unexpected keys."""
    state = _unflatten_model_state_dict(model, model_state_dict)
    chosen = _as_tuple(optimizers)
    sent = options is not None and options.broadcast_from_rank0  # other ranks than 0 have nothing yet
    info = _verify_options(model, chosen, optim_only=not state and not sent, options=options)
    _verify_state_dict(state, optim_state_dict, info)
    _load_optim_state_dict(model, chosen, optim_state_dict, info)
    return _load_model_state_dict(model, state, info)


def _patch_model_state_dict(model: Module, *, options: StateDictOptions | None = None) -> None:
    """From now on model.state_dict() and load_state_dict() are these functions."""
    fresh = functools.partial(get_model_state_dict, model=model, options=options)
    model.state_dict = lambda: fresh()  # type: ignore[method-assign, misc, assignment]
    loads = functools.partial(set_model_state_dict, model=model, options=options)
    model.load_state_dict = lambda state_dict: loads(model_state_dict=state_dict)  # type: ignore
    _patched_state_dict.update((model.state_dict, model.load_state_dict))


def _patch_optimizer_state_dict(model: Module, *, optimizers: Any, options: StateDictOptions | None = None) -> None:
    """From now on the optimizers' state_dict() and load_state_dict() are these functions."""
    chosen = _as_tuple(optimizers)
    for optim in chosen:
        optim.state_dict = lambda: get_optimizer_state_dict(model, chosen, options=options)  # type: ignore
        optim.load_state_dict = lambda state_dict: set_optimizer_state_dict(  # type: ignore
            model, chosen, state_dict, options=options
        )
        _patched_state_dict.update((optim.state_dict, optim.load_state_dict))
