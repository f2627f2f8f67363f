"""Names of PyTorch's tools for smaller models."""

from typing import Any

from ..core import naming as _naming


def __getattr__(name: str) -> Any:
    return _naming.submodule(__name__, name)
