"""`ShardedTensor`: parts of a tensor on several ranks. It can be made, gathered, resharded, saved and loaded, but not computed with
(DTensor is for that)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....core.device import device as Device
from ....core.graph import unrecorded
from ....core.layout import contiguous_format, strided
from ....core.promotion import get_default_dtype
from ....core.sharded import SpreadTensor
from ....core.size import Size, make_size
from ....core.tensor import Tensor, contiguous_strides
from ....ops.creation.filled import empty
from ....ops.shape.joining import cat
from ....serialization.rebuild import from_type, wrapper_subclass
from ... import collectives, groups, object_collectives
from ...remote_device import _remote_device
from ..api import _get_current_process_group
from ..metadata import ShardMetadata
from ..sharding_spec import _infer_sharding_spec_from_shards_metadata
from ..sharding_spec.api import ShardingSpec, check_tensor, validate_non_overlapping_shards_metadata
from .metadata import ShardedTensorMetadata, TensorProperties
from .shard import Shard

__all__ = ["Shard", "ShardedTensor", "ShardedTensorMetadata", "TensorProperties"]


def placed(group: Any, placement: _remote_device | None) -> tuple[int, Device]:
    """Return the rank and the device of a placement."""
    if placement is None:
        raise ValueError("remote device is None")
    rank, device = placement.rank(), placement.device()
    if rank is None:
        raise ValueError(f"Placements should have a rank: {placement}")
    if rank not in groups.get_process_group_ranks(group):
        raise ValueError(
            f"Global rank {rank} does not exist in input process group: {groups.get_process_group_ranks(group)}"
        )
    return rank, device


def _size(given: Sequence) -> Size:
    return Size(given[0]) if len(given) == 1 and isinstance(given[0], Sequence) else Size(given)


_CUSTOM_OPERATORS: dict[str, Callable] = {}  # calls that programs have brought, by name
_SHARDWISE_OPERATORS = (  # calls that do to the whole what they do to each part, in place
    "constant_", "fill_", "kaiming_uniform_", "normal_", "ones_", "requires_grad_", "trunc_normal_", "uniform_", "zero_", "zeros_",
)  # fmt: skip


class ShardedTensor(SpreadTensor):
    """A tensor sharded over several ranks by `sharding_spec`; every rank has the shards whose placement names it."""

    _local_shards: list[Shard]
    _metadata: ShardedTensorMetadata

    @dataclass
    class ProcessGroupState:
        """Rank and world size with which the tensor was saved."""

        local_rank: int
        global_rank: int
        local_world_size: int
        global_world_size: int

    def __new__(cls, *args: Any, **kwargs: Any) -> ShardedTensor:
        t = object.__new__(cls)
        t._autograd = t._base = None
        return t

    def __init__(
        self,
        sharding_spec: ShardingSpec,
        *size: Any,
        dtype: Any = None,
        layout: Any = strided,
        requires_grad: bool = False,
        pin_memory: bool = False,
        memory_format: Any = contiguous_format,
        process_group: Any = None,
        init_rrefs: bool = False,
    ) -> None:
        if layout is not strided:
            raise ValueError("Only torch.strided layout is currently supported")
        if memory_format is not contiguous_format:
            raise ValueError("Only torch.contiguous_format memory_format is currently supported")
        properties = TensorProperties(dtype or get_default_dtype(), layout, requires_grad, memory_format, pin_memory)
        metadata = sharding_spec.build_metadata(_size(size), properties)
        group = self._normalize_pg(process_group)
        own = []
        for shard in metadata.shards_metadata:
            rank, device = placed(group, shard.placement)
            if rank == groups.get_rank():
                part = empty(shard.shard_sizes, dtype=properties.dtype, device=device, pin_memory=pin_memory)
                own.append(Shard(part.requires_grad_(requires_grad), shard))
        self._set_fields(own, metadata, sharding_spec, group, init_rrefs)

    def _set_fields(
        self, shards: list[Shard], metadata: ShardedTensorMetadata, spec: ShardingSpec, group: Any, rrefs: bool = False
    ) -> None:
        if rrefs:
            raise NotImplementedError(
                "ShardedTensor(init_rrefs=True): parts of other ranks by RRef are not in Flambeau"
            )
        self._local_shards, self._metadata, self._sharding_spec = shards, metadata, spec
        self._process_group, self._init_rrefs = group, rrefs
        self.shape, self.dtype = make_size(tuple(metadata.size)), metadata.tensor_properties.dtype
        placement = metadata.shards_metadata[0].placement
        self.device = (
            shards[0].tensor.device if shards else Device((placement.device() if placement else Device("cpu")).type)
        )
        if metadata.tensor_properties.requires_grad:
            self._ensure_autograd().requires_grad = True

    # -- making one -----------------------------------------------------------------------------------------------------------
    @classmethod
    def _normalize_pg(cls, process_group: Any) -> Any:
        return groups._get_default_group() if process_group is None else process_group

    @classmethod
    def _init_from_local_shards(
        cls, local_shards: list[Shard], *global_size: Any, process_group: Any = None, init_rrefs: bool = False
    ) -> ShardedTensor:
        """Make a ShardedTensor from the shards that each rank has; all ranks must call it."""
        group = cls._normalize_pg(process_group)
        size = _size(global_size)
        mine = None
        if local_shards:
            kinds = {(s.tensor.dtype, s.tensor.requires_grad, s.tensor.is_pinned()) for s in local_shards}
            if len(kinds) > 1:
                raise ValueError("Local shards' tensor properties need to be the same!")
            for shard in local_shards:
                if not shard.tensor.is_contiguous():
                    raise ValueError("Only torch.contiguous_format memory_format is currently supported")
                if shard.metadata.placement is not None and shard.metadata.placement.rank() != groups.get_rank():
                    raise ValueError(
                        f"Local shard metadata's rank does not match with the rank in its process group! Found current rank in the"
                        f" process group: {groups.get_rank()}, local ShardMetadata placement's rank:"
                        f" {shard.metadata.placement.rank()}"
                    )
            mine = ShardedTensorMetadata(
                [s.metadata for s in local_shards], size, TensorProperties.create_from_tensor(local_shards[0].tensor)
            )
        everyones: list = [None] * groups.get_world_size(group)
        object_collectives.all_gather_object(everyones, mine, group=group)
        known = [one for one in everyones if one is not None]
        if not known:
            raise ValueError("ShardedTensor have no local shards on all ranks!")
        for one in known[1:]:
            if one.size != known[0].size or one.tensor_properties != known[0].tensor_properties:
                raise ValueError(
                    f"ShardedTensor metadata or properties do not match from different ranks! Found {known[0]} and {one}"
                )
        metadata = replace(known[0], shards_metadata=[s for one in known for s in one.shards_metadata])
        validate_non_overlapping_shards_metadata(metadata.shards_metadata)
        check_tensor(metadata.shards_metadata, metadata.size)
        made = cls.__new__(cls)
        spec = _infer_sharding_spec_from_shards_metadata(metadata.shards_metadata)
        made._set_fields(local_shards, metadata, spec, group, init_rrefs)
        return made

    @classmethod
    def _init_from_local_tensor(
        cls,
        local_tensor: Tensor,
        sharding_spec: ShardingSpec,
        *global_size: Any,
        process_group: Any = None,
        init_rrefs: bool = False,
    ) -> ShardedTensor:
        """Make a ShardedTensor from one shard of each rank."""
        if not local_tensor.is_contiguous():
            raise ValueError("local_tensor is not a contiguous Tensor.")
        group = cls._normalize_pg(process_group)
        metadata = sharding_spec.build_metadata(_size(global_size), TensorProperties.create_from_tensor(local_tensor))
        here = groups.get_rank()
        own = [Shard(local_tensor, s) for s in metadata.shards_metadata if placed(group, s.placement)[0] == here]
        return cls._init_from_local_shards_and_global_metadata(own, metadata, group, init_rrefs, sharding_spec)

    @classmethod
    def _init_from_local_shards_and_global_metadata(
        cls,
        local_shards: list[Shard],
        sharded_tensor_metadata: ShardedTensorMetadata,
        process_group: Any = None,
        init_rrefs: bool = False,
        sharding_spec: ShardingSpec | None = None,
    ) -> ShardedTensor:
        """Make a ShardedTensor from local shards and metadata that all ranks have agreed on."""
        group = cls._normalize_pg(process_group)
        parts, properties = sharded_tensor_metadata.shards_metadata, sharded_tensor_metadata.tensor_properties
        here = groups.get_rank()
        expected = [s for s in parts if placed(group, s.placement)[0] == here]
        if len(local_shards) != len(expected):
            raise RuntimeError(
                f"Number of local shards ({len(local_shards)}) does not match number of local shards metadata in"
                f" sharded_tensor_metadata ({len(expected)}) on rank ({here}) "
            )
        if not parts:
            raise ValueError("shards_metadata must not be empty!")
        if properties.layout is not strided:
            raise ValueError("Only torch.strided layout is currently supported")
        for shard in local_shards:
            if not shard.tensor.is_contiguous():
                raise ValueError("Only torch.contiguous_format memory_format is currently supported")
            for name in ("pin_memory", "dtype", "requires_grad"):
                found = shard.tensor.is_pinned() if name == "pin_memory" else getattr(shard.tensor, name)
                wanted = getattr(properties, name)
                if found != wanted:
                    raise ValueError(
                        f"Local shards' tensor {name} property is incompatible with tensor property on rank {here}: tensor"
                        f" property {name}={wanted}, local shard tensor {name}={found}."
                    )
        validate_non_overlapping_shards_metadata(parts)
        check_tensor(parts, sharded_tensor_metadata.size)
        made = cls.__new__(cls)
        spec = sharding_spec or _infer_sharding_spec_from_shards_metadata(parts)
        made._set_fields(local_shards, sharded_tensor_metadata, spec, group, init_rrefs)
        return made

    # -- what it is -------------------------------------------------------------------------------------------------------------
    def metadata(self) -> ShardedTensorMetadata:
        """Return the metadata: shards of all ranks, size and properties."""
        return self._metadata

    def local_shards(self) -> list[Shard]:
        """Return the shards of this rank."""
        return self._local_shards

    def local_tensor(self) -> Tensor:
        """Return the tensor of this rank's only shard."""
        if len(self._local_shards) != 1:
            raise NotImplementedError(
                f"Only single local shard is supported. Number of shards: {len(self._local_shards)}"
            )
        return self._local_shards[0].tensor

    def sharding_spec(self) -> ShardingSpec:
        """Return the specification by which the tensor is sharded."""
        return self._sharding_spec

    def is_pinned(self, device: Any = None) -> bool:
        return self._metadata.tensor_properties.pin_memory

    def remote_shards(self) -> dict:
        raise RuntimeError("ShardedTensor created with init_rrefs=False, no RRefs to remote shards available")

    @property
    def _storage(self) -> Any:  # type: ignore[override]
        return self._local_shards[0].tensor._storage if self._local_shards else empty((0,))._storage

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"ShardedTensor({self._metadata})"

    __hash__ = object.__hash__

    # -- other forms of it ------------------------------------------------------------------------------------------------------
    def _map_shards(self, change: Callable[[Tensor], Tensor], device: Any = None, group: Any = None) -> ShardedTensor:
        """Return a ShardedTensor with `change` applied to each shard, optionally on another device or group."""
        metadata = copy.deepcopy(self._metadata)
        if device is not None:
            for shard in metadata.shards_metadata:
                if shard.placement is not None:
                    shard.placement._device = device
        group = group or self._process_group
        own = [s for s in metadata.shards_metadata if placed(group, s.placement)[0] == groups.get_rank()]
        parts = [Shard(change(old.tensor), new) for old, new in zip(self._local_shards, own, strict=True)]
        if parts:
            metadata.tensor_properties.dtype = parts[0].tensor.dtype
            metadata.tensor_properties.requires_grad = parts[0].tensor.requires_grad
        made = type(self).__new__(type(self))
        made._set_fields(parts, metadata, self._sharding_spec, group)
        return made

    def clone(self, *, memory_format: Any = None) -> ShardedTensor:
        """Return a copy of the ShardedTensor."""
        return self._map_shards(lambda t: t.clone())

    def detach(self) -> ShardedTensor:
        """Return the same shards without autograd history."""
        return self._map_shards(lambda t: t.detach())

    def cpu(self, memory_format: Any = None, process_group: Any = None) -> ShardedTensor:
        """Return this tensor in host memory."""
        if all(s.placement is None or s.placement.device().type == "cpu" for s in self._metadata.shards_metadata):
            return self
        return self._map_shards(lambda t: t.cpu(), Device("cpu"), process_group)

    def to(self, *args: Any, **kwargs: Any) -> ShardedTensor:
        """Return this tensor with another dtype, or on another device."""
        group, copies = kwargs.pop("process_group", None), kwargs.get("copy", False)
        probe = empty((0,), dtype=self.dtype, device=self.device).to(*args, **kwargs)
        if not copies and probe.dtype is self.dtype and probe.device is self.device:
            return self
        where = None if probe.device.type == self.device.type else probe.device
        return self._map_shards(lambda t: t.to(*args, **kwargs), where, group)

    def __deepcopy__(self, memo: dict) -> ShardedTensor:
        return self._map_shards(lambda t: copy.deepcopy(t, memo))

    def gather(  # type: ignore[override]
        self, dst: int = 0, out: Tensor | None = None, enforce_dtype: bool = False, dtype: Any = None
    ) -> None:
        """Gather the whole tensor into `out` on rank `dst`; all ranks must call it."""
        rank = groups.get_rank(self._process_group)
        if rank == dst and out is None:
            raise ValueError(f"`out` Tensor must be provided on dst rank {dst}")
        if rank == dst and out is not None and tuple(out.size()) != tuple(self.shape):
            raise ValueError(f"dst rank {dst} expects output tensor size {self.shape}, but got {out.size()}")
        if rank != dst and out is not None:
            raise ValueError("`out` Tensor must NOT be provided on non-dst ranks.")
        whole = self._gather_whole()
        if out is not None:
            unrecorded(out.copy_, whole)

    def _gather_whole(self) -> Tensor:
        """Return the whole tensor, on every rank."""
        group, size = self._process_group, groups.get_world_size(self._process_group)
        lists: list[list[ShardMetadata]] = [[] for _ in range(size)]
        for shard in self._metadata.shards_metadata:
            lists[groups.get_group_rank(group, placed(group, shard.placement)[0])].append(shard)
        room = max(sum(math.prod(s.shard_sizes) for s in shards) for shards in lists)
        mine = empty((room,), dtype=self.dtype, device=self.device)
        flats = [shard.tensor.detach().reshape(-1) for shard in self._local_shards]
        if flats:
            joined = cat(flats)
            unrecorded(mine[: joined.numel()].copy_, joined)
        everyones = [empty((room,), dtype=self.dtype, device=self.device) for _ in range(size)]
        collectives.all_gather(everyones, mine, group=group)
        whole = empty(tuple(self.shape), dtype=self.dtype, device=self.device)
        for shards, flat in zip(lists, everyones):
            start = 0
            for shard in shards:
                count = math.prod(shard.shard_sizes)
                unrecorded(part_of(whole, shard).copy_, flat[start : start + count].view(shard.shard_sizes))
                start += count
        return whole

    def reshard(self, resharding_spec: ShardingSpec) -> ShardedTensor:
        """Shard this tensor by another specification, in place."""
        whole = self._gather_whole()
        metadata = resharding_spec.build_metadata(self.shape, self._metadata.tensor_properties)
        here = groups.get_rank()
        own = [s for s in metadata.shards_metadata if placed(self._process_group, s.placement)[0] == here]
        shards = [Shard(part_of(whole, s).clone(), s) for s in own]
        self._set_fields(shards, metadata, resharding_spec, self._process_group)
        return self

    def _call_spread(self, face: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call an operator on this tensor: a few apply to each shard, the others raise."""
        name = getattr(face, "__name__", str(face))
        if name in _CUSTOM_OPERATORS:
            return _CUSTOM_OPERATORS[name]([type(self)], args, kwargs, self._process_group)
        if name in _SHARDWISE_OPERATORS and args and args[0] is self:
            for shard in self._local_shards:
                getattr(shard.tensor, name)(*args[1:], **kwargs)
            return self
        if name in ("equal", "allclose") and all(isinstance(a, ShardedTensor) for a in args[:2]):
            return self._compare(name, *args, **kwargs)
        raise RuntimeError(
            f"torch function '{name}', with args: {args} and kwargs: {kwargs} not supported for ShardedTensor!"
        )

    def _compare(self, name: str, one: ShardedTensor, other: ShardedTensor, *args: Any, **kwargs: Any) -> bool:
        pairs = zip(one._local_shards, other._local_shards)
        same = len(one._local_shards) == len(other._local_shards) and one.shape == other.shape
        mine = same and all(bool(getattr(a.tensor, name)(b.tensor, *args, **kwargs)) for a, b in pairs)
        everyones: list = [None] * groups.get_world_size(self._process_group)
        object_collectives.all_gather_object(everyones, mine, group=self._process_group)
        return all(everyones)

    # -- files ------------------------------------------------------------------------------------------------------------------
    def __reduce_ex__(self, protocol: Any) -> tuple:
        about = (type(self), self.dtype, Size(self.shape), contiguous_strides(self.shape), 0, strided, self.device)
        made_of = (wrapper_subclass, type(self), (*about, self.requires_grad), self.__getstate__())
        return from_type, made_of

    def __getstate__(self) -> tuple:
        group = self._process_group
        world = self.ProcessGroupState(
            groups.get_rank(group), groups.get_rank(), groups.get_world_size(group), groups.get_world_size()
        )
        return self._local_shards, self._metadata, world, self._sharding_spec, self._init_rrefs

    def __setstate__(self, state: tuple) -> None:

        if not groups.is_initialized():
            raise RuntimeError(
                'Need to initialize default process group using "init_process_group" before loading ShardedTensor'
            )
        shards, metadata, world, spec, rrefs = state
        group = _get_current_process_group()
        for name, saved, found in (
            ("Local rank", world.local_rank, groups.get_rank(group)),
            ("Global rank", world.global_rank, groups.get_rank()),
            ("Local world size", world.local_world_size, groups.get_world_size(group)),
            ("Global world size", world.global_world_size, groups.get_world_size()),
        ):
            if saved != found:
                raise RuntimeError(f"{name} at save time was {saved}, but at load time was {found}")
        self._set_fields(shards, metadata, spec, group, rrefs)


def part_of(tensor: Tensor, shard: ShardMetadata) -> Tensor:
    """Return the part of a whole tensor that a shard's metadata describes."""
    return tensor[tuple(slice(o, o + n) for o, n in zip(shard.shard_offsets, shard.shard_sizes, strict=True))]
