"""The former interface to register how an operator is exported."""

from __future__ import annotations

from collections.abc import Callable

from .registry import register_custom_op_symbolic

__all__ = ["register_op"]


def register_op(opname: str, op: Callable, domain: str, version: int) -> None:
    """Register `op(g, *arguments)`, which writes the nodes of `opname` for an opset version."""
    register_custom_op_symbolic(f"{domain or 'aten'}::{opname}", op, version)
