"""What PyTorch's tests say about samples of its operator database that are known to fail; no sample of it is run here."""

from __future__ import annotations

from typing import Any

from torch.testing._internal.permissive import guess


class _Rule:
    def __init__(self, **facts: Any) -> None:
        vars(self).update(facts)


class SkipRule(_Rule):
    pass


class XFailRule(_Rule):
    pass


def __getattr__(name: str) -> Any:
    return guess(__name__, name)
