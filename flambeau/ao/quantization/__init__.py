"""What quantized models are recognised by. Quantizing is not in Flambeau yet: no layer here is one of these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ...core.tensor import Tensor
from ...nn.modules.module import Module

__all__ = ["FakeQuantizeBase", "ObserverBase"]


class ObserverBase(ABC, Module):
    """A module that looks at the values which pass through it, to choose a scale for them."""

    def __init__(self, dtype: Any, is_dynamic: bool = False):
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """The values, seen."""

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Scale and zero point."""


class FakeQuantizeBase(ABC, Module):
    """A module that rounds values as quantizing would."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """The values, rounded."""

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Scale and zero point."""
