"""PowerSGD (Vogels, Karimireddy, Jaggi, 2019): gradients of matrices are sent as products of two thin ones.

A gradient M (n x m) is approximated by P Q' with r columns: P = M Q, made orthogonal; Q = M' P. Both are averaged over the ranks, the error
is added to the next iteration's gradient (error feedback), and Q is the next iteration's start (warm start)."""

from __future__ import annotations

import math
from typing import Any

from ....core.generator import Generator
from ....core.graph import unrecorded
from ....core.tensor import Tensor
from ....futures import Future, settled
from ....linalg import qr
from ....ops import namespace
from ... import collectives
from ...buckets import GradBucket
from .default_hooks import _average, _group_or_default

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]
_torch = namespace("torch")


class PowerSGDState:
    """Settings, errors and warm starts of the hooks."""

    def __init__(
        self,
        process_group: Any,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because PowerSGD can only be"
                " applied after the first two iterations in DDP."
            )
        self.process_group, self.matrix_approximation_rank = process_group, matrix_approximation_rank
        self.start_powerSGD_iter, self.min_compression_rate = start_powerSGD_iter, min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.orthogonalization_epsilon, self.random_seed = orthogonalization_epsilon, random_seed
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape
        self.compression_stats_logging_frequency = compression_stats_logging_frequency
        self.error_dict: dict[int, Tensor] = {}
        self.q_memory_dict: dict[tuple[int, int], Tensor] = {}
        self.iter = 0
        self.total_numel_before_compression = self.total_numel_after_compression = 0

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "process_group"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.process_group = _group_or_default(None)
        vars(self).update(state)

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        if bucket.is_last():
            self.iter += 1

    def compression_stats(self) -> tuple[float, int, int]:
        """Return the compression factor, and the numbers of elements before and after compression."""
        after = self.total_numel_after_compression
        rate = self.total_numel_before_compression / after if after else 0
        return rate, self.total_numel_before_compression, after


def _orthogonalize(matrix: Tensor, epsilon: float) -> None:
    """Make the columns orthonormal, in place, by reflections, which handle linearly dependent columns too."""
    if matrix.shape[1] == 1:
        norm = matrix.norm() + epsilon
        matrix.div_(norm if float(norm) else 1.0)
    else:
        matrix.copy_(qr(matrix)[0])


def _initial_q(state: PowerSGDState, key: tuple[int, int], rows: int, rank: int, like: Tensor) -> Tensor:
    """Return the initial Q: the last one, or random columns that are the same on all ranks."""
    known = state.q_memory_dict.get(key)
    if state.warm_start and known is not None:
        return known
    saved = _random_matrix(state, key, rows, rank, like)
    _orthogonalize(saved, state.orthogonalization_epsilon)
    state.q_memory_dict[key] = saved
    return saved


def _random_matrix(state: PowerSGDState, key: tuple[int, int], rows: int, rank: int, like: Tensor) -> Tensor:
    seed = state.random_seed * 7919 + key[0] * 104729 + key[1] + (0 if state.warm_start else state.iter * 31)
    generator = Generator().manual_seed(seed)
    return _torch["randn"](rows, rank, generator=generator).to(like.dtype)


def _compress(state: PowerSGDState, bucket: GradBucket, matrices: list[Tensor], numbers: list[int]) -> None:
    """Replace each matrix by the average of its low-rank approximations over the ranks."""
    group = _group_or_default(state.process_group)
    size = group.size()
    qs, ps = [], []
    for matrix, number in zip(matrices, numbers):
        rank = min(*matrix.shape, state.matrix_approximation_rank)
        q = _initial_q(state, (bucket.index(), number), matrix.shape[1], rank, matrix)
        if state.warm_start:
            q = q.clone()
            _orthogonalize(q, state.orthogonalization_epsilon)
        qs.append(q)
        ps.append(matrix @ q)
    _all_reduce(ps, group)
    for p in ps:
        _orthogonalize(p, state.orthogonalization_epsilon)
    qs = [matrix.t() @ p for matrix, p in zip(matrices, ps)]
    _all_reduce(qs, group)
    for matrix, p, q, number in zip(matrices, ps, qs, numbers):
        q.div_(size)
        state.q_memory_dict[(bucket.index(), number)] = q
        matrix.copy_(p @ q.t())
        state.total_numel_before_compression += matrix.numel()
        state.total_numel_after_compression += p.numel() + q.numel()


def _all_reduce(tensors: list[Tensor], group: Any) -> None:
    if tensors:
        collectives.all_reduce_coalesced(tensors, group=group)


def _is_compressible(gradient: Tensor, state: PowerSGDState) -> bool:
    if gradient.dim() < 2:
        return False
    rows = gradient.shape[0]
    columns = gradient.numel() // max(rows, 1)
    rank = min(rows, columns, state.matrix_approximation_rank)
    return (rows + columns) * rank * state.min_compression_rate < rows * columns


def _average_compressed(state: PowerSGDState, bucket: GradBucket, batched: bool) -> Future:
    group = _group_or_default(state.process_group)
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return _average(group, bucket.buffer())
    buffer = bucket.buffer()
    error = state.error_dict.get(bucket.index())
    if state.use_error_feedback and error is not None:
        buffer.add_(error)
    original = buffer.clone() if state.use_error_feedback else None
    if batched:
        _approximate_square(state, bucket, buffer)
    else:
        _approximate_each(state, bucket, group)
    if original is not None:
        state.error_dict[bucket.index()] = original - buffer
    state.maybe_increase_iter(bucket)
    return settled(buffer)


def _approximate_each(state: PowerSGDState, bucket: GradBucket, group: Any) -> None:
    matrices, numbers, plain = [], [], []
    for number, gradient in enumerate(bucket.gradients()):
        if _is_compressible(gradient, state):
            matrices.append(gradient.view(gradient.shape[0], -1))
            numbers.append(number)
        else:
            plain.append(gradient)
    _all_reduce(plain, group)
    for gradient in plain:
        gradient.div_(group.size())
        state.total_numel_before_compression += gradient.numel()
        state.total_numel_after_compression += gradient.numel()
    _compress(state, bucket, matrices, numbers)


def _approximate_square(state: PowerSGDState, bucket: GradBucket, buffer: Tensor) -> None:
    side = math.ceil(math.sqrt(buffer.numel()))
    square = _torch["cat"]([buffer, buffer.new_zeros(side * side - buffer.numel())]).view(side, side)
    _compress(state, bucket, [square], [0])
    buffer.copy_(square.view(-1)[: buffer.numel()])


def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future:
    """Average a bucket's gradients by PowerSGD: every matrix of the bucket is approximated separately."""
    return unrecorded(_average_compressed, state, bucket, False)


def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future:
    """Average a bucket's gradients by PowerSGD on the whole bucket as one square matrix: faster, and less accurate."""
    return unrecorded(_average_compressed, state, bucket, True)
