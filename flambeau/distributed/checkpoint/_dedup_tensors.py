"""The former removal of duplicates from save plans: tensors that several ranks hold are written by the first."""

from __future__ import annotations

import dataclasses

from .metadata import MetadataIndex
from .planner import SavePlan

__all__ = ["dedup_tensors"]


def dedup_tensors(all_plans: list[SavePlan]) -> list[SavePlan]:
    """Keep every item only in the first plan that has it."""
    seen: set[MetadataIndex] = set()
    plans = []
    for plan in all_plans:
        kept = []
        for item in plan.items:
            if item.index not in seen:
                seen.add(item.index)
                kept.append(item)
        plans.append(dataclasses.replace(plan, items=kept))
    return plans
