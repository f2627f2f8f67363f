"""Specification of a DTensor: mesh, placements, and shape, strides and dtype of the whole."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...core.size import Size, make_size
from . import _shard_order
from ._shard_order import ShardOrder as ShardOrder
from ._shard_order import ShardOrderEntry as ShardOrderEntry
from .placement_types import Partial, Placement, Replicate, Shard, _is_shard_like, _StridedShard


class TensorMeta(NamedTuple):
    """Shape, strides and dtype of the whole tensor."""

    shape: Size
    stride: tuple[int, ...]
    dtype: Any


class DTensorSpec:
    """Layout of a DTensor: one placement for each dimension of the mesh. `shard_order` is the order in which several of them shard one
    dimension of the tensor, if it is not from the first to the last; `use_strided_shard_as_shard_order` says whether _StridedShard
    placements stand for such an order (else they came from a view)."""

    def __init__(
        self,
        mesh: Any,
        placements: Sequence[Placement],
        tensor_meta: TensorMeta | None = None,
        shard_order: ShardOrder | None = None,
        use_strided_shard_as_shard_order: bool | None = None,
    ) -> None:
        self.mesh, self.placements, self.tensor_meta = mesh, tuple(placements), tensor_meta
        self._order: ShardOrder | None = None
        self._says_order = use_strided_shard_as_shard_order
        if shard_order is not None:
            if self.use_strided_shard_as_shard_order:
                raise ValueError(
                    "DTensorSpec doesn't allow specify shard_order when use_strided_shard_as_shard_order is True. This may result in"
                    " conflicting shard order."
                )
            self.shard_order = shard_order

    def __post_init__(self) -> None:
        """Clear everything that was cached, after a change."""
        self.placements = tuple(self.placements)
        self.__dict__.pop("key", None)

    @property
    def use_strided_shard_as_shard_order(self) -> bool:
        said = self._says_order
        return any(isinstance(p, _StridedShard) for p in self.placements) if said is None else said

    @use_strided_shard_as_shard_order.setter
    def use_strided_shard_as_shard_order(self, value: bool) -> None:
        self._says_order = value

    @property
    def shard_order(self) -> ShardOrder | None:
        if self._order is None and not self.use_strided_shard_as_shard_order:
            return _shard_order.default_order(self.placements)
        return self._order

    @shard_order.setter
    def shard_order(self, order: ShardOrder | None) -> None:
        if order is not None:
            _shard_order.check(order, self.placements)
            order = None if order == _shard_order.default_order(self.placements) else order
        self._order = order
        self.__dict__.pop("key", None)

    @property
    def cuts(self) -> tuple[Placement, ...]:
        """Placements that encode their order (with _StridedShard)."""
        if self._order is None:
            return self.placements
        return _shard_order.strided(self._order, self.placements, self.mesh)

    compute_default_shard_order = staticmethod(_shard_order.default_order)
    is_default_device_order = staticmethod(_shard_order.is_default)
    _convert_shard_order_to_StridedShard = staticmethod(_shard_order.strided)
    _maybe_convert_StridedShard_to_shard_order = staticmethod(_shard_order.order_of)

    @staticmethod
    def format_shard_order_str(placements: tuple[Placement, ...], shard_order: ShardOrder | None = None) -> str:
        """Return placements as short text, with numbers where several dimensions of the mesh shard one of the tensor."""
        return _shard_order.written(placements, shard_order)

    @functools.cached_property
    def key(self) -> tuple:
        """Key by which two specifications are compared."""
        return (self.mesh, self.placements, self.tensor_meta, self._order)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DTensorSpec) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "key"}

    def __repr__(self) -> str:
        return (
            f"DTensorSpec(mesh={self.mesh!r}, placements={self.placements!r}, tensor_meta={self.tensor_meta!r},"
            f" shard_order={self.shard_order!r},"
            f" use_strided_shard_as_shard_order={self.use_strided_shard_as_shard_order!r})"
        )

    def _known(self) -> TensorMeta:
        if self.tensor_meta is None:
            raise ValueError("tensor_meta is not set")
        return self.tensor_meta

    @property
    def device_mesh(self) -> Any:
        return self.mesh

    @property
    def shape(self) -> Size:
        return self._known().shape

    @property
    def stride(self) -> tuple[int, ...]:
        return self._known().stride

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def num_shards(self) -> int:
        count = 1
        for i, placement in enumerate(self.placements):
            count *= self.mesh.size(i) if _is_shard_like(placement) else 1
        return count

    @property
    def dim_map(self) -> list[int]:
        """The mesh dimension that shards each dimension of the tensor, -1 for none."""
        found = [-1] * self.ndim
        for i, placement in enumerate(self.placements):
            if _is_shard_like(placement):
                dim = placement.dim
                if found[dim] >= 0:
                    raise ValueError(
                        f"Tensor dim {dim} is already sharded on mesh dim {found[dim]}, DTensor operator implementation does not"
                        " support things like hybrid sharding strategies yet (i.e. [Shard(0), Shard(0)])"
                    )
                found[dim] = i
        return found

    @property
    def num_shards_map(self) -> list[int]:
        """The number of parts into which each dimension of the tensor is sharded."""
        found = [1] * self.ndim
        for i, placement in enumerate(self.placements):
            if _is_shard_like(placement):
                found[placement.dim] *= self.mesh.size(i)
        return found

    @property
    def sums(self) -> list[int]:
        """The dimensions of the mesh over which values have yet to be reduced."""
        return [i for i, placement in enumerate(self.placements) if placement.is_partial()]

    @classmethod
    def from_dim_map(
        cls, mesh: Any, dim_map: list[int], sums: list[int], tensor_meta: TensorMeta | None = None
    ) -> DTensorSpec:
        placements: list[Placement] = [Replicate() for _ in range(mesh.ndim)]
        for i in sums:
            placements[i] = Partial()
        for dim, i in enumerate(dim_map):
            if i >= 0:
                before = placements[i]
                if isinstance(before, Shard):
                    raise RuntimeError(
                        f"DeviceMesh dimension cann't be mapped to two dimension of the same tensor: {before.dim} and {dim}"
                    )
                if before.is_partial():
                    raise RuntimeError(f"DeviceMesh dimension {i} cannot be both shard and partial!")
                placements[i] = Shard(dim)
        return cls(mesh, tuple(placements), tensor_meta)

    def is_replicated(self) -> bool:
        return all(placement.is_replicate() for placement in self.placements)

    def is_sharded(self) -> bool:
        return any(_is_shard_like(placement) for placement in self.placements)

    def shallow_copy_with_tensor_meta(self, tensor_meta: TensorMeta | None) -> DTensorSpec:
        return DTensorSpec(self.mesh, self.placements, tensor_meta)

    def with_placements(self, placements: tuple[Placement, ...]) -> DTensorSpec:
        """Return the specification with other placements."""
        if placements == self.placements and self._order is None:
            return self
        return DTensorSpec(self.mesh, placements, self.tensor_meta, None, False)

    def __str__(self) -> str:
        kind = "unknown dtypeunknown shape"
        if self.tensor_meta is not None:
            kind = f"{self.tensor_meta.dtype.short}{list(self.shape)}"
        return f"Spec({kind}({_shard_order.written(self.placements, self.shard_order)}))"


def meta_of(shape: Any, strides: Any, dtype: Any) -> TensorMeta:
    return TensorMeta(make_size(tuple(shape)), tuple(strides), dtype)
