"""Attaching operators to the Tensor class and to the public namespaces, once, at import."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from .registry import OPS


def bind_methods() -> None:
    """Every operator with a method form becomes one; aliases too; in-place forms get their underscore."""
    for op in OPS.values():
        names = (op.name, *op.aliases)
        for name in names:
            if op.method is not None and name not in Tensor.__dict__:
                setattr(Tensor, name, op.method)
            if op.inplace is not None and name + "_" not in Tensor.__dict__:
                setattr(Tensor, name + "_", op.inplace)


def namespace(which: str) -> dict[str, Any]:
    """The public functions of one namespace, e.g. "torch" or "nn.functional"."""
    found: dict[str, Any] = {}
    for op in OPS.values():
        if which in op.namespaces:
            for name in (op.name, *op.aliases):
                found[name] = op.function
    return found
