"""Names under which PyTorch pickles tensors."""

from . import serialization as _serialization  # noqa: F401  the whole room before its parts: see naming.load
from .core.tensor import Tensor
from .serialization.rebuild import from_type as _rebuild_from_type_v2

__all__ = ["Tensor", "_rebuild_from_type_v2"]
