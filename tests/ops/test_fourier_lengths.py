"""Fourier transforms of every short length, of lengths with large factors and of long ones, next to NumPy's, along all kinds of lines."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau

# Every radix alone and after every other, lengths with prime factors that have no pass of their own, and lengths of two transforms.
LENGTHS = [
    *range(1, 71),
    81,
    96,
    97,
    121,
    125,
    128,
    144,
    169,
    210,
    243,
    256,
    289,
    343,
    360,
    375,
    480,
    512,
    600,
    625,
    729,
    1000,
    1024,
]
LONG = [1009, 1331, 2048, 2187, 3125, 4093, 4096, 5000, 6144, 8192, 10007, 16384, 19683, 32768, 65536, 100000]
LINES = {
    "one": ((), 0), "last of 3": ((3,), 1), "last of 19": ((19,), 1), "first of 5": ((5,), 0), "first of 16": ((16,), 0),
    "first of 41": ((41,), 0), "middle": ((3, 11), 1),
}  # fmt: skip
WHAT = {
    "fft": np.fft.fft, "ifft": np.fft.ifft, "fft of reals": np.fft.fft, "ifft of reals": np.fft.ifft, "rfft": np.fft.rfft,
    "irfft": np.fft.irfft, "hfft": np.fft.hfft, "ihfft": np.fft.ihfft,
}  # fmt: skip
COMPLEX = ("fft", "ifft", "irfft", "hfft")


def compare(what: str, shape: tuple[int, ...], dim: int, n: int, dtype: str) -> None:
    generator = np.random.default_rng(n)
    x = generator.standard_normal(shape)
    if what in COMPLEX:
        x = x + 1j * generator.standard_normal(shape)
    x = x.astype(dtype if what not in COMPLEX else {"float32": "complex64", "float64": "complex128"}[dtype])
    options = {"n": n} if what in ("irfft", "hfft") else {}
    expected = WHAT[what](x.astype("complex128" if what in COMPLEX else "float64"), axis=dim, **options)
    given = flambeau.from_numpy(x)
    found = getattr(flambeau.fft, what.partition(" ")[0])(given, dim=dim, **options).resolve_conj().numpy()
    assert found.shape == expected.shape and found.real.dtype == dtype
    tolerance = 1e-12 if dtype == "float64" else 3e-6
    scale = np.sqrt(np.square(np.abs(expected)).mean()) if n else 1.0
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(scale, 1e-3) * 8, err_msg=f"{what} of {n}")
    np.testing.assert_array_equal(given.numpy(), x, "it was changed")


@pytest.mark.parametrize("lines", LINES)
@pytest.mark.parametrize("what", WHAT)
def test_every_length(what: str, lines: str) -> None:
    others, dim = LINES[lines]
    for n in LENGTHS[:: 1 if lines in ("one", "first of 41") else 3]:
        size = n // 2 + 1 if what in ("irfft", "hfft") else n
        compare(what, (*others[:dim], size, *others[dim:]), dim, n, "float64")


@pytest.mark.parametrize("what", WHAT)
def test_long_lines(what: str) -> None:
    for n in LONG:
        size = n // 2 + 1 if what in ("irfft", "hfft") else n
        compare(what, (size,), 0, n, "float64")
        if n < 10_000:
            compare(what, (3, size), 1, n, "float32")


@pytest.mark.parametrize("what", WHAT)
def test_single_precision(what: str) -> None:
    for n in (1, 2, 3, 5, 7, 8, 12, 30, 64, 77, 256, 1000):
        size = n // 2 + 1 if what in ("irfft", "hfft") else n
        compare(what, (18, size), 1, n, "float32")
        compare(what, (size, 18), 0, n, "float32")


@pytest.mark.parametrize("dims", [(0, 1), (1, 2), (0, 2), (2, 0), (0, 1, 2)])
def test_several_dimensions_in_any_order(dims: tuple[int, ...]) -> None:
    generator = np.random.default_rng(3)
    x = generator.standard_normal((12, 7, 20)) + 1j * generator.standard_normal((12, 7, 20))
    for name in ("fftn", "ifftn", "irfftn"):
        expected = getattr(np.fft, name)(x, axes=dims)
        found = getattr(flambeau.fft, name)(flambeau.from_numpy(x), dim=dims).numpy()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(
        flambeau.fft.rfftn(flambeau.from_numpy(x.real.copy()), dim=dims).numpy(),
        np.fft.rfftn(x.real, axes=dims), rtol=0, atol=1e-11,
    )  # fmt: skip
    for view in (
        flambeau.from_numpy(x).transpose(0, 2),
        flambeau.from_numpy(x)[:, ::2],
        flambeau.from_numpy(x).flip(2),
    ):
        expected = np.fft.fftn(view.numpy(), axes=dims)
        np.testing.assert_allclose(flambeau.fft.fftn(view, dim=dims).numpy(), expected, rtol=0, atol=1e-11)
