"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from . import constraints
from .gamma import Gamma

__all__ = ["Chi2"]


class Chi2(Gamma):
    """The sum of the squares of `df` standard normal variables."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    df = property(lambda self: 2 * self.concentration)

    def _parameters(self) -> dict[str, constraints.Constraint]:
        return Gamma.arg_constraints
