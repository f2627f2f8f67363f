"""Checks of the float layers that QAT layers are made from."""

from __future__ import annotations

from typing import Any

from .....nn.utils.parametrize import type_before_parametrizations


def require_qconfig(qconfig: Any) -> Any:
    """Return the qconfig of a layer; raises AssertionError if there is none."""
    if not qconfig:
        raise AssertionError("qconfig must be provided for QAT module")
    return qconfig


def check_float_module(cls: type, mod: Any, expected: type, with_found: bool = True) -> None:
    """Raise AssertionError unless `mod` is exactly the float layer of `cls` and has a qconfig."""
    found = type_before_parametrizations(mod)
    if found is not expected:
        got = f", got {found.__name__}" if with_found else ""
        raise AssertionError(f"qat.{cls.__name__}.from_float only works for {expected.__name__}{got}")
    if not hasattr(mod, "qconfig"):
        raise AssertionError("Input float module must have qconfig defined")
    if not mod.qconfig:
        raise AssertionError("Input float module must have a valid qconfig")


def settings_of(table: Any) -> dict[str, Any]:
    """Return the arguments by which another embedding of the same kind is made, except the weight."""
    return {name: getattr(table, name) for name in table.__constants__}
