"""A linear layer trained with rounded weight, for inputs that are quantized while the model runs."""

from __future__ import annotations

from typing import Any

import flambeau as torch

from ...modules.linear import Linear as _Linear

__all__ = ["Linear"]


class Linear(_Linear):
    """qat.Linear whose observer of the input has no memory."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, qconfig, device, dtype)
        if not torch.ao.quantization.qconfig._activation_is_memoryless(qconfig):
            raise ValueError(
                "Dynamic QAT requires a memoryless observer."
                "This means a MovingAverage observer with averaging constant equal to 1"
            )
