"""`ShardedTensor` and its constructors: `zeros(spec, 10, 20)`, `init_from_local_shards(shards, 10, 20)`, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..metadata import ShardMetadata
from .api import _CUSTOM_OPERATORS, Shard, ShardedTensor, ShardedTensorMetadata, TensorProperties

__all__ = [
    "Shard", "ShardMetadata", "ShardedTensor", "ShardedTensorMetadata", "TensorProperties", "custom_sharded_op_impl", "empty",
    "full", "init_from_local_shards", "ones", "pre_load_state_dict_hook", "rand", "randn", "state_dict_hook", "zeros",
]  # fmt: skip


def _make_filled(spec: Any, size: tuple, options: dict[str, Any], fill: Callable[[Any], Any]) -> ShardedTensor:
    wanted = options.pop("requires_grad", False)
    made = ShardedTensor(spec, *size, **options)
    for shard in made.local_shards():
        fill(shard.tensor)
        shard.tensor.requires_grad_(wanted)
    if wanted:
        made._metadata.tensor_properties.requires_grad = made.requires_grad = True
    return made


def empty(sharding_spec: Any, *size: Any, **options: Any) -> ShardedTensor:
    """Make a ShardedTensor of uninitialized memory."""
    return ShardedTensor(sharding_spec, *size, **options)


def full(sharding_spec: Any, size: Any, fill_value: Any, **options: Any) -> ShardedTensor:
    """Make a ShardedTensor filled with one value."""
    return _make_filled(sharding_spec, (size,), options, lambda t: t.fill_(fill_value))


def ones(sharding_spec: Any, *size: Any, **options: Any) -> ShardedTensor:
    """Make a ShardedTensor of ones."""
    return _make_filled(sharding_spec, size, options, lambda t: t.fill_(1))


def zeros(sharding_spec: Any, *size: Any, **options: Any) -> ShardedTensor:
    """Make a ShardedTensor of zeros."""
    return _make_filled(sharding_spec, size, options, lambda t: t.fill_(0))


def rand(sharding_spec: Any, *size: Any, **options: Any) -> ShardedTensor:
    """Make a ShardedTensor of random numbers between 0 and 1."""
    return _make_filled(sharding_spec, size, options, lambda t: t.uniform_(0, 1))


def randn(sharding_spec: Any, *size: Any, **options: Any) -> ShardedTensor:
    """Make a ShardedTensor of random numbers of a normal distribution."""
    return _make_filled(sharding_spec, size, options, lambda t: t.normal_(0, 1))


def init_from_local_shards(
    local_shards: list[Shard], *global_size: Any, process_group: Any = None, init_rrefs: bool = False
) -> ShardedTensor:
    """Make a ShardedTensor from the shards that each rank has; all ranks must call it."""
    return ShardedTensor._init_from_local_shards(
        local_shards, *global_size, process_group=process_group, init_rrefs=init_rrefs
    )


def state_dict_hook(module: Any, destination: dict, prefix: str, local_metadata: Any) -> None:
    """Add ShardedTensors that are attributes of modules to the state; for `_register_state_dict_hook`."""
    for name, submodule in module.named_modules():
        for attribute, value in submodule.__dict__.items():
            if isinstance(value, ShardedTensor):
                destination[f"{prefix}{name}{'.' if prefix + name else ''}{attribute}"] = value


def pre_load_state_dict_hook(module: Any, state_dict: dict, prefix: str, *others: Any) -> None:
    """Set ShardedTensors of the state as attributes; for `_register_load_state_dict_pre_hook`."""
    for name, submodule in module.named_modules():
        for attribute in list(submodule.__dict__):
            value = state_dict.get(f"{prefix}{name}{'.' if prefix + name else ''}{attribute}")
            if isinstance(value, ShardedTensor):
                setattr(submodule, attribute, value)


def custom_sharded_op_impl(func: Any) -> Callable[[Callable], Callable]:
    """Return a decorator that registers implementation(types, args, kwargs, process_group) as `func` of ShardedTensors."""

    def note(implementation: Callable) -> Callable:
        _CUSTOM_OPERATORS[func.__name__] = implementation
        return implementation

    return note
