"""Averaging of gradients, also in half precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....core.dtype import BY_NAME
from ....core.graph import unrecorded
from ....core.tensor import Tensor
from ....futures import Future
from ... import groups, records
from ...buckets import GradBucket
from ...reduce_op import ReduceOp

__all__ = [
    "allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook", "fp16_compress_wrapper",
]  # fmt: skip


def _group_or_default(process_group: Any) -> Any:
    return process_group if process_group is not None else groups._get_default_group()


def _average(process_group: Any, tensor: Tensor) -> Future:
    group = _group_or_default(process_group)
    unrecorded(tensor.div_, group.size())
    work = records.started(records.all_reduce_, tensor, ReduceOp.SUM, group)
    return work.get_future().then(lambda done: done.value()[0])


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Average a bucket's gradients, as without a hook."""
    return _average(process_group, bucket.buffer())


def _average_in_dtype(dtype: Any, process_group: Any, bucket: GradBucket) -> Future:
    buffer = bucket.buffer()
    if isinstance(process_group, Tensor):
        raise TypeError("the state of this hook is a process group")
    small = unrecorded(buffer.to, dtype)
    average = _average(process_group, small)
    return average.then(lambda done: unrecorded(buffer.copy_, done.value()))


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Average a bucket's gradients in float16."""
    return _average_in_dtype(BY_NAME["float16"], process_group, bucket)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Future:
    """Average a bucket's gradients in bfloat16."""
    return _average_in_dtype(BY_NAME["bfloat16"], process_group, bucket)


def _wrap_in_dtype(hook: Callable[[Any, GradBucket], Future], dtype: Any) -> Callable[[Any, GradBucket], Future]:
    def compressed(state: Any, bucket: GradBucket) -> Future:
        full = bucket.buffer()
        bucket.set_buffer(unrecorded(full.to, dtype))

        def widen(done: Future) -> Tensor:
            value = done.value()
            unrecorded(full.copy_, value[0] if isinstance(value, (list, tuple)) else value)
            return full

        return hook(state, bucket).then(widen)

    return compressed


def fp16_compress_wrapper(hook: Callable[[Any, GradBucket], Future]) -> Callable[[Any, GradBucket], Future]:
    """Return a hook that runs another one with gradients in float16."""
    return _wrap_in_dtype(hook, BY_NAME["float16"])


def bf16_compress_wrapper(hook: Callable[[Any, GradBucket], Future]) -> Callable[[Any, GradBucket], Future]:
    """Return a hook that runs another one with gradients in bfloat16."""
    return _wrap_in_dtype(hook, BY_NAME["bfloat16"])
