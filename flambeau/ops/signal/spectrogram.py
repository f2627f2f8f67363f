"""Spectra of short frames of a signal, and signals from such spectra."""

from __future__ import annotations

import warnings
from typing import Any

from ...core.tensor import Tensor
from ..machinery.arguments import as_int
from ..machinery.declare import composite
from ..nn.fold import fold
from ..shape.complex_views import complex_, view_as_real
from ..shape.padding import pad
from .fourier import fft, ifft, irfft, rfft


def _describe(name: str, x: Tensor, n_fft: int, hop: int, length: int, window: Tensor | None) -> str:
    shape = "None" if window is None else f"{window.dtype}{{{list(window.shape)}}}"
    return f"{name}({x.dtype}{list(x.shape)}, n_fft={n_fft}, hop_length={hop}, win_length={length}, window={shape})"


def _full_window(x: Tensor, window: Tensor | None, length: int, n_fft: int, d: Any) -> Tensor:
    """Return the window centred in n_fft samples; all ones if there is none."""
    values = x.new_ones(length, dtype=d) if window is None else window
    if length == n_fft:
        return values
    left = (n_fft - length) // 2
    return pad(values, [left, n_fft - length - left])


def _check_frames(where: str, n_fft: int, hop: int, length: int, window: Tensor | None) -> None:
    if n_fft <= 0:
        raise RuntimeError(f"{where} : expected 0 < n_fft, but got n_fft={n_fft}")
    if hop <= 0:
        raise RuntimeError(f"{where} : expected hop_length > 0, but got hop_length={hop}")
    if not 0 < length <= n_fft:
        raise RuntimeError(f"{where} : expected 0 < win_length <= n_fft, but got win_length={length}")
    if window is not None and (len(window.shape) != 1 or window.shape[0] != length):
        raise RuntimeError(
            f"{where} : expected a 1D window tensor of size equal to win_length={length}, but got window with size"
            f" {list(window.shape)}"
        )


def _warn_no_window(window: Tensor | None) -> None:
    if window is None:
        warnings.warn(
            "A window was not provided. A rectangular window will be applied,which is known to cause spectral leakage."
            " Other windows such as torch.hann_window or torch.hamming_window are recommended to reduce spectral leakage."
            "To suppress this warning and use a rectangular window, explicitly set"
            " `window=torch.ones(n_fft, device=<device>)`.",
            UserWarning,
            stacklevel=4,
        )


@composite(autocast="float32")
def stft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None,
    center: bool = True, pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Tensor:  # fmt: skip
    """The Fourier transforms of overlapping frames: (..., frequency, frame)."""
    n_fft = as_int(n_fft, "stft", "n_fft", 2)
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    _warn_no_window(window)
    complex_result = input.dtype.is_complex or (window is not None and window.dtype.is_complex)
    if return_complex is None:
        if not complex_result:
            raise RuntimeError(
                "stft requires the return_complex parameter be given for real inputs, and will further require that"
                " return_complex=True in a future PyTorch release."
            )
        return_complex = True
    where = _describe("stft", input, n_fft, hop, length, window)
    if input.dtype.category < 2:
        raise RuntimeError(f"{where}: expected a tensor of floating point or complex values")
    if not 1 <= len(input.shape) <= 2:
        raise RuntimeError(f"{where}: expected a 1D or 2D tensor")
    if center and align_to_window is not None:
        raise RuntimeError("stft align_to_window should only be set when center = false")
    single = len(input.shape) == 1
    x = input.unsqueeze(0) if single else input
    if center:
        side = n_fft // 2
        x = pad(x.unsqueeze(1), [side, side], pad_mode).squeeze(1)
    if not 0 < n_fft <= x.shape[-1]:
        raise RuntimeError(f"{where}: expected 0 < n_fft <= {x.shape[-1]}, but got n_fft={n_fft}")
    _check_frames(where, n_fft, hop, length, window)
    frames = x.unfold(-1, n_fft, hop)
    if window is not None or length < n_fft:
        frames = frames * _full_window(x, window, length, n_fft, x.dtype)
    norm = "ortho" if normalized else None
    half = not complex_result if onesided is None else onesided
    if half and complex_result:
        raise RuntimeError(f"{where}: Cannot have onesided output if window or input is complex")
    spectra = (rfft if half else fft)(frames, None, -1, norm).transpose(1, 2)
    if single:
        spectra = spectra.squeeze(0)
    return spectra if return_complex else view_as_real(spectra)


@stft.op.as_aten
@stft.op.in_script
def _(
    recorder: Any, input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, pad_mode: str = "reflect", normalized: bool = False,
    onesided: bool | None = None, return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Tensor:  # fmt: skip
    return recorder.aten.stft(
        input, n_fft, hop_length, win_length, window, center, pad_mode, normalized, onesided, return_complex, align_to_window
    )  # fmt: skip


@composite
def istft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None,
    center: bool = True, normalized: bool = False, onesided: bool | None = None, length: int | None = None,
    return_complex: bool = False,
) -> Tensor:  # fmt: skip
    """The signal whose stft is nearest to the given one: overlapping frames added, over the sum of their windows."""
    _warn_no_window(window)
    hop = n_fft // 4 if hop_length is None else hop_length
    size = n_fft if win_length is None else win_length
    where = _describe("istft", input, n_fft, hop, size, window)
    if not input.dtype.is_complex:
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True."
        )
    if not 2 <= len(input.shape) <= 3 or 0 in input.shape:
        raise RuntimeError(f"{where}: expected a tensor with 2 or 3 dimensions and at least one element")
    single = len(input.shape) == 2
    x = (input.unsqueeze(0) if single else input).transpose(1, 2)  # (batch, frame, frequency)
    half = x.shape[-1] != n_fft if onesided is None else onesided
    wanted = n_fft // 2 + 1 if half else n_fft
    if x.shape[-1] != wanted:
        raise RuntimeError(
            f"{where}: expected the frequency dimension (3rd to the last) of the input tensor to match"
            f" {'n_fft / 2 + 1' if half else 'n_fft'} when onesided={half}, but got {x.shape[-1]}"
        )
    if not 0 < hop <= size:
        raise RuntimeError(f"{where}: expected 0 < hop_length <= win_length")
    _check_frames(where, n_fft, hop, size, window)
    if not return_complex and window is not None and window.dtype.is_complex:
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    norm = "ortho" if normalized else None
    if return_complex:
        if half:
            raise RuntimeError("Cannot have onesided output if window or input is complex")
        frames = ifft(x, None, -1, norm)
    else:
        frames = irfft(x if half else x[..., : n_fft // 2 + 1], n_fft, -1, norm)
    full = _full_window(x, window, size, n_fft, x.dtype.to_real())
    signal = _joined(frames * full, n_fft, hop, where, full, center, length)
    return signal.squeeze(0) if single else signal


def _overlapped(frames: Tensor, n_fft: int, hop: int) -> Tensor:
    """Add overlapping (batch, frame, sample) frames to (batch, sample)."""
    if frames.dtype.is_complex:
        parts = view_as_real(frames)
        real, imaginary = (_overlapped(parts[..., i], n_fft, hop) for i in (0, 1))
        return complex_(real, imaginary)
    total = n_fft + hop * (frames.shape[1] - 1)
    return fold(frames.transpose(1, 2), (1, total), (1, n_fft), stride=(1, hop)).reshape(frames.shape[0], total)


def _joined(
    frames: Tensor, n_fft: int, hop: int, where: str, window: Tensor, center: bool, length: int | None
) -> Tensor:
    count = frames.shape[1]
    signal = _overlapped(frames, n_fft, hop)
    weight = _overlapped((window * window).expand(1, count, n_fft), n_fft, hop)
    start = n_fft // 2 if center else 0
    total = signal.shape[-1]
    end = start + length if length is not None else total - n_fft // 2 if center else total
    signal, weight = signal[..., start:end], weight[..., start:end]
    if weight.numel() and bool(weight.abs().min() < 1e-11):
        raise RuntimeError(f"{where}window overlap add min: 1")
    signal = signal / weight
    if end > total:
        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail."
            " Please check your center and hop_length settings.",
            UserWarning,
            stacklevel=5,
        )
        signal = pad(signal, [0, end - total])
    return signal
