"""Steps that all ranks run together, with errors propagated to all; lookup in state dicts; views of files."""

from __future__ import annotations

import functools
import inspect
import io
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from ...core.size import Size
from ...core.tensor import Tensor
from .. import collectives, groups, object_collectives
from .._shard.sharded_tensor import ShardedTensor
from ..tensor import DTensor
from .api import CheckpointException, _is_wrapped_exception, _wrap_exception
from .metadata import MetadataIndex

__all__ = ["find_state_dict_object", "find_tensor_shard"]

T = TypeVar("T")
R = TypeVar("R")
Function = TypeVar("Function", bound=Callable[..., Any])


def _get_failure_dict(results: list[Any]) -> dict[int, Any]:
    return {rank: result for rank, result in enumerate(results) if _is_wrapped_exception(result)}


def _attempt(function: Callable[[], T]) -> Any:
    """Return the function's result, or its exception with the stack, ready to be sent."""
    try:
        return function()
    except BaseException as problem:
        return _wrap_exception(problem)


class _DistWrapper:
    """Collectives of objects among the ranks of a group, or in one process alone. In steps given as functions, an error on any rank raises
    CheckpointException on all."""

    def __init__(self, group: Any, use_dist: bool, coordinator_rank: int) -> None:
        self.group, self.use_dist, self.coordinator_rank = group, use_dist, coordinator_rank
        self.global_coordinator_rank = self.rank = 0
        self.is_coordinator = True
        if use_dist:
            self.global_coordinator_rank = (
                coordinator_rank if group is None else groups.get_global_rank(group, coordinator_rank)
            )
            self.rank = groups.get_rank(group)
            self.is_coordinator = self.rank == coordinator_rank

    def get_rank(self) -> int:
        return self.rank

    def get_world_size(self) -> int:
        return groups.get_world_size(self.group) if self.use_dist else 1

    def broadcast_object(self, object: Any) -> Any:
        box = [object]
        if self.use_dist:
            object_collectives.broadcast_object_list(box, group=self.group, src=self.global_coordinator_rank)
        return box[0]

    def gather_object(self, object: T) -> list[T] | None:
        if not self.use_dist:
            return [object]
        gathered: Any = [None] * self.get_world_size() if self.is_coordinator else None
        object_collectives.gather_object(object, gathered, dst=self.global_coordinator_rank, group=self.group)
        return gathered

    def all_gather_object(self, object: T) -> list[T]:
        if not self.use_dist:
            return [object]
        gathered: Any = [None] * self.get_world_size()
        object_collectives.all_gather_object(gathered, object, group=self.group)
        return gathered

    def scatter_object(self, object_list: list[T] | None) -> T:
        if not self.use_dist:
            if object_list is None:
                raise AssertionError("object_list is None")
            return object_list[0]
        box: Any = [None]
        given = object_list if self.is_coordinator else None
        object_collectives.scatter_object_list(box, given, src=self.global_coordinator_rank, group=self.group)
        return box[0]

    def _combine_results(self, step: str, gathered: list | None, reduce_fun: Callable) -> Any:
        """Return the reduction of all ranks' results (on the coordinator), or the errors of some."""
        assert gathered is not None
        failures = _get_failure_dict(gathered)
        if not failures:
            result = _attempt(lambda: reduce_fun(gathered))
            if not _is_wrapped_exception(result):
                return result
            failures = {self.rank: result}
        return CheckpointException(step, failures)

    def reduce_scatter(self, step: str, map_fun: Callable[[], T], reduce_fun: Callable[[list[T]], list[R]]) -> R:
        """Reduce the results of every rank's map_fun() by reduce_fun on the coordinator, and send one item of the result to each rank."""
        gathered = self.gather_object(_attempt(map_fun))
        results: Any = None
        if self.is_coordinator:
            results = self._combine_results(step, gathered, reduce_fun)
            if isinstance(results, CheckpointException):
                results = [results] * self.get_world_size()
        return _result_or_raise(self.scatter_object(results))

    def all_reduce(self, step: str, map_fun: Callable[[], T], reduce_fun: Callable[[list[T]], R]) -> R:
        """Reduce the results of every rank's map_fun() by reduce_fun on the coordinator, and return the result on every rank."""
        gathered = self.gather_object(_attempt(map_fun))
        result = self._combine_results(step, gathered, reduce_fun) if self.is_coordinator else None
        return _result_or_raise(self.broadcast_object(result))

    def all_gather(self, step: str, map_fun: Callable[[], T]) -> list[T]:
        """Return the results of every rank's map_fun() on every rank."""
        results = self.all_gather_object(_attempt(map_fun))
        failures = _get_failure_dict(results)
        if failures:
            raise CheckpointException(step, failures)
        return results

    def broadcast(self, step: str, map_fun: Callable[[], T]) -> T:
        """Return the result of the coordinator's map_fun() on every rank."""
        result: Any = None
        if self.is_coordinator:
            result = _attempt(map_fun)
            if _is_wrapped_exception(result):
                result = CheckpointException(step, {self.rank: result})
        return _result_or_raise(self.broadcast_object(result))

    def barrier(self) -> None:
        if self.use_dist:
            collectives.barrier(group=self.group)


def _result_or_raise(result: Any) -> Any:
    if isinstance(result, CheckpointException):
        raise result
    return result


# -- state dicts ----------------------------------------------------------------------------------------------------------------


def _find_shard(tensor: ShardedTensor, index: MetadataIndex) -> Any:
    """Return the shard of a ShardedTensor that begins at `index.offset`; `index.index` is a hint."""
    if index.offset is None:
        raise ValueError(f"Cannot lookup {index.fqn} since its a ShardedTensor and no offset was provided")
    shards = tensor.local_shards()
    hinted = shards[index.index : index.index + 1] if index.index is not None else []
    for shard in [*hinted, *shards]:
        if Size(shard.metadata.shard_offsets) == index.offset:
            return shard
    raise ValueError(f"Could not find shard at '{index.offset}' for FQN: '{index.fqn}'")


def find_tensor_shard(tensor: Any, index: MetadataIndex) -> Tensor:
    """Return the part of a tensor on this rank that `index` names."""
    if hasattr(tensor, "__get_tensor_shard__"):
        return tensor.__get_tensor_shard__(index)
    if isinstance(tensor, DTensor):
        return tensor.to_local()
    if isinstance(tensor, ShardedTensor):
        return _find_shard(tensor, index).tensor
    if index.offset is not None and index.offset != Size([0] * tensor.dim()):
        raise ValueError(f"FQN: '{index.fqn}' is not a ShardedTensor, can't find by offset: '{index.offset}'")
    return tensor


def find_state_dict_object(state_dict: dict[str, Any], index: MetadataIndex) -> Any:
    """Return the object of a state dict that an index names."""
    if index.fqn not in state_dict:
        raise ValueError(f"Could not find FQN: '{index.fqn}'")
    found = state_dict[index.fqn]
    if isinstance(found, Tensor) or hasattr(found, "__get_tensor_shard__"):
        return find_tensor_shard(found, index)
    if index.offset is not None:
        raise ValueError(f"FQN: '{index.fqn}' is not a ShardedTensor, can't find by offset: '{index.offset}'")
    return found


def narrow_tensor_by_index(tensor: Tensor, offsets: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Return a view of the block of a tensor that begins at `offsets`."""
    for dim, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        if size < tensor.size(dim):
            tensor = tensor.narrow(dim, offset, size)
    return tensor


# -- files ----------------------------------------------------------------------------------------------------------------------


class _ReaderView(io.IOBase):
    """A range of a file, with the interface of a file."""

    def __init__(self, base_stream: io.IOBase, offset: int, len: int) -> None:
        super().__init__()
        self.offset, self.len, self.base_stream = offset, len, base_stream
        self.seek(0)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if whence == os.SEEK_SET:
            offset += self.offset
        elif whence == os.SEEK_END:
            whence, offset = os.SEEK_SET, self.offset + self.len - offset
        return self.base_stream.seek(offset, whence)

    def tell(self) -> int:
        return self.base_stream.tell() - self.offset

    def readable(self) -> bool:
        return self.base_stream.readable()

    def seekable(self) -> bool:
        return self.base_stream.seekable()

    def readinto(self, b: Any) -> int:
        room = min(len(b), self.len - self.tell())
        return self.base_stream.readinto(memoryview(b)[:room]) if room > 0 else 0  # type: ignore[attr-defined]

    def read(self, size: int = -1) -> bytes:
        left = max(0, self.len - self.tell())
        return self.base_stream.read(left if size is None or size < 0 else min(size, left))


def _create_file_view(file: io.IOBase, offset: int, length: int) -> io.IOBase:
    return _ReaderView(file, offset, length)


# -- older calls ----------------------------------------------------------------------------------------------------------------


def _api_bc_check(func: Function) -> Function:
    """Decorate a function so that keyword-only arguments may still be passed by position, with a warning."""

    @functools.wraps(func)
    def inner(*args: Any, **kwargs: Any) -> Any:
        if len(args) <= 1:
            return func(*args, **kwargs)
        warnings.warn(
            f"The argument order of {func.__name__} has been changed. Please check the document to avoid future breakages.",
            stacklevel=2,
        )
        names = [p.name for p in inspect.signature(func).parameters.values() if p.kind == p.KEYWORD_ONLY]
        if "storage_writer" in names or "storage_reader" in names:
            kind = "storage_writer" if "storage_writer" in names else "storage_reader"
            order: list[str | None] = [kind, "process_group", "coordinator_rank", "no_dist", "planner"]
            if "coordinator_rank" not in names:
                order = [kind, "process_group", None, "no_dist", "planner"]
            kwargs.update({name: value for name, value in zip(order, args[1:]) if name is not None})
        return func(args[0], **kwargs)

    return cast(Function, inner)
