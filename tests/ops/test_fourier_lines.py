"""Compiled Fourier transforms of every kind of line against NumPy in double precision."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.ops.signal import fourier_lines

# lengths with one factor, many, none of 2, long ones that are cut in two, few and many lines, lines that lie next to each other
CASES = [
    ((1,), (0,)), ((5,), (0,)), ((512,), (0,)), ((4000,), (0,)), ((1 << 14,), (0,)), ((3, 1 << 14), (1,)),
    ((1 << 15, 3), (0,)), ((300, 4), (0,)), ((100, 13), (0,)), ((17, 33), (0, 1)), ((40, 6, 8), (2, 0)),
    ((5, 6, 8), (0, 1, 2)), ((5, 6, 8), (1,)), ((2, 60, 50), (1, 2)), ((16, 16, 3), (0, 1)), ((70, 7), (0,)), ((3, 1001), (1,)), ((97, 20), (0,)), ((20, 29 * 49), (1,)),
    ((4, 101), (1,)), ((3, 202, 5), (1, 2)), ((103, 107), (0, 1)), ((10007,), (0,)), ((2, 3 * 6143), (1,)),
]  # fmt: skip
TOLERANCE = {np.complex64: 1e-6, np.complex128: 3e-15}


def numbers(shape, kind):
    r = np.random.default_rng(0)
    return (r.standard_normal(shape) + 1j * r.standard_normal(shape)).astype(kind)


def assert_near(got, expected, kind):
    assert got.shape == expected.shape
    scale = np.abs(expected).max()
    assert np.abs(got.numpy() - expected).max() <= TOLERANCE[kind] * scale


@pytest.mark.parametrize("kind", TOLERANCE, ids=lambda k: k.__name__)
@pytest.mark.parametrize(("shape", "dims"), CASES, ids=str)
def test_transforms_equal_numpy_in_double_precision(shape, dims, kind):
    z = numbers(shape, kind)
    wide = z.astype(np.complex128)
    for given in (z, np.asfortranarray(z)):
        t = flambeau.from_numpy(given)
        assert_near(flambeau.fft.fftn(t, dim=dims), np.fft.fftn(wide, axes=dims), kind)
        assert_near(flambeau.fft.ifftn(t, dim=dims), np.fft.ifftn(wide, axes=dims), kind)
        real = flambeau.from_numpy(np.array(given.real, order="K"))
        assert_near(flambeau.fft.rfftn(real, dim=dims), np.fft.rfftn(wide.real, axes=dims), kind)
        assert_near(flambeau.fft.fftn(real, dim=dims), np.fft.fftn(wide.real, axes=dims), kind)
        if shape[dims[-1]] > 1:
            sizes = [shape[d] for d in dims[:-1]] + [2 * (shape[dims[-1]] - 1)]
            assert_near(flambeau.fft.irfftn(t, dim=dims), np.fft.irfftn(wide, sizes, axes=dims), kind)


def test_parts_of_tensors_and_steps_between_elements():
    z = numbers((48, 40), np.complex64)
    t = flambeau.from_numpy(z)
    for index in (np.s_[1:33, ::2], np.s_[3, :36], np.s_[::3, 4:8]):
        assert_near(flambeau.fft.fft(t[index]), np.fft.fft(z[index].astype(np.complex128)), np.complex64)
    expanded = flambeau.from_numpy(z[0]).expand(5, 40)
    assert_near(
        flambeau.fft.fft(expanded), np.fft.fft(np.broadcast_to(z[0], (5, 40)).astype(np.complex128)), np.complex64
    )


def test_results_do_not_depend_on_the_number_of_threads():
    t = flambeau.from_numpy(numbers((100, 256), np.complex64))
    before = flambeau.get_num_threads()
    try:
        flambeau.set_num_threads(1)
        one = flambeau.fft.fft(t)
        flambeau.set_num_threads(2)
        assert flambeau.equal(one, flambeau.fft.fft(t))
    finally:
        flambeau.set_num_threads(before)


def test_only_very_long_lengths_with_large_factors_are_left_to_numpy():
    t = flambeau.from_numpy(numbers((3, 7), np.complex64))
    assert fourier_lines.is_supported(t, [7, 101, 10007])
    assert not fourier_lines.is_supported(t, [101 * 45000])


def test_the_imaginary_part_of_the_mean_does_not_count():
    half = flambeau.tensor([1 + 5j, 2 - 1j, 3 + 7j])
    np.testing.assert_allclose(flambeau.fft.irfft(half).numpy(), np.fft.irfft([1, 2 - 1j, 3]), rtol=1e-6, atol=1e-6)
