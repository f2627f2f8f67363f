"""Where programs look for the store of the backend "fake"."""

from __future__ import annotations

from ....distributed.fake_engine import FakeStore

__all__ = ["FakeStore"]
