"""Default planners: every part of every tensor is written once."""

from __future__ import annotations

import dataclasses
import io
import logging
import math
from bisect import insort
from collections import ChainMap
from typing import Any

from ...core.size import Size
from ...core.tensor import Tensor, empty
from ...serialization import load, safe_globals, save
from . import _version
from ._dedup_save_plans import dedup_save_plans
from ._nested_dict import FLATTEN_MAPPING, flatten_state_dict
from ._traverse import set_element
from .metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from .planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem, WriteItemType
from .planner_helpers import (
    _compare_save_plans,
    _contains_usable_plan,
    _create_read_items,
    _create_write_items,
    _init_state_dict,
    _is_elsewhere,
    _merge_delta_local_plans,
)
from .resharding import _check_shard_metadata_pair_overlap as _check_box_overlap
from .utils import find_state_dict_object, narrow_tensor_by_index

__all__ = [
    "DefaultLoadPlanner", "DefaultSavePlanner", "create_default_global_load_plan", "create_default_global_save_plan",
    "create_default_local_load_plan", "create_default_local_save_plan",
]  # fmt: skip

logger = logging.getLogger(__name__)


class DefaultSavePlanner(SavePlanner):
    """Planner that flattens nested dictionaries, and has items of several ranks written by one of them. With `enable_plan_caching`, ranks
    whose plan is the same as last time do not send it again."""

    mappings: FLATTEN_MAPPING

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.mappings = {}
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank
        if dedup_replicated_tensors is not None:
            logger.warning(
                "DefaultSavePlanner's `dedup_replicated_tensors` argument is being deprecated, and no longer has any effect."
                " Please remove this argument from your call."
            )
        self._cached_plans_key: str = type(self).__name__
        self._enable_plan_caching = enable_plan_caching
        self._pending_local_plan: SavePlan | None = None

    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: StorageMeta | None = None, is_coordinator: bool = False
    ) -> None:
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.is_coordinator = state_dict, is_coordinator

    def create_local_plan(self) -> SavePlan:
        plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        if self.flatten_state_dict:
            plan = dataclasses.replace(plan, planner_data=self.mappings)
        self.plan = plan
        if self._enable_plan_caching:
            last = SavePlanner._cached_save_plan.get(self._cached_plans_key)
            if last is not None and _compare_save_plans(plan, last):
                return SavePlan([], usable=False)
            self._pending_local_plan = plan
        return plan

    def _dedup_save_plans(self, all_plans: list[SavePlan]) -> list[SavePlan]:
        return dedup_save_plans(all_plans, self.dedup_save_to_lowest_rank)

    def _create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        plans, metadata = create_default_global_save_plan(self._dedup_save_plans(all_plans))
        if self.flatten_state_dict:
            paths = dict(ChainMap(*(plan.planner_data for plan in plans)))
            metadata = dataclasses.replace(metadata, planner_data=paths)
        errors = "; ".join(_validate_global_plan(plans, metadata))
        if errors:
            shown = errors if len(errors) <= 500 else errors[:500] + "... (truncated)"
            raise ValueError(f"Failed to validate global plan: {shown}")
        return plans, metadata

    def _create_global_plan_with_caching(
        self, all_plans: list[SavePlan]
    ) -> tuple[list[SavePlan], list[SavePlan], Metadata]:
        """Return (changes for each rank, the whole plan, metadata)."""
        key = self._cached_plans_key
        last = SavePlanner._cached_global_plan.get(key)
        if last is not None and not _contains_usable_plan(all_plans):
            return [SavePlan([], usable=False)] * len(all_plans), last, SavePlanner._cached_metadata[key]
        if last is not None:
            all_plans = _merge_delta_local_plans(SavePlanner._cached_all_plans[key], all_plans)
        plans, metadata = self._create_global_plan(all_plans)
        SavePlanner._cached_all_plans[key] = all_plans
        SavePlanner._cached_global_plan[key] = plans
        SavePlanner._cached_metadata[key] = metadata
        if last is None:
            return plans, plans, metadata
        changed = [
            SavePlan([], usable=False) if _compare_save_plans(old, new) else new
            for old, new in zip(last, plans, strict=True)
        ]
        return changed, plans, metadata

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        if self._enable_plan_caching:
            sent, self.global_plan, self.metadata = self._create_global_plan_with_caching(all_plans)
            return sent, self.metadata
        self.global_plan, self.metadata = self._create_global_plan(all_plans)
        return self.global_plan, self.metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        if self._enable_plan_caching:
            if new_plan.usable:
                SavePlanner._cached_final_save_plan[self._cached_plans_key] = new_plan
            new_plan = SavePlanner._cached_final_save_plan[self._cached_plans_key]
            if self._pending_local_plan is not None:  # only now is it known that all ranks agree
                SavePlanner._cached_save_plan[self._cached_plans_key] = self._pending_local_plan
                self._pending_local_plan = None
        self.plan = new_plan
        return new_plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        return self.transform_object(write_item, self.lookup_object(write_item.index))

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Return the object of the state dict to save; subclasses may override it."""
        return find_state_dict_object(self.state_dict, index)

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        """Return the form in which an object is written; subclasses may override it."""
        if write_item.type != WriteItemType.BYTE_IO:
            return object
        file = io.BytesIO()
        save(object, file)
        return file


class DefaultLoadPlanner(LoadPlanner):
    """Loads into the tensors of a state dict, in place, whatever shards they were saved in. A key that is not in the checkpoint is an error
    unless `allow_partial_load`."""

    original_state_dict: dict[str, Any]
    mappings: FLATTEN_MAPPING

    def __init__(
        self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, allow_partial_load: bool = False
    ) -> None:
        self.flatten_state_dict = flatten_state_dict
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.original_state_dict, self.mappings = {}, {}
        self.allow_partial_load = allow_partial_load

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        _init_state_dict(state_dict)
        self.original_state_dict = state_dict
        if self.flatten_state_dict:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self) -> LoadPlan:
        if self.metadata is None:
            raise AssertionError("self.metadata is not None")
        if self.flatten_state_dict:
            self._flatten_as_saved(set(self.metadata.state_dict_metadata))
        return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)

    def _flatten_as_saved(self, saved: set[str]) -> None:
        """Flatten the state dict as PyTorch did until 2.3, if the checkpoint has keys of that form."""
        assert self.metadata is not None
        missing = saved - set(self.state_dict)
        if not missing:
            return
        _version._derived_version = "2_3"
        try:
            former, paths = flatten_state_dict(self.original_state_dict)
        finally:
            _version._derived_version = None
        if set(former) & missing:
            self.state_dict, self.mappings = former, paths

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, new_plan: LoadPlan) -> LoadPlan:
        return new_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        with safe_globals([io.BytesIO]):  # bytes that can be read like a file are data, too
            loaded = load(value)  # data only: other classes have to be allowed by torch.serialization.add_safe_globals
        key = read_item.dest_index.fqn
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[key], loaded)
        else:
            self.state_dict[key] = loaded

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        pass

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """Return the tensor to load into; subclasses may override it."""
        return find_state_dict_object(self.state_dict, index)

    def transform_tensor(self, read_item: ReadItem, tensor: Tensor) -> Tensor:
        """Return the part of a tensor that an item is loaded into; subclasses may override it."""
        return narrow_tensor_by_index(tensor, read_item.dest_offsets, read_item.lengths)


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Loads a checkpoint (or the keys in `keys`, or under them) into an empty dictionary, with the saved structure."""

    def __init__(self, keys: Any = None, *args: Any, **kwargs: Any) -> None:
        self.keys = keys
        super().__init__(*args, **kwargs)

    def _should_include_key(self, key: str, metadata: Metadata) -> bool:
        if self.keys is None or key in self.keys:
            return True
        path = [str(part) for part in metadata.planner_data.get(key)]
        return any(".".join(path[: count + 1]) in self.keys for count in range(len(path)))

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        if state_dict:
            raise AssertionError("not state_dict")
        if metadata is None:
            raise AssertionError("metadata is not None")
        for key, entry in metadata.state_dict_metadata.items():
            if not self._should_include_key(key, metadata):
                continue
            value: Any = entry
            if isinstance(entry, TensorStorageMetadata):
                value = empty(tuple(entry.size), entry.properties.dtype)
            if metadata.planner_data is not None and key in metadata.planner_data:
                set_element(state_dict, metadata.planner_data[key], value)
            else:
                state_dict[key] = value
        super().set_up_planner(state_dict, metadata, is_coordinator)


def create_default_local_load_plan(state_dict: dict[str, Any], metadata: Metadata, strict: bool = True) -> LoadPlan:
    """Return the plan of what must be read to fill a flat state dict."""
    items: list[ReadItem] = []
    for fqn, obj in state_dict.items():
        saved = metadata.state_dict_metadata.get(fqn)
        if saved is None:
            if strict:
                raise RuntimeError(f"Missing key in checkpoint state_dict: {fqn}.")
            continue
        if (
            isinstance(saved, TensorStorageMetadata)
            and getattr(obj, "size", None) is not None
            and saved.size != obj.size()
        ):
            raise ValueError(f"Size mismatch between saved {saved.size} and current: {obj.size()} for {fqn}")
        if not _is_elsewhere(obj):
            items += _create_read_items(fqn, saved, obj)
    return LoadPlan(items)


def create_default_global_load_plan(all_plans: list[LoadPlan]) -> list[LoadPlan]:
    """Return the plans unchanged: readers need no coordination."""
    return all_plans


def create_default_local_save_plan(state_dict: dict[str, Any], is_coordinator: bool) -> SavePlan:
    """Return a plan for everything in a flat state dict; duplicates among ranks are removed later."""
    return SavePlan(
        [item for fqn, obj in state_dict.items() if not _is_elsewhere(obj) for item in _create_write_items(fqn, obj)]
    )


def create_default_global_save_plan(
    all_plans: list[SavePlan], rewrite_index_hints: bool = True
) -> tuple[list[SavePlan], Metadata]:
    """Return the plans with each item's index in the metadata, and the metadata."""
    entries: dict[str, Any] = {}
    plans = []
    for plan in all_plans:
        items = []
        for item in plan.items:
            fqn = item.index.fqn
            if item.type != WriteItemType.SHARD and fqn in entries:
                raise AssertionError("item.index.fqn not in md")
            if item.type == WriteItemType.BYTE_IO:
                entries[fqn] = BytesStorageMetadata()
                items.append(item)
                continue
            data = item.tensor_data
            if data is None:
                raise AssertionError("item.tensor_data is not None")
            if data.chunk is None:
                raise AssertionError(f"Cannot create MD for tensor without bounds. FQN: {fqn}")
            entry = entries.setdefault(fqn, TensorStorageMetadata(data.properties, data.size, []))
            if rewrite_index_hints:
                item = dataclasses.replace(item, index=dataclasses.replace(item.index, index=len(entry.chunks)))
            items.append(item)
            entry.chunks.append(data.chunk)
        plans.append(dataclasses.replace(plan, items=items))
    return plans, Metadata(entries)


# -- whether the parts make the whole -------------------------------------------------------------------------------------------


def _check_box_bounds(outer_box_size: Size, inner_box: ChunkStorageMetadata) -> bool:
    return all(
        start >= 0 and size >= 0 and start + size <= whole
        for whole, start, size in zip(outer_box_size, inner_box.offsets, inner_box.sizes, strict=True)
    )


def _overlapping_pairs(
    parts: list[ChunkStorageMetadata], along: int
) -> list[tuple[ChunkStorageMetadata, ChunkStorageMetadata]]:
    """Return pairs of overlapping parts. Parts are swept in order along one dimension, compared with those not yet passed."""
    found: list[tuple[ChunkStorageMetadata, ChunkStorageMetadata]] = []
    passing: list[tuple[int, int]] = []
    for number, part in sorted(enumerate(parts), key=lambda entry: (entry[1].offsets[along], tuple(entry[1].offsets))):
        start = part.offsets[along]
        passing = [entry for entry in passing if entry[0] > start]
        found += [(part, parts[other]) for _, other in passing if _check_box_overlap(part, parts[other])]
        insort(passing, (start + part.sizes[along], number))
    return found


def _validate_global_plan(global_plan: list[SavePlan], metadata: Metadata) -> list[str]:
    """Return the errors in the parts: out of bounds, overlapping, or not covering the tensor."""
    errors = []
    for key, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, BytesStorageMetadata) or len(entry.size) == 0:
            continue
        errors += [
            f"key:{key} has out of bounds chunk: tensor-size:{entry.size} chunk: {part}"
            for part in entry.chunks
            if not _check_box_bounds(entry.size, part)
        ]
        along = max(range(len(entry.size)), key=lambda dim: entry.size[dim])
        errors += [
            f"key:{key} has overlapping chunks: {one} {other}" for one, other in _overlapping_pairs(entry.chunks, along)
        ]
        volume, held = math.prod(entry.size), sum(math.prod(part.sizes) for part in entry.chunks)
        if len(global_plan) > 1 and held != volume:
            errors.append(f"key:{key} invalid fill tensor-volume: {volume} chunks-volume: {held}")
    for error in errors:
        logger.warning(error)
    return errors
