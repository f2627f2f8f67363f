"""Processes that a test starts: each loads the test file as the first one did, and runs its part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

source: tuple[str, str] = ("", "")  # the test file, and "torch" or "flambeau"; set by the worker


def run(file: str, library: str, class_name: str, rank: int, test_name: str, file_name: str, pipe: Any) -> None:
    from . import children, imports  # the module as others import it

    children.source = (file, library)
    imports.install(library == "flambeau")
    module = imports.load(Path(file))
    getattr(module, class_name)._run(rank, test_name, file_name, pipe)
