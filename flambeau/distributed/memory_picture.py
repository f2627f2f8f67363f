"""The memory of all ranks in one picture.

>>> with flambeau.profiler.profile(profile_memory=True) as profile:
...     train()
>>> save_memory_of_ranks(profile, "memory.svg")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..profiler.memory import MemoryProfile, drawn
from . import groups
from .object_collectives import gather_object

_WIDTH, _HEIGHT = 960, 420


def save_memory_of_ranks(profile: Any, path: str, device: str = "cpu", group: Any = None) -> dict[int, int] | None:
    """Called by all ranks: rank 0 writes a picture of the bytes in use over time on each, all to the same scale, and gets the most
    that each had in use; the others get None."""
    times, sizes = MemoryProfile(profile.profiler.kineto_results).sizes(device)
    rank, count = groups.get_rank(group), groups.get_world_size(group)
    found: list[Any] | None = [None] * count if rank == 0 else None
    gather_object((times, sizes), found, 0, group)
    if found is None:
        return None
    most = [max((sum(row) for row in rows), default=0) for _, rows in found]
    panels = []
    for number, (moments, rows) in enumerate(found):
        inner = drawn(moments, rows, f"{device} of rank {number}", max(most))
        panels.append(inner.replace("<svg ", f'<svg y="{number * _HEIGHT}" ', 1))
    whole = "".join(panels)
    Path(path).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT * count}">\n{whole}</svg>\n',
        encoding="utf-8",
    )
    return dict(enumerate(most))
