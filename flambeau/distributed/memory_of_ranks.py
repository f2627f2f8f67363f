"""Memory use of all ranks in one image.

>>> with flambeau.profiler.profile(profile_memory=True) as profile:
...     train()
>>> save_memory_of_ranks(profile, "memory.svg")"""

from __future__ import annotations

from typing import Any

from ..core import svg
from ..profiler.memory import MemoryProfile, drawn
from . import groups
from .object_collectives import gather_object

_WIDTH, _HEIGHT, _MOMENTS = 960, 420, 400


def save_memory_of_ranks(profile: Any, path: str, device: str = "cpu", group: Any = None) -> dict[int, int] | None:
    """Write an image of the bytes in use over time on each rank, all to the same scale; all ranks must call it. Rank 0 writes and gets
    the peak of each rank; the others get None."""
    times, sizes = MemoryProfile(profile.profiler.kineto_results).sizes(device)
    most_of_all = max((sum(row) for row in sizes), default=0)
    times, sizes = _thin_timeline(times, sizes)
    rank, count = groups.get_rank(group), groups.get_world_size(group)
    found: list[Any] | None = [None] * count if rank == 0 else None
    gather_object((times, sizes, most_of_all), found, 0, group)
    if found is None:
        return None
    most = [highest for _, _, highest in found]
    panels = [
        svg.group(0, number * _HEIGHT, [drawn(moments, rows, f"{device} of rank {number}", max(most))])
        for number, (moments, rows, _) in enumerate(found)
    ]
    svg.document(_WIDTH, _HEIGHT * count, panels).save(path)
    return dict(enumerate(most))


def _thin_timeline(times: list[int], sizes: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Reduce a timeline to as many moments as a drawing can show: of those that coincide, the one with most memory."""
    kept: dict[int, int] = {}
    length = (times[-1] if times else 0) or 1
    for i, moment in enumerate(times):
        place = moment * _MOMENTS // length
        if place not in kept or sum(sizes[i]) > sum(sizes[kept[place]]):
            kept[place] = i
    return [times[i] for i in kept.values()], [sizes[i] for i in kept.values()]
