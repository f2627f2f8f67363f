"""Where PyTorch keeps operators that take functions."""

from __future__ import annotations

from . import library  # noqa: F401  the whole room before its parts: see naming.load
from .library.higher_order import CondOp, cond, cond_op

__all__ = ["CondOp", "cond", "cond_op"]
