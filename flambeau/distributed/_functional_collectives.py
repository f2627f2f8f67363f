"""Collectives that return a new tensor, and their derivatives.

The result may still be in flight (`AsyncCollectiveTensor`): the first access to its memory waits for it. `now` in this file starts a
collective and waits, without a thread: for callers that need the result at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import dtype as dt
from ..core.overrides import disabled_torch_function
from ..core.size import make_size
from ..core.tensor import Tensor, is_contiguous_layout
from ..ops import namespace
from . import collectives, groups, records
from .records import listeners
from .records import told as _told
from .reduce_op import ReduceOp

_torch = namespace("torch")
_STORAGE = Tensor.__dict__["_storage"]


class AsyncCollectiveTensor(Tensor):
    """Result of a collective that may still be running: the first access to its memory waits."""

    __torch_function__ = disabled_torch_function
    _work: Any = None

    @property
    def _storage(self) -> Any:
        work = self._work
        if work is not None:
            self._work = None
            work.wait()
        return _STORAGE.__get__(self)

    @_storage.setter
    def _storage(self, value: Any) -> None:
        _STORAGE.__set__(self, value)

    def _bare_alias(self) -> Tensor:
        work = self._work
        if work is None:
            return super()._bare_alias()
        self._work = None  # copying the header does not wait
        alias = AsyncCollectiveTensor._make_subclass(AsyncCollectiveTensor, self)
        self._work = alias._work = work
        return alias

    def _view(self, shape: Any, strides: tuple[int, ...], offset: int) -> Tensor:
        if self._work is None:
            return super()._view(shape, strides, offset)
        alias = self._bare_alias()  # a view need not wait
        alias.shape, alias._strides, alias._offset = make_size(shape), strides, offset
        alias._contig = is_contiguous_layout(alias.shape, strides)
        return alias

    @property
    def completed(self) -> bool:
        """Return whether a wait for the collective has returned."""
        return self._work is None

    def trigger_wait(self) -> Tensor:
        """Wait for a collective and return its tensor."""
        assert self._storage is not None  # reading it waits
        return super()._bare_alias()

    wait = trigger_wait

    @property
    def elem(self) -> Tensor:
        return self.trigger_wait()


def wait_tensor(tensor: Any) -> Any:
    """Wait until a collective has written the tensor, and return it."""
    return tensor.trigger_wait() if isinstance(tensor, AsyncCollectiveTensor) else tensor


def _resolve_group(group: Any) -> Any:
    """Return the process group given as a group, by name, as a mesh (of one dimension) or as (mesh, dimension)."""
    if isinstance(group, tuple) and len(group) == 2 and hasattr(group[0], "get_group"):
        return group[0].get_group(group[1])
    if hasattr(group, "get_group"):
        return group.get_group()
    if isinstance(group, str):
        return groups._resolve_process_group(group)
    if isinstance(group, (list, tuple)):
        wanted = list(group)
        for known in groups._world.pg_map:
            if groups.get_process_group_ranks(known) == wanted:
                return known
        raise ValueError(f"there is no process group of the ranks {wanted}: make one with new_group")
    return group


def _to_reduce_op(name: Any) -> Any:
    return getattr(ReduceOp, name.upper()) if isinstance(name, str) else name


def _start_collective(name: str, result: Tensor, start: Callable[[bool], Any], now: bool) -> Tensor:
    _told(name)
    work = start(not now)
    if work is None:
        return result
    found = AsyncCollectiveTensor._make_subclass(AsyncCollectiveTensor, result)
    found._work = work
    return found


def _detached_contiguous(tensor: Tensor) -> Tensor:
    """Return the input of a collective: the tensor detached and contiguous."""
    return tensor.detach().contiguous()


# -- the collectives ------------------------------------------------------------------------------------------------------------


def all_reduce(self: Tensor, reduceOp: Any, group: Any, tag: str = "", *, now: bool = False) -> Tensor:
    """Return the sum (or another `reduceOp`) of every rank's tensor."""
    where = _resolve_group(group)
    result = _detached_contiguous(self).clone()
    is_flag = result.dtype is dt.bool_
    wide = result.to(dt.uint8) if is_flag else result
    found = _start_collective(
        "all_reduce", wide, lambda a: collectives.all_reduce(wide, _to_reduce_op(reduceOp), where, a), now or is_flag
    )
    return found.to(dt.bool_) if is_flag else found


def broadcast(self: Tensor, src: int, group: Any, tag: str = "", *, now: bool = False) -> Tensor:
    """Return the tensor of rank `src` on all ranks."""
    where, result = _resolve_group(group), _detached_contiguous(self).clone()
    return _start_collective("broadcast", result, lambda a: collectives.broadcast(result, src, where, a), now)


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "", *, now: bool = False) -> Tensor:
    """Return the tensors of all ranks, concatenated along `gather_dim`."""
    where, mine = _resolve_group(group), _detached_contiguous(self)
    count = groups.get_world_size(where)
    shape = mine.shape or (1,)
    result = mine.new_empty((count * shape[0], *shape[1:]))
    flat = mine.reshape(shape)
    at_once = now or gather_dim != 0
    found = _start_collective(
        "all_gather_into_tensor", result, lambda a: collectives.all_gather_into_tensor(result, flat, where, a), at_once
    )
    if gather_dim == 0:
        return found
    return _torch["cat"](found.chunk(count, 0), gather_dim)


def _check_parts(tensor: Tensor, dim: int, count: int) -> None:
    if tensor.shape[dim] % count:
        raise AssertionError(f"input dimension {dim} ({tensor.shape[dim]} must be a multiple of group_size {count})")


def reduce_scatter_tensor(
    self: Tensor, reduceOp: Any, scatter_dim: int, group: Any, tag: str = "", *, now: bool = False
) -> Tensor:
    """Return this rank's part, along `scatter_dim`, of the reduced tensor."""
    where = _resolve_group(group)
    count = groups.get_world_size(where)
    _check_parts(self, scatter_dim, count)
    mine = self.detach()
    mine = _torch["cat"](mine.chunk(count, scatter_dim), 0) if scatter_dim else mine.contiguous()
    result = mine.new_empty((mine.shape[0] // count, *mine.shape[1:]))
    return _start_collective(
        "reduce_scatter_tensor",
        result,
        lambda a: collectives.reduce_scatter_tensor(result, mine, _to_reduce_op(reduceOp), where, a),
        now,
    )


def all_to_all_single(
    self: Tensor,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    tag: str = "",
    *,
    now: bool = False,
) -> Tensor:
    """Send the r-th part of the tensor along dimension 0 to rank r, and return the parts received."""
    where, mine = _resolve_group(group), _detached_contiguous(self)
    rows = mine.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    result = mine.new_empty((rows, *mine.shape[1:]))
    return _start_collective(
        "all_to_all_single",
        result,
        lambda a: collectives.all_to_all_single(result, mine, output_split_sizes, input_split_sizes, where, a),
        now,
    )


def permute_tensor(self: Tensor, src_dst: list[int], group: Any, tag: str = "", *, now: bool = False) -> Tensor:
    """Send this rank's tensor to rank `src_dst[rank]` of the group, and return the one received."""
    where = _resolve_group(group)
    count, rank = groups.get_world_size(where), groups.get_rank(where)
    if len(src_dst) != count:
        raise AssertionError(f"permute_tensor needs the destination of each of the {count} ranks")
    sends, takes = [0] * count, [0] * count
    sends[src_dst[rank]] = takes[src_dst.index(rank)] = self.numel()
    found = all_to_all_single(self.reshape(-1), takes, sends, where, now=True)
    return found.reshape(self.shape)


def _notify_once(name: str, each: Callable[..., Tensor], *lists: Any) -> list[Tensor]:
    """Run a collective for each tensor, but notify listeners of a single one."""
    _told(name)
    found, listeners.found = listeners.found, []
    try:
        return [each(*one) for one in zip(*lists)]
    finally:
        listeners.found = found


def all_reduce_coalesced(self: list[Tensor], reduceOp: Any, group: Any, tag: str = "") -> list[Tensor]:
    """Reduce several tensors over all ranks."""
    return _notify_once("all_reduce_coalesced", lambda t: all_reduce(t, reduceOp, group, tag), self)


def all_gather_into_tensor_coalesced(self: list[Tensor], group: Any, tag: str = "") -> list[Tensor]:
    """Gather several tensors from all ranks, each joined along its first dimension."""
    return _notify_once("all_gather_into_tensor_coalesced", lambda t: all_gather_tensor(t, 0, group, tag), self)


def reduce_scatter_tensor_coalesced(
    inputs: list[Tensor], reduceOp: Any, scatter_dim: list[int], group: Any, tag: str = ""
) -> list[Tensor]:
    """Reduce several tensors over all ranks, and scatter the parts of each."""
    return _notify_once(
        "reduce_scatter_tensor_coalesced",
        lambda t, d: reduce_scatter_tensor(t, reduceOp, d, group, tag),
        inputs,
        scatter_dim,
    )


# -- with derivatives -------------------------------------------------------------------------------------------------------------


def all_gather_tensor_autograd(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """Gather a tensor from all ranks; its derivative is the scattered sum."""
    where = _resolve_group(group)
    found = records.all_gather(self.reshape(self.shape or (1,)), where)
    return found if gather_dim == 0 else _torch["cat"](found.chunk(where.size(), 0), gather_dim)


def reduce_scatter_tensor_autograd(self: Tensor, reduceOp: Any, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    """Reduce a tensor over all ranks and scatter its parts; its derivative gathers them."""
    op, where = _to_reduce_op(reduceOp), _resolve_group(group)
    if op not in (ReduceOp.SUM, ReduceOp.AVG):
        raise AssertionError(f"only the sum and the average have a derivative, not {reduceOp}")
    _check_parts(self, scatter_dim, where.size())
    rows = _torch["cat"](self.chunk(where.size(), scatter_dim), 0) if scatter_dim else self
    return records.reduce_scatter(rows, op, where)


def all_to_all_single_autograd(
    self: Tensor, output_split_sizes: Any, input_split_sizes: Any, group: Any, tag: str = ""
) -> Tensor:
    """Exchange parts of a tensor between all ranks; its derivative sends them back."""
    return records.all_to_all(self, output_split_sizes, input_split_sizes, _resolve_group(group))


all_gather_single, all_gather_single_autograd = all_gather_tensor, all_gather_tensor_autograd
reduce_scatter_single, reduce_scatter_single_autograd = reduce_scatter_tensor, reduce_scatter_tensor_autograd
