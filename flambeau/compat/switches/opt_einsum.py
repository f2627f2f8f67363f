"""`torch.backends.opt_einsum`: the package that chooses an order of products for `einsum`; without it, they go from left to right."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from ...ops.linalg.einsum import Order

_STRATEGIES = ("auto", "greedy", "optimal")


def is_available() -> bool:
    """Return whether the package is installed."""
    return Order.package() is not None


def get_opt_einsum() -> Any:
    """Return the package opt_einsum, or None if it is not installed."""
    return Order.package()


def set_flags(_enabled: bool | None = None, _strategy: str | None = None) -> tuple[bool, str | None]:
    """Set both switches; return their old values."""
    before = (Order.is_chosen(), Order.strategy if is_available() else None)
    module: Any = sys.modules[__name__]
    if _enabled is not None:
        module.enabled = _enabled
    if _strategy is not None:
        if is_available() and _strategy not in _STRATEGIES:
            raise ValueError(f"`strategy` must be one of the following: [auto, greedy, optimal] but is {_strategy}")
        module.strategy = _strategy
    return before


@contextmanager
def flags(enabled: bool | None = None, strategy: str | None = None) -> Iterator[None]:
    """Context manager: set the switches, restore them on exit."""
    before = set_flags(enabled, strategy)
    try:
        yield
    finally:
        Order.enabled, Order.strategy = before[0], before[1] or "auto"


class _Switches(ModuleType):
    """The module type: enabling an unavailable package must fail."""

    @property
    def enabled(self) -> bool:
        return Order.is_chosen()

    @enabled.setter
    def enabled(self, value: bool) -> None:
        if value and not is_available():
            raise ValueError(
                f"opt_einsum is not available, so setting `enabled` to {value} will not reap the benefits of calculating an"
                " optimal path for einsum. torch.einsum will fall back to contracting from left to right. To enable this"
                " optimal path calculation, please install opt-einsum."
            )
        Order.enabled = bool(value)

    @property
    def strategy(self) -> str | None:
        return Order.strategy if is_available() else None

    @strategy.setter
    def strategy(self, value: str | None) -> None:
        if value is None and not is_available():
            return
        for missing, state in ((not is_available(), "available"), (not Order.is_chosen(), "enabled")):
            if missing:
                raise ValueError(
                    f"opt_einsum is not {state}, so setting a `strategy` to {value} will not be meaningful. torch.einsum will"
                    " bypass path calculation and simply contract from left to right."
                )
        Order.strategy = value  # any that the package knows, as in PyTorch


sys.modules[__name__].__class__ = _Switches
