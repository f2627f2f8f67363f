"""safetensors files: `safetensors.torch`'s functions for Flambeau's tensors."""

from . import serialization as _serialization  # noqa: F401  the whole room before its parts: see naming.load
from .serialization.safetensors import (
    SafetensorError,
    load,
    load_file,
    load_model,
    safe_open,
    save,
    save_file,
    save_model,
)

__all__ = ["SafetensorError", "load", "load_file", "load_model", "safe_open", "save", "save_file", "save_model"]
