"""`torch.backends.quantized`: the library that computes with quantized tensors.

All engines are names of one here: oneDNN multiplies, and the steps around it are those of PyTorch's x86 engine. A name only matters to
programs and tools that read it.
"""

from __future__ import annotations

import sys
from types import ModuleType

from ...core.quantized import Engine


class _Switches(ModuleType):
    """The module's class: assigning to `engine` must have an effect."""

    @property
    def engine(self) -> str:
        return Engine.name

    @engine.setter
    def engine(self, name: str) -> None:
        if name == "none":
            raise RuntimeError("quantized engine NoQEngine is not supported")
        if name not in Engine.supported:
            raise RuntimeError(f"{name} is not a valid value for quantized engine")
        Engine.name = name

    @property
    def supported_engines(self) -> list[str]:
        return list(Engine.supported)


sys.modules[__name__].__class__ = _Switches
