"""Buckets of gradients that are reduced together, and the assignment of parameters to buckets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ..core.graph import unrecorded
from ..core.layout import is_non_overlapping_and_dense
from ..core.tensor import Tensor, empty

DEFAULT_FIRST_BUCKET_BYTES = 1024 * 1024


def assign_by_size(
    tensors: Sequence[Tensor],
    bucket_size_limits: Sequence[int],
    expect_sparse_gradient: Sequence[bool] = (),
    tensor_indices: Sequence[int] = (),
    logger: Any = None,
) -> tuple[list[list[int]], list[int]]:
    """Return indices of tensors in buckets of one dtype and device, each closed when its limit is reached; the k-th bucket of a kind has
    the k-th limit. A tensor with sparse gradients gets a separate bucket."""
    if not tensors:
        raise RuntimeError("tensors_size must be greater than 0")
    if any(t.is_sparse for t in tensors):
        message = "No support for sparse tensors."
        if logger is not None:
            logger.set_error_and_log(message)
        raise RuntimeError(message)
    finished: list[tuple[list[int], int]] = []
    open_buckets: dict[tuple, list[int]] = defaultdict(list)
    sizes: dict[tuple, int] = defaultdict(int)
    steps: dict[tuple, int] = defaultdict(int)
    for position, tensor in enumerate(tensors):
        index = tensor_indices[position] if tensor_indices else position
        if expect_sparse_gradient and expect_sparse_gradient[index]:
            finished.append(([index], 0))
            continue
        key = (tensor.dtype, tensor.device)
        open_buckets[key].append(index)
        sizes[key] += tensor.numel() * tensor.dtype.itemsize
        limit = bucket_size_limits[min(steps[key], len(bucket_size_limits) - 1)]
        if sizes[key] >= limit:
            finished.append((open_buckets.pop(key), limit))
            sizes[key] = 0
            steps[key] += 1
    for key, bucket in open_buckets.items():
        finished.append((bucket, bucket_size_limits[min(steps[key], len(bucket_size_limits) - 1)]))
    if not tensor_indices:  # else the order is that in which gradients become ready, and is kept
        finished.sort(key=lambda one: min(one[0]))
    return [bucket for bucket, _ in finished], [limit for _, limit in finished]


class Bucket:
    """Gradients of some parameters, concatenated in one flat tensor."""

    def __init__(self, indices: Sequence[int], parameters: Sequence[Tensor], sparse: bool):
        self.indices = list(indices)
        self.parameters = [parameters[i] for i in indices]
        self.sparse = sparse
        self.lengths = [p.numel() for p in self.parameters]
        self.offsets = [sum(self.lengths[:i]) for i in range(len(self.lengths))]
        first = self.parameters[0]
        self.flat: Any = None if sparse else empty((sum(self.lengths),), first.dtype, first.device)
        self.views: list[Tensor] = []
        if self.flat is not None:
            unrecorded(self.flat.zero_)
            self.views = self.views_of(self.flat)

    def views_of(self, flat: Tensor) -> list[Tensor]:
        """Return views of a flat tensor, each with the layout of its parameter."""
        views = []
        for parameter, offset, length in zip(self.parameters, self.offsets, self.lengths):
            part = unrecorded(lambda o=offset, n=length: flat[o : o + n])
            if is_non_overlapping_and_dense(parameter.shape, parameter._strides):
                view = unrecorded(part.as_strided, parameter.shape, parameter._strides, part.storage_offset())
            else:
                view = unrecorded(part.view, parameter.shape)
            views.append(view)
        return views

    @property
    def nbytes(self) -> int:
        return sum(self.lengths) * self.parameters[0].dtype.itemsize


class GradBucket:
    """Argument of a communication hook: a bucket whose gradients are all computed."""

    def __init__(self, index: int, bucket: Bucket, tensor: Tensor, is_last: bool):
        self._index, self._bucket, self._tensor, self._is_last = index, bucket, tensor, is_last

    def index(self) -> int:
        """Return the bucket's number, which identifies the same parameters in all iterations once buckets have been rebuilt."""
        return self._index

    def buffer(self) -> Tensor:
        """Return all gradients of the bucket as one flat tensor."""
        return self._tensor

    def gradients(self) -> list[Tensor]:
        """Return the gradients, as views of the buffer."""
        return self._bucket.views_of(self._tensor) if not self._bucket.sparse else [self._tensor]

    def parameters(self) -> list[Tensor]:
        return list(self._bucket.parameters)

    def is_last(self) -> bool:
        """Return whether no bucket comes after it in this iteration."""
        return self._is_last

    def set_buffer(self, buffer: Tensor) -> None:
        self._tensor = buffer
