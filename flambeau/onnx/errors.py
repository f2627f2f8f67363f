"""Errors of an export to ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["OnnxExporterError", "OnnxExporterWarning", "SymbolicValueError", "UnsupportedOperatorError"]


class OnnxExporterWarning(UserWarning):
    """Warning of an export that succeeded with restrictions."""


class OnnxExporterError(RuntimeError):
    """Raised when an export fails."""


class UnsupportedOperatorError(OnnxExporterError):
    """Raised when operators of the model have no ONNX form; lists all of them, each with the line that calls it."""

    def __init__(self, missing: Sequence[tuple[str, str, str]], opset: int) -> None:
        self.missing = [name for name, _, _ in missing]
        lines = "".join(f"\n  {name}{f': {why}' if why else ''}{_place(place)}" for name, why, place in missing)
        super().__init__(
            f"Exporting to ONNX opset version {opset} is not supported for {len(missing)} operator call(s):{lines}\n"
            "Give them a form with torch.onnx.register_custom_op_symbolic(name, function, opset_version), or "
            "custom_translation_table= where dynamo=True; a newer opset_version may have one."
        )


def _place(place: str) -> str:
    return f"\n      {place.strip()}" if place else ""


class SymbolicValueError(OnnxExporterError):
    """Raised when a symbolic function gets a value it cannot use."""

    def __init__(self, msg: str, value: Any) -> None:
        super().__init__(f"{msg}  [Caused by the value '{value}']")
