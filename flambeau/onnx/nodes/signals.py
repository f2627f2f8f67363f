"""Fourier transforms."""

from __future__ import annotations

from typing import Any

import flambeau

from ...core.tensor import Tensor
from .table import Call, node


@node("DFT")
def dft(
    call: Call, x: Tensor, length: Any = None, place: Any = None, axis: int | None = None, inverse: int = 0,
    onesided: int = 0,
) -> Tensor:  # fmt: skip
    dim = (
        int(place.item())
        if place is not None
        else (1 if axis is None and call.opset < 20 else -2 if axis is None else axis)
    )
    dim = dim % x.dim()
    n = None if length is None else int(length.item())
    if inverse and onesided:
        given = flambeau.view_as_complex(x.contiguous()) if x.shape[-1] == 2 else x[..., 0] + 0j
        return flambeau.fft.irfft(given, n, dim).unsqueeze(-1)
    values = flambeau.view_as_complex(x.contiguous()) if x.shape[-1] == 2 else x[..., 0]
    if onesided:
        return flambeau.view_as_real(flambeau.fft.rfft(values, n, dim))
    made = flambeau.fft.ifft(values, n, dim) if inverse else flambeau.fft.fft(values, n, dim)
    return flambeau.view_as_real(made)


@node("STFT")
def stft(call: Call, x: Tensor, step: Tensor, window: Any = None, length: Any = None, onesided: int = 1) -> Tensor:
    size = int(length.item()) if length is not None else window.shape[0]
    hop = int(step.item())
    signal = x[..., 0] if x.shape[-1] == 1 else flambeau.view_as_complex(x.contiguous())
    frames = signal.unfold(1, size, hop)
    if window is not None:
        frames = frames * window
    made = flambeau.fft.rfft(frames, dim=-1) if onesided else flambeau.fft.fft(frames, dim=-1)
    return flambeau.view_as_real(made)
