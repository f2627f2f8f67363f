"""Every module of `torch.testing._internal` for which there is no file here."""

from __future__ import annotations

from typing import Any

from torch.testing._internal.permissive import guess


def __getattr__(name: str) -> Any:
    return guess(__name__, name)
