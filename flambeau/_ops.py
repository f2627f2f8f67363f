"""The classes of what `torch.ops` holds."""

from __future__ import annotations

from . import (
    library,  # noqa: F401  the whole room before its parts: see naming.load
    ops,
)
from .library.aten import OpOverload, OpOverloadPacket
from .library.higher_order import HigherOrderOperator

__all__ = ["HigherOrderOperator", "OpOverload", "OpOverloadPacket", "ops"]
