"""From raw random words to distributions, with PyTorch's bits and PyTorch's consumption of the engine.

Every function takes a `Generator` and returns a flat array in the order in which PyTorch's loops visit the destination:
memory order for a dense tensor, whatever its strides (`place` puts a flat array into a destination's logical order).
bfloat16 comes as uint16 bits. Samplers that take a varying number of draws per element are in `random_samplers`.

The judge is a PyTorch that uses fused multiply-adds (AVX2 or AVX512) and this engine throughout. Where PyTorch takes
numbers from MKL's streams instead (it can for `bernoulli_(p)` and `exponential_` on Intel processors), they differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from flambeau.core import random_math as rm
from flambeau.core.dtype import bfloat16, bool_, complex128, dtype, float32, float64
from flambeau.core.generator import Generator

# Words handled at a time: small enough that temporaries stay in the cache.
_CHUNK = 1 << 16
# Up to here the C library's functions are cheaper than an approximation with its certificate.
_FEW = 256
_LOW_53 = np.uint64(2**53 - 1)
_RELATIVE_ERROR = 2.0**-45  # a generous bound for a few NumPy operations in float64


# -- order ------------------------------------------------------------------------------------------------------------


def iteration_order(shape: Sequence[int], *strides: Sequence[int]) -> list[int]:
    """Return the dimensions, outermost first, in which PyTorch's loops visit operands (destination first) of these strides."""

    def compare(inner: int, outer: int) -> int:
        for stride in strides:
            a, b = stride[inner], stride[outer]
            if a and b and a != b:
                return -1 if a < b else 1
            if a and b and shape[inner] > shape[outer]:
                return 1
        return 0

    order = list(range(len(shape) - 1, -1, -1))
    for start in range(1, len(order)):
        moving = start
        for other in range(start - 1, -1, -1):
            verdict = compare(order[other], order[moving])
            if verdict > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
            elif verdict < 0:
                break
    return order[::-1]


def place(flat: np.ndarray[Any, Any], shape: Sequence[int], *strides: Sequence[int]) -> np.ndarray[Any, Any]:
    """Arrange visited-order values as an array of `shape`: element [i, j, ...] is what PyTorch writes at index (i, j, ...)."""
    order = iteration_order(shape, *strides)
    return flat.reshape([shape[d] for d in order]).transpose(np.argsort(order))


def visited(values: np.ndarray[Any, Any], shape: Sequence[int], *strides: Sequence[int]) -> np.ndarray[Any, Any]:
    """Flatten a logical array in the order PyTorch's loops visit it: the inverse of `place`."""
    return np.ascontiguousarray(values.transpose(iteration_order(shape, *strides))).reshape(-1)


# -- uniform ----------------------------------------------------------------------------------------------------------


def _chunks(n: int, size: int = _CHUNK) -> Iterator[tuple[int, int]]:
    for start in range(0, n, size):
        yield start, min(start + size, n)


def unit32(generator: Generator, n: int) -> np.ndarray[Any, Any]:
    """Draw numbers uniform on [0, 1) with 24 random bits, float32; one draw each."""
    out = np.empty(n, np.float32)
    for start, stop in _chunks(n):
        words = generator.raw(stop - start)
        words &= np.uint64(0xFFFFFF)
        out[start:stop] = words.astype(np.int32)
    out *= np.float32(2.0**-24)
    return out


def unit53(generator: Generator, n: int) -> np.ndarray[Any, Any]:
    """Draw numbers uniform on [0, 1) with 53 random bits, float64; two draws each."""
    out = np.empty(n, np.float64)
    for start, stop in _chunks(n, _CHUNK // 2):
        words = generator.random64(stop - start)
        words &= _LOW_53
        out[start:stop] = words.view(np.int64)
    out *= 2.0**-53
    return out


def uniform(generator: Generator, n: int, to: dtype, low: float = 0.0, high: float = 1.0) -> np.ndarray[Any, Any]:
    """Draw the samples of `uniform_(low, high)` and `rand`. A complex element is two real ones."""
    if to.is_complex:
        return uniform(generator, 2 * n, to.to_real(), low, high).view(to.numpy)
    check_uniform(to, low, high)
    if to is float64:
        values = unit53(generator, n)
        if (low, high) != (0, 1):
            values = rm.fma64(values, high - low, low)
            values[values == high] = low
        return values
    values = unit32(generator, n)
    if to is float32 and low == 0 and high == 1:
        return values
    low32, high32 = np.float32(low), np.float32(high)
    if (low, high) != (0, 1):
        values = rm.fma32(values, float(high32 - low32), float(low32))
    narrowed = rm.narrow(values, to)
    # The upper end is excluded; a sample that rounding brought there becomes the lower end.
    lowest, highest = rm.narrow(np.array([low32, high32]), to)
    narrowed[narrowed == highest] = lowest
    return narrowed


def _require_floating(name: str, to: dtype) -> None:
    if not to.is_floating_point:
        raise NotImplementedError(f'"{name}" not implemented for {to}')


def _refuse_complex_and_wide_unsigned(name: str, to: dtype) -> None:
    if to.is_complex or to.name in ("uint16", "uint32", "uint64"):
        raise NotImplementedError(f'"{name}" not implemented for {to}')


def check_uniform(to: dtype, low: float, high: float) -> None:
    _require_floating("uniform_", to)
    largest = to.limits.max
    for name, bound in (("from", low), ("to", high)):
        if not -largest <= bound <= largest:
            raise RuntimeError(f"{name} is out of bounds for {to}: {bound}")
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
    if high - low > largest:
        raise RuntimeError(f"uniform_ expects to-from <= {largest} for {to}, but found to={high} and from={low}")


# -- normal -----------------------------------------------------------------------------------------------------------


def normal(
    generator: Generator, n: int, to: dtype, mean: float = 0.0, std: float = 1.0, contiguous: bool = True
) -> np.ndarray[Any, Any]:
    """Draw the samples of `normal_(mean, std)` and `randn`. `contiguous` says whether the destination is: PyTorch has two algorithms."""
    if not std >= 0.0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    if to.is_complex:
        # Both parts get the mean, as in PyTorch.
        return normal(generator, 2 * n, to.to_real(), mean, std / math.sqrt(2.0), contiguous).view(to.numpy)
    _require_floating("normal_", to)
    if n < 16 or not contiguous:
        return _normal_serial(generator, n, to, mean, std)
    return _normal_blocks(generator, n, to, mean, std)


def _normal_blocks(generator: Generator, n: int, to: dtype, mean: float, std: float) -> np.ndarray[Any, Any]:
    """Draw normal samples by Box-Muller over blocks of 16: eight radii, then eight angles. A ragged end redoes the last 16 elements."""
    unit, transform = (unit53, _box_muller64) if to is float64 else (unit32, _box_muller32)
    out = np.empty(n, to.numpy)
    whole = n // 16 * 16
    for start, stop in _chunks(whole):
        out[start:stop] = rm.narrow(transform(unit(generator, stop - start), mean, std), to)
    if whole != n:
        # float32 and float64 first fill all n elements with uniform samples; half-width types fill block by block.
        if to is float64 or to is float32:
            generator.skip((n - whole) * (2 if to is float64 else 1))
        out[n - 16 :] = rm.narrow(transform(unit(generator, 16), mean, std), to)
    return out


def _box_muller32(unit: np.ndarray[Any, Any], mean: float, std: float) -> np.ndarray[Any, Any]:
    blocks = unit.reshape(-1, 16)
    radius = rm.log32(np.subtract(np.float32(1), blocks[:, :8]).reshape(-1))
    radius *= np.float32(-2)
    np.sqrt(radius, out=radius)
    sine, cosine = rm.sincos32(np.multiply(blocks[:, 8:], np.float32(rm.TWO_PI_32)).reshape(-1))
    blocks[:, :8] = (radius * cosine).reshape(-1, 8)
    blocks[:, 8:] = (radius * sine).reshape(-1, 8)
    if mean == 0 and std == 1:
        unit += np.float32(0)  # as the fused multiply-add does, makes -0.0 positive
        return unit
    return rm.fma32(unit, float(np.float32(std)), float(np.float32(mean)))


def _box_muller64(unit: np.ndarray[Any, Any], mean: float, std: float) -> np.ndarray[Any, Any]:
    blocks = unit.reshape(-1, 16)
    radius = np.sqrt(-2.0 * rm.libm(math.log, (1.0 - blocks[:, :8]).reshape(-1)))
    angle = (2.0 * math.pi * blocks[:, 8:]).reshape(-1)
    blocks[:, :8] = (radius * rm.libm(math.cos, angle)).reshape(-1, 8)
    blocks[:, 8:] = (radius * rm.libm(math.sin, angle)).reshape(-1, 8)
    return rm.fma64(unit, std, mean)


def standard_normals(generator: Generator, n: int) -> list[float]:
    """Draw `n` standard normal samples one after the other; an odd one is kept for the next call."""
    if n == 0:
        return []
    with generator.lock:
        samples = [] if generator.kept_normal is None else [generator.kept_normal]
        unit = unit53(generator, (n - len(samples) + 1) // 2 * 2).tolist()
        for angle, radius in zip(unit[0::2], unit[1::2], strict=True):
            samples.extend(_normal_pair(2.0 * math.pi * angle, radius))
        generator.kept_normal = samples.pop() if len(samples) > n else None
    return samples


def _normal_pair(angle: float, unit: float) -> tuple[float, float]:
    radius = math.sqrt(-2.0 * math.log1p(-unit))
    return radius * math.cos(angle), radius * math.sin(angle)


class _ApproximateNormals:
    """Numbers of `standard_normals`, computed faster to a relative error below 2**-45; `exact_at` returns the exact bits."""

    def __init__(self, generator: Generator, n: int) -> None:
        with generator.lock:
            kept = generator.kept_normal
            self.first = first = 0 if kept is None else 1
            unit = unit53(generator, (n - first + 1) // 2 * 2)
            self.angle, self.unit = 2.0 * math.pi * unit[0::2], unit[1::2]
            samples = np.empty(first + unit.size)
            samples[:first] = kept
            radius = np.sqrt(-2.0 * np.log1p(-self.unit))
            np.multiply(radius, np.cos(self.angle), out=samples[first::2])
            np.multiply(radius, np.sin(self.angle), out=samples[first + 1 :: 2])
            self.values = samples[:n]
            generator.kept_normal = self._exact(n) if samples.size > n else None

    def _exact(self, index: int) -> float:
        if index < self.first:
            return float(self.values[index])  # kept from an earlier call, where it was computed exactly
        pair, odd = divmod(index - self.first, 2)
        return _normal_pair(float(self.angle[pair]), float(self.unit[pair]))[odd]

    def exact_at(self, indices: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.array([self._exact(index) for index in indices.tolist()])


def _normal_serial(generator: Generator, n: int, to: dtype, mean: float, std: float) -> np.ndarray[Any, Any]:
    if to is float64 or n <= _FEW:
        return rm.narrow(rm.fma64(np.array(standard_normals(generator, n), np.float64), std, mean), to)
    normals = _ApproximateNormals(generator, n)
    scaled = normals.values * std
    tolerance = (np.abs(scaled) + abs(mean)) * _RELATIVE_ERROR
    scaled += mean
    return rm.narrow_certified(scaled, tolerance, lambda where: rm.fma64(normals.exact_at(where), std, mean), to)


def log_normal(generator: Generator, n: int, to: dtype, mean: float = 1.0, std: float = 2.0) -> np.ndarray[Any, Any]:
    """Draw the samples of `log_normal_(mean, std)`."""
    if not std > 0.0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    _require_floating("log_normal_", to)
    if to is float64 or n <= _FEW:
        exponents = rm.fma64(np.array(standard_normals(generator, n), np.float64), std, mean)
        return rm.narrow(rm.libm(rm.exp, exponents), to)
    normals = _ApproximateNormals(generator, n)
    scaled = normals.values * std
    with np.errstate(over="ignore"):
        approximate = np.exp(scaled + mean)
        tolerance = approximate * ((np.abs(scaled) + abs(mean) + 1.0) * _RELATIVE_ERROR)
    return rm.narrow_certified(
        approximate, tolerance, lambda where: rm.libm(rm.exp, rm.fma64(normals.exact_at(where), std, mean)), to
    )


# -- other continuous distributions -----------------------------------------------------------------------------------


def _transform(
    unit: np.ndarray[Any, Any],
    to: dtype,
    fast: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]],
    exact: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]],
    offset: float = 0.0,
) -> np.ndarray[Any, Any]:
    """Return exact(unit) as dtype `to`, computed by `fast` where that is certain to give the same."""
    if to is float64 or unit.size <= _FEW:
        return rm.narrow(exact(unit), to)
    approximate = fast(unit)
    tolerance = (np.abs(approximate) + 2.0 * abs(offset)) * _RELATIVE_ERROR
    return rm.narrow_certified(approximate, tolerance, lambda where: exact(unit[where]), to)


def exponential(generator: Generator, n: int, to: dtype, lambd: float = 1.0) -> np.ndarray[Any, Any]:
    """Draw the samples of `exponential_(lambd)`; also the noise of `gumbel_softmax` and of `multinomial` without replacement."""
    if not lambd > 0.0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    if not to.is_floating_point:
        raise RuntimeError(f"Exponential distribution is a continuous probability distribution, but dtype is {to}")
    scale = -1.0 / lambd
    return _transform(
        unit53(generator, n), to, lambda u: scale * np.log1p(-u), lambda u: scale * rm.libm(math.log1p, -u)
    )


def cauchy(generator: Generator, n: int, to: dtype, median: float = 0.0, sigma: float = 1.0) -> np.ndarray[Any, Any]:
    """Draw the samples of `cauchy_(median, sigma)`."""
    if not sigma > 0.0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    if not to.is_floating_point:
        raise RuntimeError(f"Cauchy distribution is a continuous probability distribution, but dtype is {to}")
    return _transform(
        unit53(generator, n),
        to,
        lambda u: np.tan(math.pi * (u - 0.5)) * sigma + median,
        lambda u: rm.fma64(rm.libm(math.tan, math.pi * (u - 0.5)), sigma, median),
        median,
    )


def geometric(generator: Generator, n: int, to: dtype, p: float) -> np.ndarray[Any, Any]:
    """Draw the samples of `geometric_(p)`: number of trials up to the first success; every integer and floating dtype."""
    if not 0.0 < p < 1.0:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    if to is bool_:
        raise NotImplementedError(f'"geometric_" not implemented for {to}')
    _refuse_complex_and_wide_unsigned("geometric_", to)
    unit = unit53(generator, n)
    scale = math.log1p(-p)
    with np.errstate(divide="ignore"):
        ratio = np.log(unit) / scale
    # Only next to an integer can the last bits of the logarithm matter.
    unsure = np.flatnonzero(np.abs(ratio - np.rint(ratio)) <= ratio * _RELATIVE_ERROR)
    ratio[unsure] = rm.libm(rm.log, unit[unsure]) / scale
    trials = np.ceil(ratio, out=ratio)
    if to.is_floating_point:
        return rm.narrow(trials, to)
    with np.errstate(invalid="ignore"):
        return trials.astype(np.int64).astype(to.numpy)


# -- bernoulli --------------------------------------------------------------------------------------------------------


def as_ones(mask: np.ndarray[Any, Any], to: dtype) -> np.ndarray[Any, Any]:
    """Return a boolean array as zeros and ones of dtype `to`."""
    if to is bfloat16:
        return mask * np.uint16(0x3F80)
    return mask.astype(to.numpy, copy=False)


def bernoulli(generator: Generator, n: int, to: dtype, p: float = 0.5) -> np.ndarray[Any, Any]:
    """Draw the samples of `bernoulli_(p)` with one probability for all elements."""
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    _refuse_complex_and_wide_unsigned("bernoulli_", to)
    return as_ones(_bernoulli_mask(generator, n, p), to)


def _bernoulli_mask(generator: Generator, n: int, p: float) -> np.ndarray[Any, Any]:
    # A 53-bit sample x * 2**-53 is below p exactly when x < ceil(p * 2**53): no conversion to floating point.
    limit = np.uint64(math.ceil(p * 2.0**53))
    mask = np.empty(n, np.bool_)
    for start, stop in _chunks(n, _CHUNK // 2):
        words = generator.random64(stop - start)
        words &= _LOW_53
        np.less(words, limit, out=mask[start:stop])
    return mask


def bernoulli_tensor(generator: Generator, p: np.ndarray[Any, Any], p_dtype: dtype, to: dtype) -> np.ndarray[Any, Any]:
    """Draw the samples of `bernoulli(p)` and `bernoulli_(p)` with a tensor of probabilities, given in visited order."""
    _require_floating("bernoulli (dtype of p)", p_dtype)
    _refuse_complex_and_wide_unsigned("bernoulli_", to)
    chance = rm.widen(p, p_dtype)
    if not ((chance >= 0) & (chance <= 1)).all():
        raise RuntimeError("bernoulli expects every element of p to be in [0, 1]")
    unit = unit53 if p_dtype is float64 else unit32
    return as_ones(unit(generator, chance.size) < chance, to)


def alpha_dropout_noise(
    generator: Generator, n: int, to: dtype, p: float
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return `(scale, shift)` with `alpha_dropout(x, p) = x * scale + shift` for 0 < p < 1; also for `feature_alpha_dropout`."""
    check_dropout(p)
    alpha = 1.7580993408473766
    a = 1.0 / math.sqrt((alpha * alpha * p + 1.0) * (1.0 - p))
    mask = _bernoulli_mask(generator, n, 1.0 - p)
    dropped = rm.widen(rm.narrow(np.array([constant_of(-alpha * a, to)]), to), to)[0]
    shift = np.where(mask, dropped * 0.0, dropped) + constant_of(alpha * a * p, to)
    return rm.narrow(mask * constant_of(a, to), to), rm.narrow(shift, to)


def check_dropout(p: float) -> None:
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")


def constant_of(value: float, to: dtype) -> np.floating:
    """Return a Python number in the type that arithmetic of dtype `to` happens in."""
    return np.float64(value) if to is float64 or to is complex128 else np.float32(value)
