"""`torch.storage`: the memory under tensors."""

from __future__ import annotations

import io
from typing import Any

from .compat.legacy import STORAGE_TYPES
from .core.storage import UntypedStorage
from .core.typed_storage import TypedStorage
from .serialization import load

__all__ = ["TypedStorage", "UntypedStorage"]


def _dtype_to_storage_type_map() -> dict[Any, str]:
    """Return the names of the older storage classes, by dtype."""
    return {kind.dtype: name for name, kind in STORAGE_TYPES.items()}


def _load_from_bytes(data: bytes) -> Any:
    """Return a storage from the bytes in which PyTorch's plain pickles store it."""
    return load(io.BytesIO(data), weights_only=False)
