"""ONNX files. Export is not there yet, and asking for it raises; the module exists because training programs import it."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["export", "is_in_onnx_export"]


def is_in_onnx_export() -> bool:
    return False


def export(*args: Any, **kwargs: Any) -> NoReturn:
    """Write a model as an ONNX file."""
    raise NotImplementedError("torch.onnx.export is not in Flambeau yet")
