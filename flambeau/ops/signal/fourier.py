"""Discrete Fourier transforms, by compiled kernels (`fourier_lines`) or NumPy's pocketfft without them.

Three primitives do all the work, as in PyTorch: complex to complex, real to complex and complex to real, each over several
dimensions and with one of three factors. The named functions only resize their input and choose that factor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import dtype as dt
from ...core.layout import wrap_dim
from ...core.promotion import get_default_dtype
from ...core.size import make_size
from ...core.tensor import Tensor, copy_of_array, empty_strided
from ..creation.filled import finish, new
from ..machinery.arguments import as_ints, is_int, need_tensor, read_options
from ..machinery.declare import composite, internal
from ..machinery.inplace import raw_copy
from ..machinery.quirks import Quirks
from ..machinery.record import Batched, NewTensor
from ..shape.joining import cat
from ..shape.padding import pad
from .fourier_lines import is_real_supported, is_supported, real_along, transform_along

# -- primitives -------------------------------------------------------------------------------------------------------

_ALONG = Batched("along", dims=("dims",))


def _strides(shape: Any, order: list[int]) -> tuple[int, ...]:
    """Return the strides of dimensions that are stored in the given order (slowest first)."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def _deliver(out: Tensor, array: np.ndarray, scale: float) -> None:
    """Store the scaled values in the result."""
    values = out._array()
    if scale == 1:
        values[...] = array
    else:
        np.multiply(array, array.real.dtype.type(scale), out=values, casting="same_kind")


def _memory_order(x: Tensor, dims: tuple[int, ...], sort_all: bool) -> list[int]:
    """Return the order of dimensions in memory: transformed ones last, the others in their order; the halved one (the last of dims)
    innermost."""

    def by_stride(which: list[int]) -> list[int]:
        return sorted(which, key=lambda d: -x._strides[d])

    rest = by_stride([d for d in range(len(x.shape)) if d not in dims])
    if sort_all:
        return rest + by_stride(list(dims))
    return rest + by_stride(list(dims[:-1])) + [dims[-1]]


def scale_of(normalization: int, sizes: list[int]) -> float:
    """Return the factor of the raw sums: 1, or one over the root of the number of elements or over the number itself."""
    count = math.prod(sizes) if normalization else 1
    return 1.0 / (math.sqrt(count) if normalization == 1 else count)


def _check(input: Tensor, dims: tuple[int, ...], kind: str, points: int = 1) -> None:
    """Raise an error unless the input is of this kind, and has the dimensions, each once, and something along them: kernels trust that."""
    matches = input.dtype.is_complex if kind == "complex" else input.dtype.is_floating_point
    if not matches:
        raise RuntimeError(f"Only supports {kind} dtypes, but found: {input.dtype.scalar_type}")
    rank = len(input.shape)
    if len(set(dims)) < len(dims) or not all(0 <= d < rank for d in dims):
        raise RuntimeError(f"Expected different dimensions from 0 to {rank - 1}, but got dim={list(dims)}")
    _check_points(min([points, *(input.shape[d] for d in dims)]))


def _complex_gradient(g: Tensor, dims: tuple[int, ...], normalization: int, forward: bool) -> Tensor:
    return complex_transform(g, dims, normalization, not forward)


@internal(
    grads={"input": _complex_gradient}, aten="_fft_c2c(input, list(dims), normalization, forward)",
    quirks=Quirks(label="FftC2CBackward0"), batching=_ALONG,
)  # fmt: skip
def complex_transform(input: Tensor, dims: tuple[int, ...], normalization: int, forward: bool) -> NewTensor:
    """The coefficients of complex numbers, or the inverse."""
    _check(input, dims, "complex")
    return input.shape, input.dtype, input.device, _strides(input.shape, _memory_order(input, dims, True))


@complex_transform.on("cpu")
def _(out: Tensor, input: Tensor, dims: tuple[int, ...], normalization: int, forward: bool) -> None:
    scale = scale_of(normalization, [input.shape[d] for d in dims])
    if dims and is_supported([input.shape[d] for d in dims]):
        _along_each(out, input, dims, scale, forward)
        return
    a = input._array()
    _deliver(out, np.fft.fftn(a, axes=dims) if forward else np.fft.ifftn(a, axes=dims, norm="forward"), scale)


def _along_each(out: Tensor, x: Tensor, dims: tuple[int, ...], scale: float, forward: bool) -> None:
    """Transform x along one dimension after the other; the first writes to `out`, the others work in place there."""
    for i, d in enumerate(dims):
        transform_along(out, out if i else x, d, scale if i == len(dims) - 1 else 1.0, forward)


def _mirrored(half: np.ndarray, n: int, dims: tuple[int, ...]) -> np.ndarray:
    """Return all n coefficients along the last of dims from the half that real numbers have: the others are conjugates of those at the
    negative frequencies."""
    last = dims[-1]
    positive = half.shape[last]
    order = [np.arange(size) for size in half.shape]
    order[last] = np.arange(n - positive, 0, -1)
    for d in dims[:-1]:
        order[d] = -np.arange(half.shape[d]) % half.shape[d]
    return np.concatenate([half, half[np.ix_(*order)].conj()], last)


def _real_gradient(g: Tensor, dims: tuple[int, ...], normalization: int, onesided: bool, input_shape: Any) -> Tensor:
    if onesided:
        missing = input_shape[dims[-1]] - g.shape[dims[-1]]
        g = _padded(g, dims[-1], missing)
    return complex_transform(g, dims, normalization, False).real


@internal(
    grads={"input": _real_gradient}, aten="_fft_r2c(input, list(dims), normalization, onesided)",
    quirks=Quirks(label="FftR2CBackward0"), batching=_ALONG,
)  # fmt: skip
def real_transform(input: Tensor, dims: tuple[int, ...], normalization: int, onesided: bool) -> NewTensor:
    """The coefficients of real numbers, all or half of them."""
    _check(input, dims, "floating-point", len(dims))
    shape = list(input.shape)
    if onesided:
        shape[dims[-1]] = shape[dims[-1]] // 2 + 1
    strides = _strides(shape, _memory_order(input, dims, not onesided))
    return tuple(shape), input.dtype.to_complex(), input.device, strides


@real_transform.on("cpu")
def _(out: Tensor, input: Tensor, dims: tuple[int, ...], normalization: int, onesided: bool) -> None:
    sizes, last = [input.shape[d] for d in dims], dims[-1]
    n, scale = sizes[-1], scale_of(normalization, sizes)
    if not is_supported(sizes):
        raw = np.fft.rfftn(input._array(), axes=dims)
        _deliver(out, raw if onesided else _mirrored(raw, n, dims), scale)
        return
    if is_real_supported(n):
        real_along(out, input, last, n, scale, False)
    else:
        order = _memory_order(input, dims, not onesided)
        whole = empty_strided(input.shape, _strides(input.shape, order), out.dtype, out.device) if onesided else out
        transform_along(whole, input.to(out.dtype), last, scale, True)
        if onesided:
            raw_copy(out, whole.narrow(last, 0, n // 2 + 1))
    _along_each(out, out, dims[:-1], 1.0, True)


def _completed(half: Tensor, dim: int, n: int) -> Tensor:
    """Return all n coefficients of real numbers along a dimension."""
    ends = half.narrow(dim, 0, n // 2 + 1).clone()
    for j in {0, n // 2} if n % 2 == 0 else {0}:  # these are real
        ends.select(dim, j).imag.zero_()
    return cat([ends, ends.narrow(dim, 1, n - n // 2 - 1).flip(dim).conj()], dim)


def _to_real_gradient(g: Tensor, dims: tuple[int, ...], normalization: int, size: int) -> Tensor:
    """Return the gradient of a transform to real numbers: every coefficient but the first (and a middle one) counts twice."""
    half = real_transform(g, dims, normalization, True)
    last = dims[-1]
    count = half.shape[last]
    weights = half.new_ones(count, dtype=g.dtype)
    weights[1 : 1 + size - count] = 2
    return half * weights.reshape([count if d == last else 1 for d in range(len(g.shape))])


@internal(
    grads={"input": _to_real_gradient}, aten="_fft_c2r(input, list(dims), normalization, size)",
    quirks=Quirks(label="FftC2RBackward0"), batching=_ALONG,
)  # fmt: skip
def inverse_real_transform(input: Tensor, dims: tuple[int, ...], normalization: int, size: int) -> NewTensor:
    """The `size` real numbers along the last of dims from half of their coefficients."""
    _check(input, dims, "complex", min(size, len(dims)))
    if input.shape[dims[-1]] <= size // 2:
        raise RuntimeError(f"Expected {size // 2 + 1} coefficients of {size} numbers, but got {input.shape[dims[-1]]}")
    shape = tuple([size if i == dims[-1] else n for i, n in enumerate(input.shape)])
    return shape, input.dtype.to_real(), input.device, _strides(shape, _memory_order(input, dims, False))


@inverse_real_transform.on("cpu")
def _(out: Tensor, input: Tensor, dims: tuple[int, ...], normalization: int, size: int) -> None:
    sizes, last, spectrum = [*(input.shape[d] for d in dims[:-1]), size], dims[-1], input
    scale = scale_of(normalization, sizes)
    if not is_supported(sizes):
        _deliver(out, np.fft.irfftn(input._array(), sizes, dims, norm="forward"), scale)
        return
    if len(dims) > 1:
        strides = _strides(input.shape, _memory_order(input, dims, False))
        spectrum = empty_strided(input.shape, strides, input.dtype, input.device)
        _along_each(spectrum, input, dims[:-1], 1.0, False)
    if is_real_supported(size):
        real_along(out, spectrum, last, size, scale, True)
    else:
        whole = _completed(spectrum, last, size)
        transform_along(whole, whole, last, scale, False)
        raw_copy(out, whole.real)


# -- arguments --------------------------------------------------------------------------------------------------------


def _floating(name: str, x: Any) -> Tensor:
    """Return the input as floating point or complex numbers."""
    need_tensor(f"fft_{name}", x)
    if x.dtype.category < 2:
        x = x.to(get_default_dtype())
    if x.dtype.itemsize < 4 or x.dtype.name == "complex32":
        raise RuntimeError(f"Unsupported dtype {x.dtype.scalar_type}")
    return x


def _complex(name: str, x: Any) -> Tensor:
    x = _floating(name, x)
    return x if x.dtype.is_complex else x.to(x.dtype.to_complex())


def _real_only(name: str, x: Any, words: str) -> Tensor:
    need_tensor(f"fft_{name}", x)
    if x.dtype.is_complex:
        raise RuntimeError(f"{name} expects a {words} input tensor, but got {x.dtype.scalar_type}")
    return _floating(name, x)


def _mode(norm: Any, forward: bool) -> int:
    """Return the number of a normalization among those of `scale_of`."""
    if norm is None or norm == "backward":
        return 0 if forward else 2
    if norm == "forward":
        return 2 if forward else 0
    if norm == "ortho":
        return 1
    raise RuntimeError(f'Invalid normalization mode: "{norm}"')


def _padded(x: Tensor, dim: int, missing: int) -> Tensor:
    if not missing:
        return x
    return pad(x, [0, 0] * (len(x.shape) - 1 - dim) + [0, missing])


def _resized(x: Tensor, dims: tuple[int, ...], sizes: list[int]) -> Tensor:
    """Return x cropped, or padded with zeros, to the given sizes."""
    for d, n in zip(dims, sizes):
        if n < x.shape[d]:
            x = x.narrow(d, 0, n)
        elif n > x.shape[d]:
            x = _padded(x, d, n - x.shape[d])
    return x


def _check_points(n: int) -> int:
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return n


def _one(x: Tensor, n: int | None, dim: int) -> tuple[tuple[int, ...], int]:
    """Return the dimension and size of a one-dimensional transform."""
    d = wrap_dim(dim, len(x.shape), False)
    return (d,), _check_points(x.shape[d] if n is None else int(n))


def _many(name: str, x: Tensor, s: Any, dim: Any) -> tuple[tuple[int, ...], list[int]]:
    """Return the dimensions and sizes of a transform over several; a size of -1 keeps the input's."""
    rank = len(x.shape)
    sizes = None if s is None else [int(s)] if is_int(s) else list(as_ints(s, f"fft_{name}", "s", 2))
    if dim is None:
        if sizes is not None and len(sizes) > rank:
            raise RuntimeError(f"Got shape with {len(sizes)} values but input tensor only has {rank} dimensions.")
        dims = tuple(range(0 if sizes is None else rank - len(sizes), rank))
    else:
        given = (int(dim),) if is_int(dim) else as_ints(dim, f"fft_{name}", "dim", 3)
        dims = tuple(wrap_dim(d, rank, False) for d in given)
        if len(set(dims)) != len(dims):
            raise RuntimeError("FFT dims must be unique")
        if sizes is not None and len(sizes) != len(dims):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
    full = [x.shape[d] if sizes is None or sizes[i] == -1 else sizes[i] for i, d in enumerate(dims)]
    return dims, [_check_points(n) for n in full]


def _need_dims(name: str, dims: tuple[int, ...]) -> None:
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")


# -- one dimension ----------------------------------------------------------------------------------------------------


def _plain(name: str, input: Any, n: int | None, dim: int, norm: Any, forward: bool) -> Tensor:
    x = _floating(name, input)
    dims, size = _one(x, n, dim)
    x, mode = _resized(x, dims, [size]), _mode(norm, forward)
    if x.dtype.is_complex:
        return complex_transform(x, dims, mode, forward)
    result = real_transform(x, dims, mode, False)
    return result if forward else result.conj()


@composite(namespaces=("fft",), method=False, out=True, autocast="float32")
def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The Fourier transform along one dimension."""
    return _plain("fft", input, n, dim, norm, True)


@composite(namespaces=("fft",), method=False, out=True, autocast="float32")
def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse Fourier transform along one dimension."""
    return _plain("ifft", input, n, dim, norm, False)


@composite(namespaces=("fft",), method=False, out=True, autocast="float32")
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The Fourier transform of real numbers: the half of the coefficients that determines the rest."""
    x = _real_only("rfft", input, "real")
    dims, size = _one(x, n, dim)
    return real_transform(_resized(x, dims, [size]), dims, _mode(norm, True), True)


def _to_real(name: str, input: Any, n: int | None, dim: int, norm: Any, forward: bool) -> Tensor:
    x = _complex(name, input)
    d = wrap_dim(dim, len(x.shape), False)
    size = _check_points(2 * (x.shape[d] - 1) if n is None else int(n))
    x = _resized(x, (d,), [size // 2 + 1])
    return inverse_real_transform(x.conj() if forward else x, (d,), _mode(norm, forward), size)


@composite(namespaces=("fft",), method=False, out=True, autocast="float32")
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of rfft."""
    return _to_real("irfft", input, n, dim, norm, False)


@composite(namespaces=("fft",), method=False, out=True, autocast="float32")
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The Fourier transform of a signal whose second half mirrors the first: real numbers."""
    return _to_real("hfft", input, n, dim, norm, True)


@composite(namespaces=("fft",), method=False, out=True, autocast="float32")
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of hfft."""
    x = _real_only("ihfft", input, "real")
    dims, size = _one(x, n, dim)
    return real_transform(_resized(x, dims, [size]), dims, _mode(norm, False), True).conj()


# -- several dimensions -----------------------------------------------------------------------------------------------

_LAST_TWO = (-2, -1)


def _plain_many(name: str, input: Any, s: Any, dim: Any, norm: Any, forward: bool) -> Tensor:
    x = _complex(name, input)
    dims, sizes = _many(name, x, s, dim)
    mode, x = _mode(norm, forward), _resized(x, dims, sizes)
    return complex_transform(x, dims, mode, forward) if dims else x.clone()


@composite(namespaces=("fft",), method=False, out=True, autocast="float32")
def fftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The Fourier transform over several dimensions."""
    return _plain_many("fftn", input, s, dim, norm, True)


@composite(namespaces=("fft",), method=False, out=True, autocast="float32")
def ifftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of fftn."""
    return _plain_many("ifftn", input, s, dim, norm, False)


@composite(namespaces=("fft",), method=False, out=True, autocast="float32")
def rfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The Fourier transform of real numbers over several dimensions; along the last one, half of it."""
    x = _real_only("rfftn", input, "real-valued")
    dims, sizes = _many("rfftn", x, s, dim)
    _need_dims("rfftn", dims)
    return real_transform(_resized(x, dims, sizes), dims, _mode(norm, True), True)


def _to_real_sizes(name: str, x: Tensor, s: Any, dim: Any) -> tuple[tuple[int, ...], list[int], int]:
    """Return dimensions, the sizes that the coefficients need, and the size of the last dimension of the result."""
    dims, sizes = _many(name, x, s, dim)
    _need_dims(name, dims)
    given = None if s is None else int(s) if is_int(s) else int(tuple(s)[-1])
    last = _check_points(2 * (x.shape[dims[-1]] - 1) if given is None or given == -1 else given)
    return dims, [*sizes[:-1], last // 2 + 1], last


@composite(namespaces=("fft",), method=False, out=True, autocast="float32")
def irfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of rfftn."""
    x = _complex("irfftn", input)
    dims, sizes, last = _to_real_sizes("irfftn", x, s, dim)
    return inverse_real_transform(_resized(x, dims, sizes), dims, _mode(norm, False), last)


@composite(namespaces=("fft",), method=False, out=True)
def hfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The Fourier transform of a signal with mirror symmetry over several dimensions: real numbers."""
    x = _complex("hfftn", input)
    dims, sizes, last = _to_real_sizes("hfftn", x, s, dim)
    mode, x = _mode(norm, True), _resized(x, dims, sizes)
    if len(dims) > 1:
        x = complex_transform(x, dims[:-1], mode, True)
    return inverse_real_transform(x.conj(), dims[-1:], mode, last)


@composite(namespaces=("fft",), method=False, out=True)
def ihfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of hfftn."""
    x = _real_only("ihfftn", input, "real-valued")
    dims, sizes = _many("ihfftn", x, s, dim)
    _need_dims("ihfftn", dims)
    mode = _mode(norm, False)
    half = real_transform(_resized(x, dims, sizes), dims[-1:], mode, True).conj()
    return complex_transform(half, dims[:-1], mode, False) if len(dims) > 1 else half


def _of_two(name: str, full: Any, words: str) -> None:
    """Declare the transform over the last two dimensions that corresponds to one over any."""

    def transform(input: Tensor, s: Any = None, dim: Any = _LAST_TWO, norm: str | None = None) -> Tensor:
        return full(input, s, dim, norm)

    transform.__name__ = name
    transform.__doc__ = words
    composite(transform, namespaces=("fft",), method=False, out=True, autocast=full.op.autocast)


_of_two("fft2", fftn, "fftn over the last two dimensions.")
_of_two("ifft2", ifftn, "ifftn over the last two dimensions.")
_of_two("rfft2", rfftn, "rfftn over the last two dimensions.")
_of_two("irfft2", irfftn, "irfftn over the last two dimensions.")
_of_two("hfft2", hfftn, "hfftn over the last two dimensions.")
_of_two("ihfft2", ihfftn, "ihfftn over the last two dimensions.")


# -- helpers ----------------------------------------------------------------------------------------------------------


def _frequencies(name: str, values: np.ndarray, n: int, d: float, out: Any, options: dict[str, Any]) -> Tensor:
    chosen = read_options(name, options)
    t = new(make_size(values.shape), chosen, get_default_dtype())
    if t.dtype.category < 2 or n < 0:
        raise RuntimeError(f"{name} requires a floating point dtype and n >= 0")
    with np.errstate(all="ignore"):  # no samples, or no time between them
        frequencies = values * np.divide(1.0, n * d)
    t.copy_(copy_of_array(frequencies, dt.float64))
    if out is not None:
        return out.resize_(t.shape).copy_(t)
    return finish(t, chosen.requires_grad)


@composite(kind="creation", namespaces=("fft",), method=False)
def fftfreq(n: int, d: float = 1.0, *, out: Any = None, **options: Any) -> Tensor:
    """The frequencies of the coefficients of fft."""
    values = np.arange(n)
    return _frequencies("fftfreq", np.where(values < (n + 1) // 2, values, values - n), n, d, out, options)


@composite(kind="creation", namespaces=("fft",), method=False)
def rfftfreq(n: int, d: float = 1.0, *, out: Any = None, **options: Any) -> Tensor:
    """The frequencies of the coefficients of rfft."""
    return _frequencies("rfftfreq", np.arange(n // 2 + 1), n, d, out, options)


def _all_dims(x: Tensor, dim: Any) -> list[int]:
    if dim is None:
        return list(range(len(x.shape)))
    return [wrap_dim(d, len(x.shape)) for d in ((dim,) if is_int(dim) else dim)]


@composite(namespaces=("fft",), method=False)
def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """Coefficients in ascending order of frequency: zero in the middle."""
    dims = _all_dims(input, dim)
    return input.roll([input.shape[d] // 2 for d in dims], dims)


@composite(namespaces=("fft",), method=False)
def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The inverse of fftshift."""
    dims = _all_dims(input, dim)
    return input.roll([(input.shape[d] + 1) // 2 for d in dims], dims)
