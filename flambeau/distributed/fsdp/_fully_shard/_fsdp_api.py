"""Options of `fully_shard`: precision, offloading, and custom communication."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....core.dtype import dtype
from ....core.tensor import Tensor


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Dtypes in which a sharded module computes, while its parameters keep theirs.

    param_dtype: parameters are gathered and used in this dtype. reduce_dtype: gradients are reduced in it (default: as they are computed).
    output_dtype: floating point outputs are cast to it. cast_forward_inputs: floating point inputs are cast to param_dtype."""

    param_dtype: dtype | None = None
    reduce_dtype: dtype | None = None
    output_dtype: dtype | None = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Policy for shards between uses: they stay on the device they are used on."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Keep shards of parameters and gradients in host memory (pinned or not), where the optimizer also runs."""

    pin_memory: bool = True


class Comm(ABC):
    """Interface of a custom communication: it allocates the buffers and runs the collective."""

    @abstractmethod
    def allocate(self, size: Sequence[int], *, dtype: dtype, device: Any) -> Tensor:
        """Allocate a buffer for the collective."""


class AllGather(Comm):
    """Interface of a custom `all_gather_into_tensor`."""

    @abstractmethod
    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> Any: ...


class ReduceScatter(Comm):
    """Interface of a custom `reduce_scatter_tensor`."""

    @abstractmethod
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> Any: ...


@dataclass
class DataParallelMeshDims:
    """Dimensions of a mesh for data parallelism: parameters are sharded along `shard` (names), replicated along `replicate`."""

    shard: str | tuple[str, ...] | None = None
    replicate: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.shard is None and self.replicate is None:
            raise ValueError("At least one of shard or replicate must be set in DataParallelMeshDims")

    @property
    def shard_names(self) -> tuple[str, ...]:
        return _as_tuple(self.shard)

    @property
    def replicate_names(self) -> tuple[str, ...]:
        return _as_tuple(self.replicate)


def _as_tuple(names: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)
