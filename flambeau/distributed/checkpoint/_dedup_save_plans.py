"""Removal of duplicates from save plans: what several ranks hold is written by one of them."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

from .metadata import MetadataIndex
from .planner import SavePlan

__all__ = ["dedup_save_plans"]


def dedup_save_plans(all_plans: list[SavePlan], save_to_lowest_rank: bool = False) -> list[SavePlan]:
    """Keep each item in one plan: that of the lowest rank, or of the one with the fewest bytes to write so far."""
    holders: dict[MetadataIndex, list[int]] = defaultdict(list)
    sizes: dict[MetadataIndex, int] = {}
    for rank, plan in enumerate(all_plans):
        for item in plan.items:
            holders[item.index].append(rank)
            sizes[item.index] = item.tensor_storage_size() or 1
    loads, chosen = [0] * len(all_plans), {}
    for index, ranks in holders.items():
        rank = min(ranks) if save_to_lowest_rank else min(ranks, key=lambda one: loads[one])
        chosen[index] = rank
        loads[rank] += sizes[index]
    return [
        dataclasses.replace(plan, items=[item for item in plan.items if chosen[item.index] == rank])
        for rank, plan in enumerate(all_plans)
    ]
