"""Helpers of DistributedDataParallel that other libraries use, too."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..core.tensor import Tensor
from ..nn.utils.rnn import PackedSequence
from .process_group import ProcessGroup
from .replicas import _broadcast_coalesced, _verify_params_across_processes

__all__: list[str] = []


def _verify_param_shape_across_processes(
    process_group: ProcessGroup, tensors: Sequence[Tensor], logger: Any = None
) -> None:
    _verify_params_across_processes(process_group, tensors, logger)


def _sync_module_states(
    module: Any,
    process_group: ProcessGroup,
    broadcast_bucket_size: int,
    src: int,
    params_and_buffers_to_ignore: Iterable[str],
    broadcast_buffers: bool = True,
) -> None:
    """Broadcast parameters and buffers of rank `src`."""
    ignored = set(params_and_buffers_to_ignore)
    states = [p.detach() for name, p in module.named_parameters() if name not in ignored]
    if broadcast_buffers:
        states += [b.detach() for name, b in module.named_buffers() if name not in ignored]
    _sync_params_and_buffers(process_group, states, broadcast_bucket_size, src)


def _sync_params_and_buffers(
    process_group: ProcessGroup, module_states: Sequence[Tensor], broadcast_bucket_size: int, src: int
) -> None:
    if module_states:
        _broadcast_coalesced(process_group, module_states, broadcast_bucket_size, src)


def _to_kwargs(inputs: Any, kwargs: Any, target_device: Any, use_side_stream_for_tensor_copies: bool = False) -> tuple:
    """Move inputs to the target device, as DistributedDataParallel passes them to its module."""

    def moved(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(target_device)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(moved(v) for v in value))
        if isinstance(value, (tuple, list)):
            return type(value)(moved(v) for v in value)
        if isinstance(value, dict):
            return type(value)((k, moved(v)) for k, v in value.items())
        return value

    return [moved(inputs)], [moved(kwargs)]


def _free_storage(tensor: Tensor) -> None:
    tensor.untyped_storage().resize_(0)


def _get_root_modules(modules: list[Any]) -> list[Any]:
    """Return the modules that are not inside another of the given ones."""
    inside = {id(child) for module in modules for child in module.modules() if child is not module}
    return [module for module in modules if id(module) not in inside]


def _apply_to_tensors(function: Callable[[Tensor], Any], container: Any) -> Any:
    """Return the container with function(tensor) in the place of each tensor, also in dataclasses and packed sequences."""
    if isinstance(container, Tensor):
        return function(container)
    if dataclasses.is_dataclass(container) and not isinstance(container, type):
        fields = dataclasses.fields(container)
        changes = {f.name: _apply_to_tensors(function, getattr(container, f.name)) for f in fields if f.init}
        return dataclasses.replace(container, **changes)
    if isinstance(container, PackedSequence):
        _apply_to_tensors(function, container.data)
        return container
    if isinstance(container, OrderedDict):
        return type(container)((k, _apply_to_tensors(function, v)) for k, v in container.items())
    if isinstance(container, dict):
        return {k: _apply_to_tensors(function, v) for k, v in container.items()}
    if isinstance(container, tuple) and hasattr(container, "_fields"):
        return type(container)(*(_apply_to_tensors(function, v) for v in container))
    if isinstance(container, (list, tuple, set)):
        return type(container)(_apply_to_tensors(function, v) for v in container)
    return container


def _find_tensors(value: Any) -> list[Tensor]:
    """Return all tensors in the result of a forward function."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in _find_tensors(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in _find_tensors(item)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [t for field in dataclasses.fields(value) for t in _find_tensors(getattr(value, field.name))]
    return []
