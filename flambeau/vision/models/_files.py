"""Data files that come with the package."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "data"


def data_text(name: str) -> str:
    """The text of a file in flambeau/data."""
    return (_FOLDER / name).read_text(encoding="utf-8")
