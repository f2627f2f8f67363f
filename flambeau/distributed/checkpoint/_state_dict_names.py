"""Names of a model's state without the prefixes of wrappers, and options of a state dict."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from ...nn import Module
from ...nn.modules.module import _EXTRA_STATE_KEY_SUFFIX
from ...nn.parallel import DistributedDataParallel
from ...optim import Optimizer
from .. import fsdp, groups
from .._state_dict_utils import _gather_state_dict, _offload_state_dict_to_cpu

FQNS_T = set[str]
_FLAT_PARAM = "_flat_param"
_CHECKPOINT_PREFIX = "_checkpoint_wrapped_module."
_FSDP_WRAPPED = "_fsdp_wrapped_module"
_patched_state_dict: set[Callable] = set()


@dataclass
class StateDictOptions:
    """Options: `full_state_dict`: whole tensors, gathered from all ranks. `cpu_offload`: in host memory; together with the former only rank
    0 gets them. `ignore_frozen_params`: omit parameters without gradient. `strict`: as in `load_state_dict`. `broadcast_from_rank0`: rank 0
    has whole tensors and sends every rank its parts. `flatten_optimizer_state_dict`: one key for each value, so that parts of several
    optimizers can be combined."""

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
    """Marker of the result of a module's `get_extra_state`."""


def _get_fqns(
    model: Module,
    name: str,
    dsd_fqn_modifiers: str = "_fqn_modifiers",
    skip_ddp_prefix: bool = True,
    skip_compiler_prefix: bool = True,
) -> FQNS_T:
    """Return the names that a parameter would have without wrappers: one, or several for a flat parameter of FSDP."""
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


def _single_name(names: FQNS_T, key: str) -> str:
    if len(names) != 1:
        raise AssertionError(f"Expected 1 FQN for key '{key}', got {len(names)}: {names}")
    return next(iter(names))


def _iterate_valid_model_state(model: Module, dsd_fqn_modifiers: str = "_fqn_modifiers") -> Generator:
    """Yield (name, parameter, buffer or extra state) of everything in the model's state dict."""
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
    """Return the modules wrapped by FSDP, and a context in which they produce the kind of state dict that the options ask for."""
    modules = [module for module in model.modules() if _is_fsdp(module)]
    if not modules:
        return [], contextlib.nullcontext

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
        f"{_single_name(_get_fqns(model, name), name)}."
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
    """Return the original method, even if `_patch_model_state_dict` has replaced it."""
    method = getattr(obj, api)
    return functools.partial(getattr(type(obj), api), obj) if method in _patched_state_dict else method


def _maybe_full_or_cpu_state_dict(state_dict: dict[str, Any], info: _StateDictInfo) -> dict[str, Any]:
    if info.full_state_dict:
        ranks = (0,) if info.cpu_offload and groups.is_initialized() else ()
        return _gather_state_dict(state_dict, cpu_offload=info.cpu_offload, ranks_only=ranks)
    return _offload_state_dict_to_cpu(state_dict) if info.cpu_offload else state_dict
