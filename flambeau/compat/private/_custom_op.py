"""PyTorch's first interface for custom operators, replaced by `torch.library.custom_op`; nothing is registered here."""

from __future__ import annotations

from typing import Any


class impl:
    """Operators that were made through this interface: none."""

    global_registry: dict[str, Any] = {}
