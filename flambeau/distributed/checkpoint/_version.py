"""Version of PyTorch's way of flattening state dicts: None for the current one, "2_3" for that until 2.3."""

from __future__ import annotations

_derived_version: str | None = None
