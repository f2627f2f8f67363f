"""Tells the timeline about negotiations; apart, because the timeline asks for the rank and the rank comes from above."""

from __future__ import annotations

import sys
from typing import Any


def _timeline() -> Any:
    module = sys.modules.get(f"{__package__}.timeline")
    return None if module is None else module.timeline


def mark_cycle() -> None:
    timeline = _timeline()
    if timeline is not None and timeline.path is not None:
        timeline.cycle()


def note(name: str, kind: str, began: float, negotiated: float, ended: float) -> None:
    timeline = _timeline()
    if timeline is not None and timeline.path is not None:
        timeline.add(name, f"NEGOTIATE_{kind.upper()}", began, negotiated)
        timeline.add(name, kind.upper(), negotiated, ended)
