"""Answers and loops of our own for torchaudio: what it asks its native library when imported, and the two loops that have
no other form once it believes that the library is there. The library itself is linked against PyTorch (see `absent.py`)."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..kernels.loops import loop_kernel, prange
from .registration import Library

_probes, _loops = Library("_torchaudio", "FRAGMENT"), Library("torchaudio", "FRAGMENT")


@loop_kernel
def filter_rows(out, x, a, rows, channels, n, order):
    """Recursive filter of every row: out[t + order - 1] = x[t] - sum of a[k] * out[t + k]."""
    for i in prange(rows, 2 * n * order):
        start, coefficients = i * (n + order - 1), (i % channels) * order
        for t in range(n):
            total = x[i * n + t]
            for k in range(order):
                total -= out[start + t + k] * a[coefficients + k]
            out[start + t + order - 1] = total


@loop_kernel
def overdrive_rows(out, x, distorted, last_in, last_out, rows, n):
    """A high-pass filter of the distorted rows, mixed with the rows themselves."""
    for i in prange(rows, 8 * n):
        before, sound = last_in[i], last_out[i]
        for t in range(n):
            now = distorted[i * n + t]
            sound = now - before + 0.995 * sound
            before = now
            out[i * n + t] = x[i * n + t] * 0.5 + sound * 0.75


def _lfilter(input_signal_windows: Tensor, a_coeff_flipped: Tensor, padded_output_waveform: Tensor) -> Tensor:
    x, a, out = input_signal_windows, a_coeff_flipped, padded_output_waveform
    _check("_lfilter_core_loop", x, a, out)
    batch, channels, n = x.shape
    filter_rows(out, x.contiguous(), a.contiguous(), batch * channels, channels, n, a.shape[1])
    return out


def _overdrive(waveform: Tensor, temp: Tensor, last_in: Tensor, last_out: Tensor, output_waveform: Tensor) -> Tensor:
    _check("_overdrive_core_loop", waveform, temp, last_in, last_out, output_waveform)
    given = (t.contiguous() for t in (waveform, temp, last_in, last_out))
    overdrive_rows(output_waveform, *given, *waveform.shape)
    return output_waveform


def _check(name: str, *tensors: Any) -> None:
    if len({(t.dtype, t.device) for t in tensors}) > 1 or not tensors[-1].is_contiguous():
        told = ", ".join(f"{t.dtype} on {t.device}" for t in tensors)
        raise RuntimeError(
            f"{name}: expected tensors of one dtype on one device and a contiguous result, but got {told}"
        )


for _library, _schema, _function in (
    (_probes, "cuda_version() -> int?", lambda: None),
    (_probes, "is_align_available() -> bool", lambda: False),
    (_loops, "_lfilter_core_loop(Tensor input_signal_windows, Tensor a_coeff_flipped, Tensor(a!) padded_output_waveform) -> Tensor(a!)", _lfilter),
    (_loops, "_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor last_in, Tensor last_out, Tensor(a!) output_waveform) -> Tensor(a!)", _overdrive),
):  # fmt: skip
    _library.define(_schema)
    _library.impl(_schema.partition("(")[0], _function, "CompositeExplicitAutograd")
