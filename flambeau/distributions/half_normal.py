"""The half-normal distribution."""

from __future__ import annotations

import math
from typing import Any

from . import constraints
from .folded import Folded
from .normal import Normal

__all__ = ["HalfNormal"]


class HalfNormal(Folded):
    """The absolute value of a centred normal variable with standard deviation `scale`."""

    arg_constraints = {"scale": constraints.positive}

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        self._fold(Normal(0, scale, validate_args=False), validate_args)

    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    variance = property(lambda self: self.scale.square() * (1 - 2 / math.pi))
