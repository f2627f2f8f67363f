"""Loading of checkpoints into tensors that are sharded over any number of ranks."""

from __future__ import annotations

import inspect
import logging
import os
import warnings
from typing import Any

from .. import groups
from ._storage_utils import _storage_setup
from .default_planner import DefaultLoadPlanner
from .metadata import Metadata
from .planner import LoadPlan, LoadPlanner
from .stateful import Stateful
from .storage import StorageReader
from .utils import _api_bc_check, _DistWrapper

__all__ = ["load", "load_state_dict"]

logger = logging.getLogger(__name__)


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: StorageReader,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    """Load a checkpoint: former name of `load`."""
    warnings.warn(
        "`load_state_dict` is deprecated and will be removed in future versions. Please use `load` instead.",
        FutureWarning,
        stacklevel=2,
    )
    storage_reader.reset()
    _load_state_dict(state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner)


def _is_single_process(no_dist: bool) -> bool:
    no_dist = no_dist or not groups.is_initialized()
    if no_dist:
        warnings.warn(
            "torch.distributed is disabled, unavailable or uninitialized, assuming the intent is to load in a single process.",
            stacklevel=3,
        )
    return no_dist


@_api_bc_check
def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: StorageReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Load a checkpoint into the tensors of `state_dict`, in place: each rank reads what its shards need, however the checkpoint was
    sharded. Objects with `load_state_dict()` get their state by it; values that are not tensors are replaced."""
    no_dist = _is_single_process(no_dist)
    reader = _storage_setup(storage_reader, checkpoint_id, reader=True)
    keys = sorted(state_dict)  # the same order on all ranks
    states = {k: v.state_dict() if isinstance(v := state_dict[k], Stateful) else v for k in keys}
    _load_state_dict(states, reader, process_group, no_dist=no_dist, planner=planner)
    for key in keys:
        if isinstance(state_dict[key], Stateful):
            state_dict[key].load_state_dict(states[key])
        else:
            state_dict[key] = states[key]


def _load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: StorageReader,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: LoadPlanner | None = None,
) -> None:
    ranks = _DistWrapper(process_group, not no_dist, coordinator_rank)
    chosen: LoadPlanner = planner or DefaultLoadPlanner()
    together = [True]  # whether the checkpoint is that of all ranks

    def plan_own() -> LoadPlan:
        metadata, together[0] = _read_metadata(storage_reader, ranks.rank)
        chosen.set_up_planner(state_dict, metadata, ranks.is_coordinator)
        if "kwargs" in inspect.signature(storage_reader.set_up_storage_reader).parameters:
            storage_reader.set_up_storage_reader(
                metadata, ranks.is_coordinator, rank=ranks.rank, use_collectives=together[0]
            )
        else:
            storage_reader.set_up_storage_reader(metadata, ranks.is_coordinator)
        return storage_reader.prepare_local_plan(chosen.create_local_plan())

    def plan_all(plans: list[LoadPlan]) -> list[LoadPlan]:
        return storage_reader.prepare_global_plan(chosen.create_global_plan(plans))

    plan = ranks.reduce_scatter("plan", plan_own, plan_all)
    ranks.all_gather("read", lambda: storage_reader.read_data(chosen.finish_plan(plan), chosen).wait())


def _read_metadata(reader: StorageReader, rank: int) -> tuple[Metadata, bool]:
    """Return the checkpoint's metadata, else that of this rank's own checkpoint; and whether it is the former."""
    try:
        return reader.read_metadata(), True
    except Exception as problem:
        if "kwargs" not in inspect.signature(reader.read_metadata).parameters:
            raise
        logger.warning("Global metadata is not found. Falling back to rank local metadata.")
        first = problem
    try:
        return reader.read_metadata(rank=rank), False
    except Exception as problem:
        raise AssertionError(
            f"metadata is None; global metadata read failed: {first}; rank local metadata read failed: {problem}"
        ) from first
