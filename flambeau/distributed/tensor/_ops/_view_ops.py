"""Effects of views on dimensions, and on shards of DTensors.

A *dim map* says for each dimension of a view where its elements come from: from one dimension of the argument (`InputDim`), from several
that were joined (`Flatten`), from a factor of one (`Split`), from nowhere (`Singleton`, `NewDim`), or from one that is repeated
(`Broadcast`, `Repeat`). The placements of the view follow from a dim map and the placements of the argument
(`propagate_shape_and_sharding`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....core.tensor import Tensor
from ....ops import namespace
from ..placement_types import Placement, Replicate, Shard, _is_shard_like, _StridedShard
from .dim_specs import Broadcast as Broadcast
from .dim_specs import (
    DimMap,
    DimSpec,
    Flatten,
    InputDim,
    Repeat,
    Shape,
    Split,
    as_ints,
    dim_atleast_3d,
    dim_flatten,
    dim_movedim,
    dim_pad_left,
    dim_repeat,
    dim_squeeze,
    dim_tile,
    dim_transpose,
    dim_unsqueeze,
    dim_view_as_real,
    expand,
    kept_dims,
    view_groups,
    wrapped_dim,
)
from .dim_specs import NewDim as NewDim
from .dim_specs import Singleton as Singleton

_torch = namespace("torch")

dim_maps: dict[Callable, Callable[..., DimMap]] = {
    _torch["atleast_1d"]: lambda x: dim_pad_left(x.ndim, 1),
    _torch["atleast_2d"]: lambda x: dim_pad_left(x.ndim, 2),
    _torch["atleast_3d"]: lambda x: dim_atleast_3d(x.ndim),
    _torch["broadcast_to"]: lambda input, shape: expand(input.shape, shape),
    Tensor.expand: lambda self, *sizes: expand(self.shape, as_ints(sizes)),
    _torch["flatten"]: lambda tensor: dim_flatten(tensor.ndim),
    _torch["movedim"]: lambda input, source, destination: dim_movedim(input.ndim, source, destination),
    _torch["permute"]: lambda input, dims: kept_dims(wrapped_dim(d, input.ndim) for d in dims),
    _torch["ravel"]: lambda tensor: dim_flatten(tensor.ndim),
    Tensor.repeat: lambda self, *sizes: dim_repeat(self.ndim, sizes),
    _torch["reshape"]: lambda input, shape: view_groups(input.shape, shape),
    _torch["squeeze"]: lambda input, dim=None: dim_squeeze(input.shape, dim),
    _torch["tile"]: lambda input, dims: dim_tile(input.ndim, dims),
    _torch["transpose"]: lambda input, dim0, dim1: dim_transpose(input.ndim, dim0, dim1),
    _torch["unsqueeze"]: lambda input, dim: dim_unsqueeze(input.ndim, dim),
    Tensor.view: lambda input, *shape: view_groups(input.shape, shape),
    _torch["view_as_complex"]: lambda input: dim_flatten(input.ndim, input.ndim - 2),
    _torch["view_as_real"]: lambda input: dim_view_as_real(input.shape),
}


# -- how a view is placed ----------------------------------------------------------------------------------------------------------------


def propagate_shape_and_sharding(
    input_src_placements: Sequence[Placement],
    global_input_shape: Shape,
    rule: DimMap,
    mesh_sizes: Shape,
    strict_view: bool = False,
) -> tuple[Sequence[Placement], Sequence[Placement]]:
    """Return the placements that the argument of a view must have, and those of the view. With `strict_view` a redistribution is an
    error."""
    propagator = _ViewShardingPropagator(input_src_placements, global_input_shape, rule, mesh_sizes, strict_view)
    targets, places = propagator.analyze()
    return targets, propagator.rewrite_output_placements(targets, places)


_REDISTRIBUTE = "Please redistribute the tensor before this operation."


class _ViewShardingPropagator:
    """Determines which shards a view can keep (`analyze`), and their placements in the view (`rewrite_output_placements`)."""

    def __init__(
        self,
        input_src_placements: Sequence[Placement],
        global_input_shape: Shape,
        rule: DimMap,
        mesh_sizes: Shape,
        strict_view: bool,
    ) -> None:
        self.placements, self.shape, self.rule = tuple(input_src_placements), tuple(global_input_shape), rule
        self.mesh_sizes, self.strict = tuple(mesh_sizes), strict_view
        self.keeps: dict[int, list[bool]] = {}  # by dimension of the argument, then of the mesh
        self.moves: set[tuple[int, int]] = set()  # what is gathered even where nothing should move
        self.taken: set[int] = set()  # dimensions of the mesh whose _StridedShard has found its place

    # which cuts can stay

    def analyze(self) -> tuple[Sequence[Placement], dict[int, list[int]]]:
        """Find the placement that the argument must have, and the dimensions of the view that hold each of its dimensions."""
        named = {d for spec in self.rule for d in _leaves(spec)}
        self.keeps = {d: [d in named] * len(self.mesh_sizes) for d in range(len(self.shape))}
        places: dict[int, list[int]] = {}
        for out, spec in enumerate(self.rule):
            found = self._examine(spec)
            if isinstance(spec, Split):
                first = found[0] if spec.split_id == 0 and found else next(iter(_leaves(spec)), None)
                found = [first] if first is not None and (spec.split_id == 0 or first in places) else []
            for d in found:
                places.setdefault(d, []).append(out)
        return [self._target(p, i) for i, p in enumerate(self.placements)], places

    def _target(self, placement: Any, along: int) -> Placement:
        if not _is_shard_like(placement) or self.keeps[placement.dim][along]:
            return placement
        if self.strict and (placement.dim, along) not in self.moves:
            raise RuntimeError(
                f"This operation would remove or reshape sharded dimension {placement.dim}, which requires redistribution. Please"
                " redistribute the input first."
            )
        return Replicate()

    def _examine(self, spec: DimSpec) -> list[int]:
        """Return the dimensions of the argument that may be sharded in a dimension of the view; the result is recorded in `keeps`."""
        if isinstance(spec, InputDim):
            return [spec.input_dim]
        if isinstance(spec, Flatten):
            return self._examine_joined(spec)
        if isinstance(spec, Split):
            return self._examine_share(spec)
        if isinstance(spec, Repeat):
            for d in self._examine(spec.input_dim):
                self.keeps[d] = [False] * len(self.mesh_sizes)
        return []

    def _cut_by(self, dim: int) -> int | None:
        """Return the first dimension of the mesh that shards a dimension by a plain Shard, or None."""
        return next((i for i, p in enumerate(self.placements) if type(p) is Shard and p.dim == dim), None)

    def _examine_joined(self, spec: Flatten) -> list[int]:
        dims, found = list(_leaves(spec)), []
        for d in dims:
            along = self._cut_by(d)
            if along is None:
                continue
            size, parts = self.shape[d], self.mesh_sizes[along]
            if self.strict:
                if d != dims[-1] and size % parts:
                    raise RuntimeError(
                        f"Cannot flatten unevenly sharded tensor: dimension {d} (size {size}) is not evenly divisible by mesh dimension"
                        f" {along} (size {parts}). {_REDISTRIBUTE}"
                    )
                found.append(d)
                self.keeps[d] = [True] * len(self.mesh_sizes)
            else:
                if d == dims[0]:
                    found.append(d)
                self.keeps[d] = [d == dims[0] and size % parts == 0] * len(self.mesh_sizes)
        return found or dims[:1]

    def _examine_share(self, spec: Split) -> list[int]:
        inner = self._examine(spec.input_dim)
        if not inner:
            return []
        dim = inner[0]
        if isinstance(spec.input_dim, Flatten):
            self._gather_later_ones(list(_leaves(spec))[1:])
        size = spec.group_shape[spec.split_id]
        strided = self._strided_for(dim, spec)
        if spec.split_id == 0:
            self.keeps[dim] = [size % parts == 0 for parts in self.mesh_sizes]
            along = self._cut_by(dim)
            if self.strict and along is not None and not self.keeps[dim][along]:
                self._uneven(spec, size, along)
        if strided is not None:
            last = spec.split_id == len(spec.group_shape) - 1  # its part is what the others leave, be it even or not
            fits = last or size % self.mesh_sizes[strided] == 0
            if self.strict and not fits:
                self._uneven(spec, size, strided)
            self.taken.add(strided)
            self.keeps[dim][strided] = fits
        return inner

    def _gather_later_ones(self, dims: list[int]) -> None:
        """Mark shards of later joined dimensions to be gathered: no placement describes them if the dimensions are split again."""
        for d in dims:
            for along, p in enumerate(self.placements):
                if type(p) is Shard and p.dim == d:
                    self.keeps[d][along] = False
                    self.moves.add((d, along))

    def _strided_for(self, dim: int, spec: Split) -> int | None:
        """Return the mesh dimension whose _StridedShard becomes a plain Shard of this split, if it comes before any plain Shard."""
        for along, p in enumerate(self.placements):
            if along in self.taken or not _is_shard_like(p) or p.dim != dim:
                continue
            if not isinstance(p, _StridedShard):
                return None
            if self._pieces_before(spec, dim, along, self.placements) == p.split_factor:
                return along
        return None

    def _uneven(self, spec: Split, size: int, along: int) -> None:
        raise RuntimeError(
            f"Cannot unflatten unevenly sharded tensor: output dimension {spec.split_id} (size {size}) is not evenly divisible by mesh"
            f" dimension {along} (size {self.mesh_sizes[along]}). {_REDISTRIBUTE}"
        )

    def _pieces_before(self, spec: Split, dim: int, along: int, placements: Sequence[Any]) -> int | None:
        """Return the number of pieces into which earlier shards divide a rank's part; None if those shards do not fit."""
        pieces = math.prod(spec.group_shape[: spec.split_id])
        for i in range(along):
            if _is_shard_like(placements[i]) and placements[i].dim == dim:
                if pieces % self.mesh_sizes[i]:
                    return None
                pieces //= self.mesh_sizes[i]
        return pieces

    # what they are called in the view

    def rewrite_output_placements(
        self, input_tgt_placements: Sequence[Any], input_to_output_tensor_dims: dict[int, list[int]]
    ) -> list[Placement]:
        """Return the placements of the view."""
        left = list(self.shape)  # what the dimensions of the mesh before have left of each dimension
        claimed: set[tuple[int, int]] = set()
        found: list[Placement] = []
        for along, p in enumerate(input_tgt_placements):
            if not _is_shard_like(p):
                found.append(p)
                continue
            outs = [d for d in input_to_output_tensor_dims[p.dim] if (p.dim, d) not in claimed]
            if not outs:
                raise AssertionError(f"No output dim available for {p!r} on mesh dim {along}.")
            if isinstance(p, _StridedShard):
                found.append(self._strided(p, along, outs, input_tgt_placements, claimed))
            else:
                found.append(self._plain(p, along, outs, input_tgt_placements, left))
            left[p.dim] //= self.mesh_sizes[along]
        return found

    def _plain(self, p: Shard, along: int, outs: list[int], placements: Sequence[Any], left: list[int]) -> Placement:
        if len(outs) > 1:
            outs = [d for d in outs if isinstance(part := self.rule[d], Split) and part.split_id == 0]
            if not outs:
                raise AssertionError(f"No first share is left for {p!r} on mesh dim {along}.")
        spec = self.rule[outs[0]]
        if not isinstance(spec, Flatten):
            return Shard(outs[0])
        dims = list(_leaves(spec))
        last = self._is_last_shard_in_flatten_range(along, placements, dims[0], dims[-1] + 1)
        if left[p.dim] % self.mesh_sizes[along] and not last:
            raise RuntimeError(
                f"Cannot shard unevenly distributed tensor: dimension {p.dim} (size {left[p.dim]}) is not evenly divisible by mesh"
                f" dimension {along} (size {self.mesh_sizes[along]}). {_REDISTRIBUTE}"
            )
        if p.dim == dims[0]:
            return Shard(outs[0])
        return _StridedShard(outs[0], split_factor=math.prod(left[dims[0] : p.dim]))

    def _strided(
        self, p: _StridedShard, along: int, outs: list[int], placements: Sequence[Any], claimed: set[tuple[int, int]]
    ) -> Placement:
        for d in outs:
            spec = self.rule[d]
            if isinstance(spec, Split) and self._pieces_before(spec, p.dim, along, placements) == p.split_factor:
                claimed.add((p.dim, d))
                return Shard(d)
        kept = next((d for d in outs if self._holds_pieces(d, p, along)), None)
        if kept is None:
            if self.strict and any(isinstance(self.rule[d], Split) for d in outs):
                raise RuntimeError(
                    f"Cannot unflatten tensor with _StridedShard placement: split_factor={p.split_factor} does not match any output"
                    " dimension. This typically means the _StridedShard placement was constructed with a split_factor that is"
                    f" incompatible with the unflatten shape. {_REDISTRIBUTE}"
                )
            kept = outs[0]
        return _StridedShard(kept, split_factor=p.split_factor)

    def _holds_pieces(self, out: int, p: _StridedShard, along: int) -> bool:
        """Return whether the pieces of a _StridedShard are a whole number of steps of a split dimension."""
        spec = self.rule[out]
        count = self.mesh_sizes[along] * p.split_factor
        if not isinstance(spec, Split) or self.shape[p.dim] % count:
            return False
        inside = math.prod(spec.group_shape[spec.split_id + 1 :])
        piece = self.shape[p.dim] // count
        dims = list(_leaves(spec))
        if p.dim in dims:
            piece *= math.prod(self.shape[d] for d in dims[dims.index(p.dim) + 1 :])
        return piece >= inside and piece % inside == 0

    @staticmethod
    def _is_last_shard_in_flatten_range(
        mesh_dim: int, placements: Sequence[Any], flatten_start: int, flatten_end: int
    ) -> bool:
        """Return whether no later dimension of the mesh shards the same dimension, or a later one that is joined with it."""
        dim = placements[mesh_dim].dim
        return not any(
            _is_shard_like(p) and flatten_start <= p.dim < flatten_end and p.dim >= dim
            for p in placements[mesh_dim + 1 :]
        )


def _leaves(spec: DimSpec) -> Iterator[int]:
    """Yield the dimensions of the argument that are part of one dimension of a view."""
    if isinstance(spec, InputDim):
        yield spec.input_dim
    for part in spec.inputs():
        yield from _leaves(part)
