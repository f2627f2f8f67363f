"""QAT linear layer for dynamic quantization of its inputs."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ......nn.modules.settings import extending
from ...modules.linear import Linear as _Linear

__all__ = ["Linear"]


class Linear(_Linear):
    """qat.Linear for dynamic quantization: the observer of its input must be memoryless."""

    @extending(_Linear)
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if not torch.ao.quantization.qconfig._activation_is_memoryless(self.qconfig):
            raise ValueError(
                "Dynamic QAT requires a memoryless observer."
                "This means a MovingAverage observer with averaging constant equal to 1"
            )
