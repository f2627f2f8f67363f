"""Networks: modules, layers, losses and their functional forms."""

from . import functional

__all__ = ["functional"]
