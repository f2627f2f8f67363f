"""The database of optimizers, empty: tests/optim compares them one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .common_device_type import _elsewhere
from .permissive import guess

optim_db: list = []


class optims:  # noqa: N801
    def __init__(self, optim_info_iterable: Any, dtypes: Any = None):
        pass

    def __call__(self, test: Callable) -> Callable:
        return _elsewhere(test)


def __getattr__(name: str) -> Any:
    return guess(__name__, name)
