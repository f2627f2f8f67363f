"""State of each text during generation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Text:
    """A text that is being generated."""

    tokens: list[int]
    left: int
    temperature: float
    past: list[Any] = field(default_factory=list)  # for each layer (keys, values), each (1, H, S, D)
