"""Comparing a quantized model with the one it was made of: weights, results of layers, results of layers fed alike."""

from typing import Any

from ...core import naming as _naming


def __getattr__(name: str) -> Any:
    return _naming.submodule(__name__, name)
