"""From the reference form to quantized operators."""

from ._lower_to_native_backend import _lower_to_native_backend as lower_to_fbgemm

__all__ = ["lower_to_fbgemm"]
