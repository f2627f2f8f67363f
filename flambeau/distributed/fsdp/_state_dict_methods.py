"""Methods of FullyShardedDataParallel to save and load models and optimizers."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from ...nn import Module
from . import _optim_state
from ._common_utils import fsdp_units
from .api import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)

_CONFIGS: dict[StateDictType, tuple[type[Any], type[Any]]] = {
    StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
    StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
    StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig),
}


class StateDictMethods(Module):
    """The state-dict methods of FullyShardedDataParallel."""

    @staticmethod
    def set_state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> StateDictSettings:
        """Set the type of state dicts of the FSDP modules below a module; return the former settings."""
        kind, optimizer_kind = _CONFIGS[state_dict_type]
        config = kind() if state_dict_config is None else state_dict_config
        optim = optimizer_kind() if optim_state_dict_config is None else optim_state_dict_config
        if type(config) is not kind:
            raise RuntimeError(f"Expected state_dict_config of type {kind} but got {type(config)}")
        if type(optim) is not optimizer_kind:
            raise RuntimeError(f"Expected optim_state_dict_config of type {optimizer_kind} but got {type(optim)}")
        units = fsdp_units(module)
        before = (
            StateDictMethods.get_state_dict_type(module) if units else StateDictSettings(state_dict_type, config, optim)
        )
        for unit in units:
            unit._state_dict_type, unit._state_dict_config, unit._optim_state_dict_config = (
                state_dict_type,
                config,
                optim,
            )
        return before

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """Return the state-dict settings of the FSDP modules below a module."""
        found: StateDictSettings | None = None
        for unit in fsdp_units(module):
            here = StateDictSettings(unit._state_dict_type, unit._state_dict_config, unit._optim_state_dict_config)
            if found is not None and found != here:
                raise AssertionError(f"All FSDP modules must have the same state dict settings.Got {here} and {found}.")
            found = here
        if found is None:
            raise AssertionError("there is no FullyShardedDataParallel below this module")
        return found

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> Iterator[None]:
        """Context manager: set the state-dict type of the FSDP modules below a module, restore it on exit."""
        set_type = StateDictMethods.set_state_dict_type
        before = set_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            set_type(module, before.state_dict_type, before.state_dict_config, before.optim_state_dict_config)

    @staticmethod
    def optim_state_dict(
        model: Module, optim: Any, optim_state_dict: dict[Any, Any] | None = None, group: Any = None
    ) -> dict[str, Any]:
        """Return an optimizer's state keyed by names of parameters: whole, sharded or local, according to `set_state_dict_type`."""
        settings = StateDictMethods.get_state_dict_type(model)
        return _optim_state.optimizer_state(
            model, _optim_state.listed(model, optim), optim_state_dict or optim.state_dict(), settings
        )

    @staticmethod
    def optim_state_dict_to_load(
        model: Module, optim: Any, optim_state_dict: dict[Any, Any], is_named_optimizer: bool = False, load_directly: bool = False,
        group: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Convert the result of `optim_state_dict` to the form of `optim.load_state_dict`."""
        config = StateDictMethods.get_state_dict_type(model).optim_state_dict_config
        if getattr(config, "rank0_only", False):
            optim_state_dict = _optim_state.from_rank_0(optim_state_dict, group)
        elif "state" not in optim_state_dict:
            raise ValueError('`optim_state_dict` must have the keys "state"to be a valid optimizer state dict')
        result = _optim_state.optimizer_state_to_load(model, _optim_state.listed(model, optim), optim_state_dict)
        if load_directly:
            optim.load_state_dict(result)
        return result

    @staticmethod
    def full_optim_state_dict(
        model: Module, optim: Any, optim_input: Any = None, rank0_only: bool = True, group: Any = None
    ) -> dict[str, Any]:
        """Return the full state of an optimizer, by default on rank 0 only."""
        _params(model, optim, optim_input)
        settings = StateDictSettings(
            StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig(rank0_only=rank0_only)
        )
        return _optim_state.optimizer_state(model, _optim_state.listed(model, optim), optim.state_dict(), settings)

    @staticmethod
    def sharded_optim_state_dict(model: Module, optim: Any, group: Any = None) -> dict[str, Any]:
        """Return the state of an optimizer in shards."""
        settings = StateDictSettings(
            StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(), ShardedOptimStateDictConfig()
        )
        return _optim_state.optimizer_state(model, _optim_state.listed(model, optim), optim.state_dict(), settings)

    @staticmethod
    def shard_full_optim_state_dict(
        full_optim_state_dict: dict[Any, Any], model: Module, optim_input: Any = None, optim: Any = None
    ) -> dict[str, Any]:
        """Return this rank's part of a whole optimizer state."""
        return _optim_state.optimizer_state_to_load(model, _params(model, optim, optim_input), full_optim_state_dict)

    @staticmethod
    def flatten_sharded_optim_state_dict(sharded_optim_state_dict: dict[Any, Any], model: Module, optim: Any) -> dict[str, Any]:  # fmt: skip
        """Return this rank's part of an optimizer state in shards."""
        return _optim_state.optimizer_state_to_load(model, _optim_state.listed(model, optim), sharded_optim_state_dict)

    @staticmethod
    def scatter_full_optim_state_dict(
        full_optim_state_dict: dict[Any, Any] | None, model: Module, optim_input: Any = None, optim: Any = None,
        group: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return this rank's part of a whole optimizer state that rank 0 has."""
        return _optim_state.optimizer_state_to_load(
            model, _params(model, optim, optim_input), _optim_state.from_rank_0(full_optim_state_dict, group)
        )

    @staticmethod
    def rekey_optim_state_dict(
        optim_state_dict: dict[Any, Any], optim_state_key_type: OptimStateKeyType, model: Module, optim_input: Any = None, optim: Any = None
    ) -> dict[str, Any]:  # fmt: skip
        """Return the state keyed by names or by numbers of parameters (for a model that is not sharded)."""
        return _optim_state.with_keys(optim_state_dict, optim_state_key_type, model, _params(model, optim, optim_input))


def _params(model: Module, optim: Any, optim_input: Any) -> list[Any]:
    """Return the parameters of an optimizer, also if they are given by the former argument `optim_input`."""
    if optim_input is not None:
        warnings.warn(
            "The `optim_input` argument is deprecated and will be removed after PyTorch 1.13. You may remove it from your code without"
            " changing its functionality.",
            FutureWarning,
            stacklevel=3,
        )
    return _optim_state.listed(model, optim, optim_input)
