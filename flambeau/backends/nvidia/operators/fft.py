"""Fourier transforms on NVIDIA GPUs, by cuFFT.

The layout rules put the transformed dimensions last in memory, as the library needs them: up to three of them are one call for all other
dimensions. More of them, or those elsewhere in memory, are first copied into that order."""

from __future__ import annotations

from typing import Any

from ....core.tensor import Tensor, empty_strided
from ....ops.machinery.inplace import raw_copy
from ....ops.signal.fourier import _strides, complex_transform, inverse_real_transform, real_transform, scale_of
from .. import cufft

_AT_ONCE = 3


def _ordered(x: Tensor, last: tuple[int, ...]) -> Tensor:
    """Return a copy whose memory has the dimensions `last` at its end, in this order."""
    rest = sorted((d for d in range(len(x.shape)) if d not in last), key=lambda d: -x._strides[d])
    copy = empty_strided(x.shape, _strides(x.shape, [*rest, *last]), x.dtype, x.device)
    raw_copy(copy, x)
    return copy


def _innermost(x: Tensor, dims: tuple[int, ...]) -> list[int]:
    """Return the dims in memory order, slowest first; [] unless they are the innermost of dense memory."""
    order = sorted(dims, key=lambda d: (-x._strides[d], d))
    step = 1
    for d in reversed(order):
        if x.shape[d] > 1 and x._strides[d] != step:
            return []
        step *= x.shape[d]
    return order


def _count(x: Tensor, dims: Any) -> int:
    count = 1
    for d in range(len(x.shape)):
        if d not in dims:
            count *= x.shape[d]
    return count


def _in_place(x: Tensor, dims: tuple[int, ...], forward: bool) -> None:
    """Transform complex numbers in place, in dense memory."""
    for i in range(0, len(dims), _AT_ONCE):
        some = dims[i : i + _AT_ONCE]
        order = _innermost(x, some)
        target = x if order else _ordered(x, some)
        sizes = tuple([x.shape[d] for d in order or some])
        cufft.transform(target, target, sizes, _count(x, some), forward)
        if target is not x:
            raw_copy(x, target)


def _scale(out: Any, normalization: int, sizes: list[int]) -> None:
    if normalization:
        out.mul_(scale_of(normalization, sizes))


@complex_transform.on("cuda")
def _(out: Tensor, input: Tensor, dims: tuple[int, ...], normalization: int, forward: bool) -> None:
    raw_copy(out, input)
    _in_place(out, dims, forward)
    _scale(out, normalization, [out.shape[d] for d in dims])


@real_transform.on("cuda")
def _(out: Tensor, input: Tensor, dims: tuple[int, ...], normalization: int, onesided: bool) -> None:
    if not onesided:
        raw_copy(out, input)
        _in_place(out, dims, True)
    else:  # the halved dimension first, then the others
        last = dims[-1]
        order = sorted(range(len(out.shape)), key=lambda d: -out._strides[d])
        order = [d for d in order if d != last] + [last]
        x = empty_strided(input.shape, _strides(input.shape, order), input.dtype, input.device)
        raw_copy(x, input)
        half = out if _innermost(out, (last,)) else _ordered(out, (last,))
        if half is not out or any(
            s != w for s, w, n in zip(out._strides, _strides(out.shape, order), out.shape) if n > 1
        ):
            half = empty_strided(out.shape, _strides(out.shape, order), out.dtype, out.device)
        cufft.transform(half, x, (x.shape[last],), _count(x, (last,)))
        if half is not out:
            raw_copy(out, half)
        _in_place(out, dims[:-1], True)
    _scale(out, normalization, [input.shape[d] for d in dims])


@inverse_real_transform.on("cuda")
def _(out: Tensor, input: Tensor, dims: tuple[int, ...], normalization: int, size: int) -> None:
    last = dims[-1]
    half = size // 2 + 1
    spectrum: Any = input if input.shape[last] <= half else input._bare_alias().narrow(last, 0, half)
    if len(dims) > 1:
        spectrum = _ordered(spectrum, dims[:-1])
        _in_place(spectrum, dims[:-1], False)
    order = sorted(range(len(out.shape)), key=lambda d: -out._strides[d])
    order = [d for d in order if d != last] + [last]
    lines = empty_strided(spectrum.shape, _strides(spectrum.shape, order), spectrum.dtype, spectrum.device)
    raw_copy(lines, spectrum)
    real = empty_strided(out.shape, _strides(out.shape, order), out.dtype, out.device)
    cufft.transform(real, lines, (size,), _count(out, (last,)))
    raw_copy(out, real)
    _scale(out, normalization, [out.shape[d] for d in dims])
