"""Gradients sent in 8 bits, with scale and zero point of a whole bucket or of parts of it."""

from __future__ import annotations

from typing import Any

from ....core.graph import unrecorded
from ....core.tensor import Tensor
from ....futures import Future
from ....ops import namespace
from ... import collectives, records
from ...buckets import GradBucket
from .default_hooks import _group_or_default

_torch = namespace("torch")


def _quantize_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows of numbers as bytes, and for each row its smallest number and the step size."""
    low, high = rows.amin(1, keepdim=True), rows.amax(1, keepdim=True)
    step = ((high - low) / 255).clamp_min(1e-12)
    return ((rows - low) / step).round().clamp(0, 255).to(_torch["zeros"](1).byte().dtype), _torch["cat"](
        [low, step], 1
    )


def _dequantize_rows(data: Tensor, scales: Tensor) -> Tensor:
    return data.to(scales.dtype) * scales[:, 1:] + scales[:, :1]


def _average_quantized(process_group: Any, bucket: GradBucket, width: int) -> Future:
    group = _group_or_default(process_group)
    buffer = bucket.buffer()
    padding = -buffer.numel() % width
    rows = _torch["cat"]([buffer.detach(), buffer.new_zeros(padding)]).view(-1, width)
    data, scales = _quantize_rows(rows)
    all_data = [_torch["empty_like"](data) for _ in range(group.size())]
    all_scales = [_torch["empty_like"](scales) for _ in range(group.size())]
    collectives.all_gather(all_scales, scales, group)
    work = records.started(records.all_gather_, all_data, data, group)

    def add_up(done: Future) -> Tensor:
        done.value()
        total = sum(_dequantize_rows(d, s) for d, s in zip(all_data, all_scales))
        return buffer.copy_((total / group.size()).view(-1)[: buffer.numel()])

    return work.get_future().then(lambda done: unrecorded(add_up, done))


def quantization_pertensor_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Average gradients that are sent in 8 bits, with one scale per bucket."""
    return unrecorded(_average_quantized, process_group, bucket, max(1, bucket.buffer().numel()))


def quantization_perchannel_hook(process_group: Any, bucket: GradBucket, bucket_size: int = 512) -> Future:
    """Average gradients that are sent in 8 bits, with a scale for every `bucket_size` numbers."""
    return unrecorded(_average_quantized, process_group, bucket, bucket_size)
