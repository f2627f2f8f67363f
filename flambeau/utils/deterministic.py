"""Switch in addition to `use_deterministic_algorithms`: whether uninitialised tensors are filled, so that programs that read
them by mistake behave the same in every run.

>>> flambeau.utils.deterministic.fill_uninitialized_memory
True
"""

from __future__ import annotations

import sys
from types import ModuleType

from ..core.settings import is_fill_uninitialized_memory_set, set_fill_uninitialized_memory


class _Switches(ModuleType):
    @property
    def fill_uninitialized_memory(self) -> bool:
        """Switch: fill new memory with NaN, or the largest number of an integer dtype, while deterministic algorithms are required."""
        return is_fill_uninitialized_memory_set()

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, fill: bool) -> None:
        set_fill_uninitialized_memory(fill)


sys.modules[__name__].__class__ = _Switches
