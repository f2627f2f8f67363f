"""PyTorch's package of operators that take functions."""

from __future__ import annotations

from .... import library  # noqa: F401  the whole room before its parts: see naming.load
from ....library.higher_order import CondOp, cond, cond_op
from .associative_scan import associative_scan

__all__ = ["CondOp", "associative_scan", "cond", "cond_op"]
