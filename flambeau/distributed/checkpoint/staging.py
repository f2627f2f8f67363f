"""Staging: copies of a state dict that a background save can read while training continues."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ...core.device import device as Device
from ...core.tensor import Tensor
from .._shard.sharded_tensor import ShardedTensor
from ..tensor import DTensor

__all__ = ["AsyncStager", "BlockingAsyncStager", "DefaultStager", "ReplicationStager", "StagingOptions"]


@runtime_checkable
class AsyncStager(Protocol):
    """Protocol: `stage` copies a state dict, at once or in a future; `synchronize_staging` waits until it may be changed again."""

    _synchronize_after_execute: bool = True

    @property
    def should_synchronize_after_execute(self) -> bool:
        return self._synchronize_after_execute

    def stage(self, state_dict: dict[str, Any]) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must implement stage method")

    def synchronize_staging(self) -> None:
        pass

    def close(self) -> None:
        pass


def copied(value: Any, held: Any = None, pin: bool = False) -> Any:
    """Return a copy in host memory; tensors are copied into those of `held` if they fit."""
    if isinstance(value, DTensor):
        local = copied(value.to_local(), None if held is None else held.to_local(), pin)
        return DTensor.from_local(
            local, value.device_mesh, value.placements, run_check=False, shape=value.shape, stride=value.stride()
        )
    if isinstance(value, ShardedTensor):
        return value._map_shards(lambda t: copied(t, pin=pin), Device("cpu"))
    if isinstance(value, Tensor):
        fits = isinstance(held, Tensor) and held.shape == value.shape and held.dtype is value.dtype
        if not fits:
            held = value.detach().new_empty(value.shape, device="cpu")
            held = held.pin_memory() if pin and value.device.type == "cuda" else held
        held.copy_(value.detach())
        return held
    if isinstance(value, Mapping):
        return {k: copied(v, held.get(k) if isinstance(held, Mapping) else None, pin) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        olds = held if isinstance(held, (list, tuple)) and len(held) == len(value) else [None] * len(value)
        return type(value)(copied(v, old, pin) for v, old in zip(value, olds, strict=True))
    return copy.deepcopy(value)


@dataclass
class StagingOptions:
    """Options of DefaultStager's copies."""

    use_pinned_memory: bool = True
    use_shared_memory: bool = True
    use_async_staging: bool = True
    use_non_blocking_copy: bool = True


class DefaultStager(AsyncStager):
    """Stager that copies at once, or with `use_async_staging` in a thread."""

    def __init__(self, config: StagingOptions | None = None) -> None:
        self._config = config or StagingOptions()
        self._thread = ThreadPoolExecutor(1, "staging") if self._config.use_async_staging else None
        self._staged_copy: Any = None
        self._staging: Future | None = None

    def stage(self, state_dict: dict[str, Any], **kwargs: Any) -> Any:
        if self._thread is None:
            return self._copy(state_dict)
        self._staging = self._thread.submit(self._copy, state_dict)
        return self._staging

    def _copy(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        self._staged_copy = copied(state_dict, self._staged_copy, self._config.use_pinned_memory)
        return self._staged_copy

    def synchronize_staging(self) -> None:
        if self._staging is not None:
            self._staging.result()

    def close(self) -> None:
        """Release the memory and the thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)
        self._staged_copy = None


class BlockingAsyncStager(AsyncStager):
    """Stager that copies at once; with `cache_staged_state_dict` always into the same memory."""

    _synchronize_after_execute: bool = False

    def __init__(self, cache_staged_state_dict: bool = False, type_check: bool = False) -> None:
        self.cache_staged_state_dict, self.type_check = cache_staged_state_dict, type_check
        self.state_dict_cache: Any = None

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        staged = copied(state_dict, self.state_dict_cache)
        if self.cache_staged_state_dict:
            self.state_dict_cache = staged
        return staged

    def synchronize_staging(self) -> None:
        pass

    def close(self) -> None:
        self.state_dict_cache = None


def ReplicationStager(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("ReplicationStager (a copy on another rank) is not in Flambeau")
