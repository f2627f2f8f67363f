"""Post-local SGD: from some iteration on, gradients are averaged within a subgroup only (or not at all)."""

from __future__ import annotations

from typing import Any

from ....futures import Future, settled
from ...buckets import GradBucket
from .default_hooks import _average, _group_or_default


class PostLocalSGDState:
    """State of the hook: its process groups, and the iteration at which it changes to local averages."""

    def __init__(
        self, process_group: Any, subgroup: Any, start_localSGD_iter: int, post_local_gradient_allreduce: bool = True
    ):
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter, self.post_local_gradient_allreduce = (
            start_localSGD_iter,
            post_local_gradient_allreduce,
        )
        self.iter = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        if bucket.is_last():
            self.iter += 1


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Future:
    """Average gradients over all ranks first, and from `start_localSGD_iter` on over the subgroup."""
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return _average(_group_or_default(state.process_group), bucket.buffer())
    if not state.post_local_gradient_allreduce:
        return settled(bucket.buffer())
    if state.subgroup is None:
        raise ValueError("post_localSGD_hook: state.subgroup is needed: make it with new_subgroups()")
    return _average(state.subgroup, bucket.buffer())
