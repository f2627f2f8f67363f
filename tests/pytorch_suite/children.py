"""Processes that a test starts: each loads the test file as the first one did, and runs its part."""

from __future__ import annotations

import os
import sys
from typing import Any

source: tuple[str, str] = ("", "")  # the test file, and "torch" or "flambeau"; set by the worker


def run(environment: dict[str, str], class_name: str, rank: int, test_name: str, file_name: str, pipe: Any) -> None:
    """Runs one test's part of one rank. The server that was forked knows nothing of variables that were set since it began."""
    os.environ.clear()
    os.environ.update(environment)
    preloaded = sys.modules.get("tests.pytorch_suite.preloaded")
    if preloaded is None:  # it could not be loaded: here is what it says
        from . import preloaded
    getattr(preloaded.module, class_name)._run(rank, test_name, file_name, pipe)
