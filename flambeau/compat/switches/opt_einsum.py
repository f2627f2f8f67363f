"""`torch.backends.opt_einsum`: the package that chooses an order of products for `einsum`; Flambeau multiplies from left to right."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


def is_available() -> bool:
    """False: the package is not used."""
    return False


def get_opt_einsum() -> Any:
    """None: the package is not used."""
    return None


class _Switches(ModuleType):
    """The module itself: switching on what is not there must fail."""

    @property
    def enabled(self) -> bool:
        return False

    @enabled.setter
    def enabled(self, value: bool) -> None:
        if value:
            raise ValueError(
                "opt_einsum is not available, so setting `enabled` to True will not reap the benefits of it"
            )

    @property
    def strategy(self) -> None:
        return None

    @strategy.setter
    def strategy(self, value: str | None) -> None:
        if value is not None:
            raise ValueError("opt_einsum is not available, so setting `strategy` will not have an effect")


sys.modules[__name__].__class__ = _Switches
