"""Assignment of a sequence's positions to ranks, so that all have an equal amount of work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from .....core.dtype import int32
from .....core.tensor import Tensor
from .....ops import namespace

_torch = namespace("torch")


class _RotateMethod(Enum):
    """Way in which keys and values reach the other ranks: round by round (all-to-all), or all at once (all-gather)."""

    ALL_TO_ALL = auto()
    ALL_GATHER = auto()


@dataclass
class _ContextParallelOptions:
    """Options. `enable_load_balance`: whether ranks have parts from the front and the back. `rotate_method`: how parts are exchanged."""

    convert_to_f32: bool = True
    enable_load_balance: bool = True
    rotate_method: _RotateMethod = _RotateMethod.ALL_GATHER


_cp_options = _ContextParallelOptions()


class _LoadBalancer(ABC):
    """Base of load balancers: a permutation of positions, with those of the first rank first."""

    @abstractmethod
    def _generate_indices(self, restore: bool = False) -> Tensor | None:
        """Return the permutation, (1, length) or (batch, length); with `restore` its inverse."""


def _head_and_tail(start: int, length: int, parts: int) -> list[int]:
    """Return positions in which each rank has a piece from the front and one from the back, together of equal cost."""
    if length % (2 * parts):
        raise AssertionError(f"a sequence of length {length} cannot be cut into {2 * parts} equal pieces")
    size = length // (2 * parts)
    found: list[int] = []
    for rank in range(parts):
        for piece in (rank, 2 * parts - 1 - rank):
            found += range(start + piece * size, start + (piece + 1) * size)
    return found


def _undone(order: Tensor, restore: bool) -> Tensor:
    return order.argsort(-1) if restore else order


class _HeadTailLoadBalancer(_LoadBalancer):
    """Load balancer for causal attention: each rank has a piece from the front of the sequence and one from its back."""

    def __init__(self, seq_length: int, world_size: int, device: Any) -> None:
        self.seq_length, self.world_size, self.device = seq_length, world_size, device

    def _generate_indices(self, restore: bool = False) -> Tensor:
        order = _head_and_tail(0, self.seq_length, self.world_size)
        return _undone(_torch["tensor"]([order], dtype=int32, device=self.device), restore)


class _PerDocumentHeadTailLoadBalancer(_LoadBalancer):
    """Balance causal attention within each document of a packed sequence; the lengths are given for each sequence of the batch."""

    def __init__(self, seq_length_per_doc: list[list[int]], world_size: int, device: Any) -> None:
        self.seq_length_per_doc, self.world_size, self.device = seq_length_per_doc, world_size, device

    def _generate_indices(self, restore: bool = False) -> Tensor:
        rows = []
        for lengths in self.seq_length_per_doc:
            row: list[int] = []
            for length in lengths:
                row += _head_and_tail(len(row), length, self.world_size)
            rows.append(row)
        return _undone(_torch["tensor"](rows, device=self.device), restore)


class _PTRRLoadBalancer(_LoadBalancer):
    """Load balancer for `flex_attention`: blocks of queries sorted by their number of key blocks, dealt to the ranks back and forth."""

    def __init__(self, block_mask: Any, world_size: int) -> None:
        self.block_mask, self.world_size = block_mask, world_size

    @staticmethod
    def ptrr_scheduling(process_time: Tensor, group_size: int) -> Tensor:
        """Return tasks in groups (groups, tasks of each): the longest first, dealt to the groups back and forth."""
        count = process_time.shape[0]
        if count % group_size:
            raise NotImplementedError(f"num_tasks {count} must be divisible by group_size {group_size}")
        rounds = process_time.sort(stable=True, descending=True).indices.view(-1, group_size)
        back = _torch["arange"](rounds.shape[0], device=process_time.device).unsqueeze(1) % 2 == 1
        return _torch["where"](back, rounds.flip(1), rounds).t().sort(1).values

    def _generate_indices(self, restore: bool = False) -> Tensor:
        mask = self.block_mask
        blocks = mask.kv_num_blocks
        if mask.full_kv_num_blocks is not None:
            blocks = blocks + mask.full_kv_num_blocks
        size, other = mask.BLOCK_SIZE
        if size != other:
            raise AssertionError("for now only support q_blk_size == kv_blk_size")
        times = blocks.reshape(-1, blocks.shape[-1])  # masks are the same for all heads
        order = _torch["stack"]([self.ptrr_scheduling(row, self.world_size).reshape(-1) for row in times])
        within = _torch["arange"](size, device=order.device)
        return _undone((order.unsqueeze(-1) * size + within).reshape(len(times), -1), restore)


def _create_default_load_balancer(seq_length: int, world_size: int, device: Any) -> _LoadBalancer | None:
    """Return the load balancer for causal attention, if it is enabled and the sequence length allows it; else None."""
    if _cp_options.enable_load_balance and seq_length % (world_size * 2) == 0:
        return _HeadTailLoadBalancer(seq_length, world_size, device)
    return None
