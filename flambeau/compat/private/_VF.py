"""`torch._VF`: the functions of `torch` by another name, which older programs call recurrent layers by."""

from __future__ import annotations

from typing import Any

import flambeau


def __getattr__(name: str) -> Any:
    return getattr(flambeau, name)
