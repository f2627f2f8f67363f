"""Saving of checkpoints: `save`, and `async_save` in the background."""

from __future__ import annotations

import inspect
import os
import warnings
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .. import groups
from ._async_executor import _ProcessBasedAsyncCheckpointExecutor, _ThreadBasedAsyncCheckpointExecutor
from ._storage_utils import _storage_setup
from .default_planner import DefaultSavePlanner
from .metadata import Metadata
from .planner import SavePlan, SavePlanner
from .staging import AsyncStager, DefaultStager, StagingOptions
from .stateful import Stateful
from .storage import StorageWriter
from .utils import _api_bc_check, _DistWrapper

__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save", "save_state_dict"]


class AsyncCheckpointerType(Enum):
    """Executor of `async_save`: a thread or a process."""

    THREAD = "thread"
    PROCESS = "process"


@dataclass
class AsyncSaveResponse:
    """Futures of the staging and of the save."""

    staging_completion: Future
    upload_completion: Future


def save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: StorageWriter,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
) -> Metadata:
    """Save a checkpoint: former name of `save`."""
    warnings.warn(
        "`save_state_dict` is deprecated and will be removed in future versions.Please use `save` instead.",
        FutureWarning,
        stacklevel=2,
    )
    storage_writer.reset()
    return _save_state_dict(state_dict, storage_writer, process_group, coordinator_rank, no_dist, planner)


@_api_bc_check
def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Save a state dict: every rank writes its shards, and one rank what all have. For objects with a `state_dict()` its result is saved.
    `checkpoint_id` is a folder; an existing checkpoint there stays complete until the new one is. With `no_dist` (or without a process
    group) this process saves alone; without `use_collectives` each rank saves a checkpoint of its own in the same folder."""
    no_dist = no_dist or not groups.is_initialized()
    if no_dist:
        warnings.warn(
            "torch.distributed is disabled, unavailable or uninitialized, assuming the intent is to save in a single process.",
            stacklevel=2,
        )
    writer = _storage_setup(storage_writer, checkpoint_id, reader=False)
    return _save_state_dict(
        _stateful_to_state_dict(state_dict),
        writer,
        process_group,
        no_dist=no_dist,
        planner=planner,
        use_collectives=use_collectives,
    )


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: StorageWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Any = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future[Any] | AsyncSaveResponse:
    """Copy a state dict and save the copy in the background, in a thread or in a process; returns a future of the Metadata. With a stager
    that copies in the background, too, returns futures of both."""
    own = None
    if async_stager is None:
        if storage_writer is not None and isinstance(storage_writer, AsyncStager):
            async_stager = storage_writer
        else:
            async_stager = own = DefaultStager(StagingOptions(False, False, False, False))
    kinds: dict[Any, Any] = {
        AsyncCheckpointerType.PROCESS: _ProcessBasedAsyncCheckpointExecutor,
        AsyncCheckpointerType.THREAD: _ThreadBasedAsyncCheckpointExecutor,
    }
    staged = async_stager.stage(_stateful_to_state_dict(state_dict))
    upload: Future = kinds[async_checkpointer_type]().execute_save(
        staged,
        checkpoint_id=checkpoint_id,
        storage_writer=storage_writer,
        planner=planner,
        process_group=process_group,
        no_dist=no_dist,
        use_collectives=use_collectives,
    )
    if own is not None:
        upload.add_done_callback(lambda _: own.close())
    if isinstance(staged, Future):
        copied: Future = Future()
        staged.add_done_callback(lambda done: _copy_outcome(done, copied))
        return AsyncSaveResponse(staging_completion=copied, upload_completion=upload)
    if async_stager.should_synchronize_after_execute:
        async_stager.synchronize_staging()
    return upload


def _copy_outcome(done: Future, target: Future) -> None:
    problem = done.exception()
    if problem is None:
        target.set_result(None)
    else:
        target.set_exception(problem)


def _stateful_to_state_dict(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Return the dictionary with objects replaced by the result of their `state_dict()`, if they have one."""
    return {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in state_dict.items()}


def _save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: StorageWriter,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: SavePlanner | None = None,
    use_collectives: bool = True,
) -> Metadata:
    ranks = _DistWrapper(process_group, not no_dist, coordinator_rank)
    chosen: SavePlanner = planner or DefaultSavePlanner()
    metadata: list[Metadata] = []

    def plan_own() -> SavePlan:
        if "storage_meta" in inspect.signature(chosen.set_up_planner).parameters:
            chosen.set_up_planner(
                state_dict=state_dict, storage_meta=storage_writer.storage_meta(), is_coordinator=ranks.is_coordinator
            )
        else:
            warnings.warn(
                "The function definition for SavePlanner.set_up_planner has been updated to include the storage_meta argument."
                " Please update your implementation to include this parameter.",
                stacklevel=2,
            )
            chosen.set_up_planner(state_dict, ranks.is_coordinator)  # type: ignore[arg-type]
        if "kwargs" in inspect.signature(storage_writer.set_up_storage_writer).parameters:
            storage_writer.set_up_storage_writer(ranks.is_coordinator, rank=ranks.rank, use_collectives=use_collectives)
        else:
            storage_writer.set_up_storage_writer(ranks.is_coordinator)
        return storage_writer.prepare_local_plan(chosen.create_local_plan())

    def plan_all(plans: list[SavePlan]) -> list[SavePlan]:
        plans, made = chosen.create_global_plan(plans)
        metadata.append(made)
        return storage_writer.prepare_global_plan(plans)

    def write(plan: SavePlan) -> list:
        return storage_writer.write_data(chosen.finish_plan(plan), chosen).wait()

    def finish(results: list[list]) -> Metadata:
        storage_writer.finish(metadata=metadata[0], results=results)
        return metadata[0]

    if use_collectives:
        plan = ranks.reduce_scatter("plan", plan_own, plan_all)
        return ranks.all_reduce("write", lambda: write(plan), finish)
    saved = finish([write(plan_all([plan_own()])[0])])
    ranks.barrier()
    return saved
