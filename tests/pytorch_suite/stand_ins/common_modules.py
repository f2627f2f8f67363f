"""The database of modules, empty: tests/nn compares them one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .common_device_type import _elsewhere
from .permissive import guess

module_db: list = []


class modules:  # noqa: N801
    def __init__(self, module_info_iterable: Any, allowed_dtypes: Any = None, **others: Any):
        pass

    def __call__(self, test: Callable) -> Callable:
        return _elsewhere(test)


def __getattr__(name: str) -> Any:
    return guess(__name__, name)
