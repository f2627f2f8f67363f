"""Comparison of a quantized model with its original: weights, outputs of layers, outputs of layers for equal inputs."""

from typing import Any

from ...core import naming as _naming


def __getattr__(name: str) -> Any:
    return _naming.submodule(__name__, name)
