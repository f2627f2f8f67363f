"""The classes of what `torch.ops` holds."""

from __future__ import annotations

from typing import Any

from . import (
    library,  # noqa: F401  the whole room before its parts: see naming.load
    ops,
)
from .library.aten import OpOverload, OpOverloadPacket

__all__ = ["HigherOrderOperator", "OpOverload", "OpOverloadPacket", "ops"]


class HigherOrderOperator:
    """An operator that takes functions. There is none here yet; the class is there to ask for."""

    def __init__(self, name: str, *, cacheable: bool = False) -> None:
        self._name = self.__name__ = name

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"the higher-order operator {self._name}")
