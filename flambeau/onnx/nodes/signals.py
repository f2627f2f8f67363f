"""Fourier transforms and windows."""

from __future__ import annotations

import math
from typing import Any

import flambeau

from ...core.tensor import Tensor
from ..dtypes import DTYPE
from .table import Call, node


@node("DFT")
def dft(
    call: Call,
    x: Tensor,
    length: Any = None,
    place: Any = None,
    axis: int | None = None,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
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


def _window(name: str, terms: tuple[float, ...]) -> None:
    @node(name)
    def run(call: Call, size: Tensor, output_datatype: int = 1, periodic: int = 1) -> Tensor:
        n = int(size.item())
        places = flambeau.arange(n, dtype=flambeau.float64) * (2 * math.pi / (n if periodic else n - 1))
        made = sum((-1) ** k * a * flambeau.cos(k * places) for k, a in enumerate(terms))
        return made.to(DTYPE[output_datatype])


_window("HannWindow", (0.5, 0.5))
_window("HammingWindow", (25 / 46, 21 / 46))
_window("BlackmanWindow", (0.42, 0.5, 0.08))


@node("MelWeightMatrix")
def mel_weight_matrix(
    call: Call, bins: Tensor, length: Tensor, rate: Tensor, low: Tensor, high: Tensor, output_datatype: int = 1
) -> Tensor:
    count, spectrum = int(bins.item()), int(length.item()) // 2 + 1
    edges = flambeau.arange(count + 2, dtype=flambeau.float64)
    low_mel, high_mel = (2595 * math.log10(1 + float(f.item()) / 700) for f in (low, high))
    mels = edges * ((high_mel - low_mel) / (count + 2)) + low_mel
    hertz = 700 * (10 ** (mels / 2595) - 1)
    spots = ((int(length.item()) + 1) * hertz // int(rate.item())).long().tolist()
    made = flambeau.zeros(spectrum, count, dtype=flambeau.float64)
    for i in range(count):
        left, centre, right = spots[i : i + 3]
        if centre == left:
            made[centre, i] = 1
        else:
            for j in range(left, centre + 1):
                made[j, i] = (j - left) / (centre - left)
        for j in range(centre, right):
            made[j, i] = (right - j) / (right - centre)
    return made.to(DTYPE[output_datatype])
