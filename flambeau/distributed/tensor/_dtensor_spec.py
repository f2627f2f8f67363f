"""What is known of a spread tensor besides its values: shape of the whole, mesh, and how it lies on the mesh's dimensions."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...core.size import Size, make_size
from .placement_types import Partial, Placement, Replicate, Shard, _is_shard_like


class TensorMeta(NamedTuple):
    """Shape, strides and dtype of the whole tensor."""

    shape: Size
    stride: tuple[int, ...]
    dtype: Any


@dataclass(eq=False)
class DTensorSpec:
    """Where a tensor lies: one placement for each dimension of the mesh."""

    mesh: Any
    placements: tuple[Placement, ...]
    tensor_meta: TensorMeta | None = None

    def __post_init__(self) -> None:
        self.placements = tuple(self.placements)

    @functools.cached_property
    def key(self) -> tuple:
        """What makes two of them equal."""
        return (self.mesh, self.placements, self.tensor_meta)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DTensorSpec) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __getstate__(self) -> dict[str, Any]:
        return {"mesh": self.mesh, "placements": self.placements, "tensor_meta": self.tensor_meta}

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
        """For each dimension of the tensor the dimension of the mesh that cuts it, -1 for none."""
        found = [-1] * self.ndim
        for i, placement in enumerate(self.placements):
            if isinstance(placement, Shard):
                if found[placement.dim] >= 0:
                    raise ValueError(
                        f"Can't shard the same tensor dim twice: dim {placement.dim} is cut by mesh dims"
                        f" {found[placement.dim]} and {i}"
                    )
                found[placement.dim] = i
        return found

    @property
    def num_shards_map(self) -> list[int]:
        """For each dimension of the tensor, into how many parts it is cut."""
        found = [1] * self.ndim
        for i, placement in enumerate(self.placements):
            if _is_shard_like(placement):
                found[placement.dim] *= self.mesh.size(i)  # type: ignore[attr-defined]
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
                if placements[i].is_shard():
                    raise RuntimeError(
                        f"DeviceMesh dimension cann't be mapped to two dimension of the same tensor: {placements[i].dim} and {dim}"  # type: ignore[attr-defined]
                    )
                if placements[i].is_partial():
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
        """The same tensor, lying otherwise."""
        return self if placements == self.placements else DTensorSpec(self.mesh, placements, self.tensor_meta)

    def __str__(self) -> str:
        placements = "".join(map(str, self.placements)) if len(self.placements) == 1 else str(self.placements)
        shape = "unknown shape" if self.tensor_meta is None else str(tuple(self.shape))
        return f"Spec({placements} on {shape})"


def meta_of(shape: Any, strides: Any, dtype: Any) -> TensorMeta:
    return TensorMeta(make_size(tuple(shape)), tuple(strides), dtype)
