"""Placements of a tensor on the ranks of a mesh dimension: sharded, replicated, or partial values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard

import numpy as np

from ...core.tensor import Tensor
from ...ops import namespace
from .. import _functional_collectives as funcol

__all__ = ["Partial", "Placement", "Replicate", "Shard"]

_torch = namespace("torch")


class Placement:
    """Base of placements: how a tensor is distributed over the ranks of one mesh dimension."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Return whether the tensor is sharded (along this dimension)."""
        return type(self) is Shard and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Return whether each rank has the whole tensor."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Return whether the values of the ranks have yet to be reduced."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Placement of a tensor sharded along `dim`, as evenly as possible: the first ranks have larger parts, the last may have none."""

    dim: int

    def sizes(self, length: int, parts: int) -> list[int]:
        """Return the lengths of the parts of a dimension of this length."""
        return [self.local_shard_size_and_offset(length, parts, rank)[0] for rank in range(parts)]

    def indices(self, length: int, parts: int) -> list[np.ndarray]:
        """Return the indices of the dimension that each part holds."""
        whole = np.arange(length)
        offsets = [self.local_shard_size_and_offset(length, parts, rank) for rank in range(parts)]
        return [whole[start : start + size] for size, start in offsets]

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """Return the length of a rank's part and the index at which it begins."""
        size = -(-curr_local_size // num_chunks)
        start = min(size * rank, curr_local_size)
        return min(size, curr_local_size - start), start

    _local_shard_size_and_offset = local_shard_size_and_offset

    def _split_tensor(
        self, tensor: Tensor, num_chunks: int, *, with_padding: bool = True, contiguous: bool = True
    ) -> tuple[list[Tensor], list[int]]:
        """Return the parts of a tensor, padded to equal length with `with_padding`, and the padding of each."""
        if self.dim > tensor.ndim:
            raise AssertionError(f"Sharding dim {self.dim} greater than tensor ndim {tensor.ndim}")
        parts = self.parts_of(tensor, num_chunks)
        longest = parts[0].shape[self.dim]
        pads = [longest - part.shape[self.dim] for part in parts] if with_padding else []
        if with_padding:
            parts = [padded(part, self.dim, pad) for part, pad in zip(parts, pads)]
        return [part.contiguous() for part in parts] if contiguous else parts, pads

    def _select_split_tensor(
        self,
        tensor: Tensor,
        num_chunks: int,
        index: int,
        *,
        with_padding: bool = True,
        contiguous: bool = True,
        clone: bool = True,
    ) -> Tensor:
        """Return one part of a tensor, padded to the length of the longest with `with_padding`."""
        part = self.parts_of(tensor, num_chunks)[index]
        if with_padding:
            part = padded(part, self.dim, max(self.sizes(tensor.shape[self.dim], num_chunks)) - part.shape[self.dim])
        return part.clone() if clone else part.contiguous() if contiguous else part

    def _to_replicate_tensor(
        self, local_tensor: Tensor, mesh: Any, mesh_dim: int, current_logical_shape: Any, later: bool = False
    ) -> Tensor:
        """Gather the whole tensor from the ranks along a dimension of the mesh. With `later` the result need not be complete yet."""
        parts, length = mesh.size(mesh_dim), current_logical_shape[self.dim]
        longest = max(self.sizes(length, parts))
        filled = padded(local_tensor, self.dim, longest - local_tensor.shape[self.dim])
        if later and self == Shard(0) and longest * parts == length:
            return funcol.all_gather_tensor(filled, 0, (mesh, mesh_dim))
        gathered = funcol.all_gather_tensor(filled, self.dim, (mesh, mesh_dim), now=True)
        return self.whole_of(gathered, length, parts).contiguous()

    def _replicate_to_shard(self, local_tensor: Tensor, mesh: Any, mesh_dim: int, shard_index: int) -> Tensor:
        """Return this rank's shard of a tensor that every rank holds in full."""
        return self.part_of(local_tensor, mesh.size(mesh_dim), shard_index)

    def parts_of(self, tensor: Tensor, parts: int) -> list[Tensor]:
        """Split a whole tensor into the shards of all ranks."""
        places = [self.local_shard_size_and_offset(tensor.shape[self.dim], parts, rank) for rank in range(parts)]
        return [tensor.narrow(self.dim, start, size) for size, start in places]

    def part_of(self, tensor: Tensor, parts: int, rank: int) -> Tensor:
        """Return the shard of one rank as a copy."""
        size, start = self.local_shard_size_and_offset(tensor.shape[self.dim], parts, rank)
        return _own_copy(tensor.narrow(self.dim, start, size), tensor)

    def whole_of(self, gathered: Tensor, length: int, parts: int) -> Tensor:
        """Return the whole dimension from all parts, concatenated and each padded to the length of the longest."""
        sizes = self.sizes(length, parts)
        longest = max(sizes)
        if longest * parts == length:
            return gathered
        return gathered.narrow(self.dim, 0, length)  # only the last parts are shorter

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class _StridedShard(Placement):
    """Placement of a tensor sharded along `dim` after a later dimension of the mesh has split it into `split_factor` parts: each rank has a
    piece of each of those."""

    dim: int
    split_factor: int = 1

    def __init__(self, dim: int, *, split_factor: int) -> None:
        object.__setattr__(self, "dim", dim)
        object.__setattr__(self, "split_factor", split_factor)

    def indices(self, length: int, parts: int) -> list[np.ndarray]:
        """Return the indices of the dimension that each part holds."""
        return [self.indices_of(length, parts, rank) for rank in range(parts)]

    def indices_of(self, length: int, parts: int, rank: int) -> np.ndarray:
        """Return the indices in the part of one rank: the same share of each piece."""
        size = -(-length // self.split_factor)
        share = -(-size // parts)
        whole = length // size if size else 0  # pieces of full size; one that is shorter may follow
        inside = np.arange(min(share * rank, size), min(share * (rank + 1), size))
        found = (np.arange(whole)[:, None] * size + inside).reshape(-1)
        rest = length - whole * size
        if not rest:
            return found
        share = -(-rest // parts)
        return np.concatenate([found, whole * size + np.arange(min(share * rank, rest), min(share * (rank + 1), rest))])

    def sizes(self, length: int, parts: int) -> list[int]:
        """Return the lengths of the parts of a dimension of this length."""
        return [len(part) for part in self.indices(length, parts)]

    def parts_of(self, tensor: Tensor, parts: int) -> list[Tensor]:
        """Split a whole tensor into the shards of all ranks."""
        return [self.part_of(tensor, parts, rank) for rank in range(parts)]

    def part_of(self, tensor: Tensor, parts: int, rank: int) -> Tensor:
        """Return the shard of one rank as a copy."""
        return tensor.index_select(self.dim, _as_index(self.indices_of(tensor.shape[self.dim], parts, rank), tensor))

    def whole_of(self, gathered: Tensor, length: int, parts: int) -> Tensor:
        pieces = self.indices(length, parts)
        longest = max(map(len, pieces))
        where = np.empty(length, np.int64)
        for rank, piece in enumerate(pieces):
            where[piece] = rank * longest + np.arange(len(piece))
        return gathered.index_select(self.dim, _as_index(where, gathered))

    _split_tensor = Shard._split_tensor  # the parts of this class
    _select_split_tensor = Shard._select_split_tensor
    _to_replicate_tensor: ClassVar[Any] = Shard._to_replicate_tensor
    _replicate_to_strided_shard = Shard._replicate_to_shard

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Placement in which every rank holds the whole tensor."""

    def __repr__(self) -> str:
        return "Replicate()"

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True)
class Partial(Placement):
    """Placement of partial values, whose reduction over the ranks by "sum", "avg", "product", "max" or "min" is the tensor."""

    reduce_op: str = "sum"
    ALL_REDUCE_OPS: ClassVar[tuple[str, ...]] = ("sum", "avg", "product", "max", "min")
    LINEAR_REDUCE_OPS: ClassVar[tuple[str, ...]] = ("sum", "avg")

    @property
    def linear(self) -> bool:
        """Return whether the whole is a linear function of the ranks' values."""
        return self.reduce_op in ("sum", "avg")

    def _reduce_value(self, tensor: Tensor, mesh: Any, mesh_dim: int) -> Tensor:
        """Reduce partial values to the whole on every rank."""
        return funcol.all_reduce(tensor, self.reduce_op, (mesh, mesh_dim), now=True)

    def _reduce_shard_value(self, tensor: Tensor, mesh: Any, mesh_dim: int, shard_spec: Any) -> Tensor:
        """Reduce partial values to shards."""
        parts, rank = mesh.size(mesh_dim), mesh.get_local_rank(mesh_dim)
        length = tensor.shape[shard_spec.dim]
        if type(shard_spec) is not Shard:
            return shard_spec.part_of(self._reduce_value(tensor, mesh, mesh_dim), parts, rank)
        longest = -(-length // parts)
        full = padded(tensor, shard_spec.dim, longest * parts - length)
        found = funcol.reduce_scatter_tensor(full, self.reduce_op, shard_spec.dim, (mesh, mesh_dim), now=True)
        size, _ = shard_spec.local_shard_size_and_offset(length, parts, rank)
        return found if found.shape[shard_spec.dim] == size else found.narrow(shard_spec.dim, 0, size)

    def _partition_value(self, tensor: Tensor, mesh: Any, mesh_dim: int) -> Tensor:
        """Convert a replicated value to partial ones, which reduce to it."""
        if self.reduce_op == "sum":
            return tensor / mesh.size(mesh_dim)
        if self.reduce_op in ("avg", "min", "max"):
            return tensor
        raise ValueError(f"Replicate to Partial({self.reduce_op}) conversion is not supported.")

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


_Partial = Partial  # its former name


@dataclass(frozen=True)
class _NormPartial(Partial):
    """Placement of norms of the parts, whose reduction is the norm of the whole: the p-th root of the sum of their p-th powers."""

    norm_type: float = 2.0

    def __init__(self, norm_type: float = 2.0) -> None:
        kind = "max" if norm_type == float("inf") else "min" if norm_type == -float("inf") else "sum"
        object.__setattr__(self, "reduce_op", kind)
        object.__setattr__(self, "norm_type", norm_type)

    linear = property(lambda self: False)

    def _to_power(self, tensor: Tensor) -> Tensor:
        return tensor if self.reduce_op != "sum" or self.norm_type in (0, 1) else tensor**self.norm_type

    def _root(self, tensor: Tensor) -> Tensor:
        return tensor if self.reduce_op != "sum" or self.norm_type in (0, 1) else tensor ** (1.0 / self.norm_type)

    def _reduce_value(self, tensor: Tensor, mesh: Any, mesh_dim: int) -> Tensor:
        return self._root(super()._reduce_value(self._to_power(tensor), mesh, mesh_dim))

    def _reduce_shard_value(self, tensor: Tensor, mesh: Any, mesh_dim: int, shard_spec: Any) -> Tensor:
        return self._root(super()._reduce_shard_value(self._to_power(tensor), mesh, mesh_dim, shard_spec))

    def _partition_value(self, tensor: Tensor, mesh: Any, mesh_dim: int) -> Tensor:
        if self.reduce_op != "sum":
            return tensor
        parts = mesh.size(mesh_dim)
        return tensor / (parts if self.norm_type in (0, 1) else parts ** (1.0 / self.norm_type))

    def __repr__(self) -> str:
        return f"_NormPartial(reduce_op={self.reduce_op}, norm_type={self.norm_type})"

    def __str__(self) -> str:
        return f"_NormP({self.norm_type})"


@dataclass(frozen=True)
class _MaskPartial(Partial):
    """Placement of looked-up rows of a table sharded along `offset_dim`: each rank has those of its part, and zeros for the others."""

    offset_shape: Any = None
    offset_dim: int = 0

    def __repr__(self) -> str:
        return (
            f"_MaskPartial(reduce_op={self.reduce_op}, offset_shape={self.offset_shape}, offset_dim={self.offset_dim})"
        )

    def __str__(self) -> str:
        return f"MaskP({self.reduce_op}, {self.offset_shape}, {self.offset_dim})"


def _is_shard_like(p: Placement) -> TypeGuard[Shard | _StridedShard]:
    return isinstance(p, (Shard, _StridedShard))


def padded(tensor: Tensor, dim: int, count: int) -> Tensor:
    """Return the tensor with `count` zeros appended along a dimension."""
    if not count:
        return tensor
    more = tensor.new_zeros((*tensor.shape[:dim], count, *tensor.shape[dim + 1 :]))
    return _torch["cat"]([tensor, more], dim)


def _own_copy(part: Tensor, whole: Tensor) -> Tensor:
    return part if part.shape == whole.shape else part.contiguous() if part.is_contiguous() is False else part.clone()


def _as_index(places: np.ndarray, like: Tensor) -> Tensor:
    return _torch["from_numpy"](np.ascontiguousarray(places, np.int64)).to(like.device)
