"""`torch._VF`: the functions of `torch` by another name, used by older programs for recurrent layers."""

from __future__ import annotations

from typing import Any

import flambeau


def __getattr__(name: str) -> Any:
    return getattr(flambeau, name)
