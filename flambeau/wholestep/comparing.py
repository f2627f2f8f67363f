"""Whether a recording gave what the function gives."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..core.casts import casts
from ..core.graph import grad_mode
from ..core.tensor import Tensor


def equal(a: Tensor, b: Any) -> bool:
    """Whether two tensors have the same bits, or nan in the same places and otherwise the same bits."""
    if b is None or a.shape != b.shape or a.dtype is not b.dtype:
        return False
    with modes_off():
        x, y = a.detach().contiguous(), b.detach().contiguous()
        size = x.numel() * x.dtype.itemsize
        if not size or ctypes.string_at(x.data_ptr(), size) == ctypes.string_at(y.data_ptr(), size):
            return True
        if not (x.dtype.is_floating_point or x.dtype.is_complex):
            return False
        wide = x.double() if x.dtype.is_floating_point else x
        other = y.double() if x.dtype.is_floating_point else y
        rtol = 1e-9 if x.dtype.itemsize == 8 else 2e-5 if x.dtype.itemsize == 4 else 1e-2
        scale = float(other.abs().max().nan_to_num(0.0, 0.0, 0.0)) if x.dtype.is_floating_point else 1.0
        return bool(wide.isclose(other, rtol=rtol, atol=rtol * max(scale, 1e-6), equal_nan=True).all())


def close(address: int, new: bytes) -> bool:
    """Whether memory that holds float32 numbers is as good as equal."""
    if len(new) % 4:
        return False
    a = np.frombuffer(ctypes.string_at(address, len(new)), np.float32).astype(np.float64)
    b = np.frombuffer(new, np.float32).astype(np.float64)
    fine = np.isfinite(a) & np.isfinite(b)
    scale = float(np.abs(a[fine]).max(initial=0.0))
    return bool(np.allclose(a, b, rtol=2e-5, atol=2e-5 * max(scale, 1e-6), equal_nan=True))


class modes_off:  # noqa: N801 - reads like a keyword
    """Inside, nothing is recorded or cast."""

    def __enter__(self) -> None:
        self.before, grad_mode.enabled = grad_mode.enabled, False
        self.cast, casts.active = casts.active, False

    def __exit__(self, *exc: Any) -> None:
        grad_mode.enabled, casts.active = self.before, self.cast


__all__ = ["close", "equal", "modes_off"]
