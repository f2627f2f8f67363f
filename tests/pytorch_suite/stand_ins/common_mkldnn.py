"""oneDNN runs here in full precision only."""

from __future__ import annotations

from typing import Any

from .permissive import Anything, guess

reduced_f32_on_and_off = bf32_on_and_off = Anything("reduced_f32_on_and_off")


def __getattr__(name: str) -> Any:
    return guess(__name__, name)
