"""Spectrograms, frequencies and swapped tensors of modules: what is computed at the border and refused beyond, as with PyTorch."""

from __future__ import annotations

import pytest
from answers.programs import check, refusals, short

SETUP = """
x, w = exact(40), exact(8).abs() + 0.1
S = L.stft(x, 8, return_complex=True)
A = module("nn.utils._named_member_accessor")
net = L.nn.Linear(2, 3)
net.extra = 5
def restored(s, n, **k):
    return L.istft(s, n, **k)
"""
# A program for each line: expressions, between semicolons.
CALLS = """
L.stft(x, 8, return_complex=True); L.stft(x, 8, 3, return_complex=True); L.stft(x, 8, 3, 6, return_complex=True); L.stft(x, 8, 3, 6, w[:6], return_complex=True); L.stft(x, 8, window=w, return_complex=True, normalized=True); L.stft(x, 8, onesided=False, return_complex=True); L.stft(x, 8, center=False, return_complex=True); L.stft(x, 8, pad_mode="constant", return_complex=True); L.stft(x, 8, return_complex=False); L.stft(x, 8); L.stft(x, 8, window=w.to(L.complex64)); L.stft(x, 0, return_complex=True); L.stft(x, 8, 0, return_complex=True); L.stft(x, 8, -1, return_complex=True)
L.stft(x, 8, 2, 0, return_complex=True); L.stft(x, 8, 2, 9, return_complex=True); L.stft(x, 8, 2, 8, w[:7], return_complex=True); L.stft(x, 8, window=w[None], return_complex=True); L.stft(x.long(), 8, return_complex=True); L.stft(x[None, None], 8, return_complex=True); L.stft(x[0], 8, return_complex=True); L.stft(x.view(2, 20), 8, return_complex=True); L.stft(x, 40, center=False, return_complex=True); L.stft(x, 41, center=False, return_complex=True); L.stft(x, 41, return_complex=True); L.stft(x, 80, return_complex=True); L.stft(x.to(L.complex64), 8, onesided=True, return_complex=True); L.stft(x.to(L.complex64), 8, return_complex=True)
L.stft(x, 8, window=w.to(L.complex64), onesided=True, return_complex=True); L.stft(x, 8, align_to_window=True, return_complex=True); L.stft(x, 8, center=False, align_to_window=True, return_complex=True); L.stft(x, 8, center=False, align_to_window=False, win_length=6, return_complex=True)
restored(S, 8, window=w); restored(S, 8); restored(S, 8, length=30); restored(S, 8, length=40); restored(S, 8, length=50); restored(S, 8, center=False); restored(S, 8, hop_length=3); restored(S, 8, hop_length=2, win_length=6); restored(S, 8, hop_length=0); restored(S, 8, hop_length=9); restored(S, 8, hop_length=8); restored(S, 8, hop_length=7, win_length=6); restored(S, 8, win_length=9); restored(S, 8, win_length=0)
restored(S, 7); restored(S, 9); restored(S, 8, window=w[:7]); restored(S, 8, normalized=True)
restored(S, 8, onesided=False); restored(S, 16, onesided=False); restored(L.stft(x, 8, onesided=False, return_complex=True), 8, onesided=False); restored(L.stft(x.to(L.complex64), 8, return_complex=True), 8, onesided=False, return_complex=True); restored(L.stft(x.to(L.complex64), 8, window=w.to(L.complex64), return_complex=True), 8, window=w.to(L.complex64), onesided=False, return_complex=True); restored(S, 8, return_complex=True); restored(S, 8, onesided=True, return_complex=True); restored(S, 8, window=w.to(L.complex64)); restored(S.real, 8); restored(S[None, None], 8); restored(S[:, :0], 8); restored(S[None], 8); restored(L.view_as_real(S), 8); restored(S, 8, window=w * 0)
restored(L.stft(x.double(), 8, return_complex=True), 8); restored(S, 8, onesided=False, return_complex=True)
(A.swap_tensor(net, "weight", L.nn.Parameter(L.ones(3, 2))).shape, net.weight); A.swap_tensor(net, "extra", 7); A.swap_tensor(net, "none", exact(2)); A.swap_tensor(net, "bias", None); A.swap_tensor(net, "", exact(2)); A.swap_tensor(net, "a.b", exact(2)); A.swap_tensor(3, "a", 7); A.swap_tensor(net, 3, 7); A.swap_tensor(net, "missing", exact(2), allow_missing=True) is None
L.fft.fftfreq(5, 0.5); L.fft.fftfreq(4); L.fft.rfftfreq(5, 2.0); L.fft.rfftfreq(4); L.fft.fftfreq(4, dtype=L.int64); L.fft.fftfreq(0); L.fft.fftfreq(-1); L.fft.fftfreq(4, 0.0); L.fft.fftfreq(3, out=L.empty(3)); L.fft.fftfreq(3, out=L.empty(0)); L.fft.fftn(x.view(5, 8), dim=()); L.fft.rfftn(x.view(5, 8), dim=()); L.fft.irfftn(x.view(5, 8), dim=()); L.fft.ifftn(x.view(5, 8), dim=())
L.fft.hfftn(x.view(5, 8), dim=()); L.fft.fftshift(x.view(5, 8)); L.fft.ifftshift(x.view(5, 8), 0); L.fft.fft2(x); L.fft.fftn(x.view(5, 8), (3,), (0, 1)); L.fft.fftn(x.view(5, 8), (3, 4)); L.fft.fft(x, 0); L.fft.fft(x, -1); L.fft.fft(x, 5, norm="forward"); L.fft.fft(x, norm="other"); L.fft.irfft(x.to(L.complex64)[:5], 7); L.fft.irfft(x.to(L.complex64)[:1]); L.fft.hfft(x.to(L.complex64)[:5], 6); L.fft.ihfft(x[:7], 5)
L.fft.rfft(x.to(L.complex64)); L.fft.fft(x[0])
"""


@pytest.mark.parametrize("program", refusals(CALLS), ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)
