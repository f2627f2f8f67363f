"""`torch.storage`: the memory under tensors."""

from __future__ import annotations

import io
from typing import Any

from .core.storage import UntypedStorage
from .core.typed_storage import TypedStorage
from .serialization import load

__all__ = ["TypedStorage", "UntypedStorage"]


def _load_from_bytes(data: bytes) -> Any:
    """A storage from the bytes in which PyTorch's plain pickles hold it."""
    return load(io.BytesIO(data), weights_only=False)
