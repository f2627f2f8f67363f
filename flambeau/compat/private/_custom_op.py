"""PyTorch's first interface for operators of one's own. `torch.library.custom_op` has taken its place; nothing is registered here."""

from __future__ import annotations

from typing import Any


class impl:
    """Operators that were made through this interface: none."""

    global_registry: dict[str, Any] = {}
