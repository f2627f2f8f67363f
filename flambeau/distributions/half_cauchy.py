"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

from . import constraints
from .cauchy import Cauchy
from .folded import Folded

__all__ = ["HalfCauchy"]


class HalfCauchy(Folded):
    """The absolute value of a centred Cauchy variable."""

    arg_constraints = {"scale": constraints.positive}

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        self._fold(Cauchy(0, scale, validate_args=False), validate_args)

    mean = property(lambda self: self._constant(math.inf, self.scale))
    variance = property(lambda self: self.base_dist.variance)
