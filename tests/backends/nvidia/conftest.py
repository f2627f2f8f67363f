"""A driver without a GPU, for the length of a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flambeau.backends.nvidia import driver
from tests.backends.nvidia.fake_driver import FakeDriver


@pytest.fixture
def fake() -> Iterator[FakeDriver]:
    before = list(driver._loaded)
    driver.use(FakeDriver(devices=2))
    yield driver.loaded()
    driver.use(None)
    driver._loaded[:] = before
