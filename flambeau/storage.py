"""`torch.storage`: the memory under tensors."""

from __future__ import annotations

import io
from typing import Any

from .core.storage import UntypedStorage
from .core.typed_storage import TypedStorage
from .serialization import load
from .serialization.rebuild import LoadedStorage

__all__ = ["TypedStorage", "UntypedStorage"]


def _load_from_bytes(data: bytes) -> Any:
    """A storage from the bytes in which PyTorch's plain pickles hold it."""
    found = load(io.BytesIO(data), weights_only=False)
    if isinstance(found, LoadedStorage) and found.dtype is not None:
        return TypedStorage(wrap_storage=found.storage, dtype=found.dtype)
    return found
