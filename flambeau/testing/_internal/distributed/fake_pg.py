"""The backend `fake` (see `distributed.fake_engine`) under the names that tests use."""

from __future__ import annotations

from ....distributed.fake_engine import FakeProcessGroup
from ....distributed.store import HashStore

__all__ = ["FakeProcessGroup", "FakeStore"]


class FakeStore(HashStore):
    """A store for a group that has no other processes."""
