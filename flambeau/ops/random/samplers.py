"""Distributions that fill tensors: each with a native kernel, and a NumPy version for other cases."""

from __future__ import annotations

import functools
import math

import numpy as np

from ...core import dtype as dt
from ...core import random_algorithms as algorithms
from ...core import random_integers as integers
from ...core.dtype import dtype
from ...core.generator import Generator
from ...core.random_math import narrow, widen
from ...core.size import make_size
from ...core.tensor import Tensor, new_tensor
from ...kernels.library import random as kernels

_FLOATS = frozenset({dt.float32, dt.float64, dt.float16, dt.bfloat16})
# Conversions from int64 that round at most once.
_EXACT = frozenset({dt.int64, dt.int32, dt.int16, dt.int8, dt.uint8, dt.float32, dt.float64, dt.uint16, dt.uint32})


class Sampler:
    """A distribution. `flat` returns n values in the order in which PyTorch's loops visit the destination; `contiguous` says whether that is
    contiguous, on which some algorithms depend. `native` fills a contiguous tensor with the same values and returns whether it could."""

    def flat(self, generator: Generator, n: int, d: dtype, contiguous: bool) -> np.ndarray:
        raise NotImplementedError

    def native(self, out: Tensor, n: int, generator: Generator, contiguous: bool) -> bool:
        return False


def _parts(out: Tensor, n: int) -> Tensor:
    """Return a complex tensor as twice as many real numbers."""
    real = out.dtype.to_real()
    return new_tensor(out._storage, make_size((2 * n,)), (1,), 2 * out._offset, real, out.device, True)


_plain_uniform = kernels.uniform.with_constants(plain=True)
_scaled_uniform = kernels.uniform.with_constants(plain=False)


class LogNormal(Sampler):
    def __init__(self, mean: float, std: float):
        self.mean, self.std = mean, std

    def flat(self, generator: Generator, n: int, d: dtype, contiguous: bool) -> np.ndarray:
        return algorithms.log_normal(generator, n, d, self.mean, self.std)


class Cauchy(Sampler):
    def __init__(self, median: float, sigma: float):
        self.median, self.sigma = median, sigma

    def flat(self, generator: Generator, n: int, d: dtype, contiguous: bool) -> np.ndarray:
        return algorithms.cauchy(generator, n, d, self.median, self.sigma)


class Geometric(Sampler):
    def __init__(self, p: float):
        self.p = p

    def flat(self, generator: Generator, n: int, d: dtype, contiguous: bool) -> np.ndarray:
        return algorithms.geometric(generator, n, d, self.p)


class FullIntegers(Sampler):
    """Sampler of any non-negative number of the dtype."""

    def flat(self, generator: Generator, n: int, d: dtype, contiguous: bool) -> np.ndarray:
        return integers.random_full(generator, n, d)


@functools.lru_cache(1024)
def _top(d: dtype, low: float, high: float) -> float:
    """Return the upper bound of uniform numbers as a number of their dtype."""
    algorithms.check_uniform(d, low, high)
    return float(widen(narrow(np.array([high]), d), d)[0])


class Uniform(Sampler):
    def __init__(self, low: float = 0.0, high: float = 1.0):
        self.low, self.high = float(low), float(high)
        self.plain = self.low == 0 and self.high == 1

    def flat(self, generator: Generator, n: int, d: dtype, contiguous: bool) -> np.ndarray:
        return algorithms.uniform(generator, n, d, self.low, self.high)

    def native(self, out: Tensor, n: int, generator: Generator, contiguous: bool) -> bool:
        d = out.dtype
        if d.is_complex:
            return self.native(_parts(out, n), 2 * n, generator, contiguous)
        top = _top(d, self.low, self.high)
        with generator.lock:
            engine, words, _, _ = generator.native()
            run = _plain_uniform if self.plain else _scaled_uniform
            run(out, engine, words, n, self.low, self.high, top)
        return True


class Normal(Sampler):
    def __init__(self, mean: float = 0.0, std: float = 1.0):
        self.mean, self.std = float(mean), float(std)

    def flat(self, generator: Generator, n: int, d: dtype, contiguous: bool) -> np.ndarray:
        return algorithms.normal(generator, n, d, self.mean, self.std, contiguous)

    def native(self, out: Tensor, n: int, generator: Generator, contiguous: bool) -> bool:
        if out.dtype.is_complex:
            return Normal(self.mean, self.std / math.sqrt(2.0)).native(_parts(out, n), 2 * n, generator, contiguous)
        if out.dtype not in _FLOATS or not self.std >= 0:
            return False  # the other way raises
        with generator.lock:
            engine, words, kept, values = generator.native()
            if n >= 16 and contiguous:
                kernels.normal(out, engine, words, n, self.mean, self.std)
                return True
            waiting = generator.kept_normal
            values[0], values[1] = waiting is not None, waiting or 0.0
            kernels.normal_serial(out, engine, words, kept, n, self.mean, self.std)
            generator.kept_normal = float(values[1]) if values[0] else None
        return True


class Exponential(Sampler):
    def __init__(self, rate: float = 1.0):
        self.rate = rate

    def flat(self, generator: Generator, n: int, d: dtype, contiguous: bool) -> np.ndarray:
        return algorithms.exponential(generator, n, d, self.rate)

    def native(self, out: Tensor, n: int, generator: Generator, contiguous: bool) -> bool:
        if out.dtype not in _FLOATS or not self.rate > 0:
            return False
        with generator.lock:
            engine, words, _, _ = generator.native()
            kernels.exponential(out, engine, words, n, -1.0 / self.rate)
        return True


class Bernoulli(Sampler):
    """Sampler of `one` with probability `p`, else 0."""

    def __init__(self, p: float, one: float = 1.0):
        self.p, self.one = p, one

    def flat(self, generator: Generator, n: int, d: dtype, contiguous: bool) -> np.ndarray:
        ones = algorithms.bernoulli(generator, n, d, self.p)
        return ones if self.one == 1 else narrow(widen(ones, d) * algorithms.constant_of(self.one, d), d)

    def native(self, out: Tensor, n: int, generator: Generator, contiguous: bool) -> bool:
        if not 0 <= self.p <= 1 or out.dtype.is_complex or out.dtype.name in ("uint16", "uint32", "uint64"):
            return False
        with generator.lock:
            engine, words, _, _ = generator.native()
            kernels.bernoulli(out, engine, words, n, math.ceil(self.p * 2.0**53), self.one)
        return True


class KeptElements(Bernoulli):
    """Sampler of the factors by which dropout multiplies elements."""


class Integers(Sampler):
    """Sampler of integers from low to high - 1, or to the largest number of the dtype if `high` is None."""

    def __init__(self, low: int, high: int | None):
        self.low, self.high = low, high

    def flat(self, generator: Generator, n: int, d: dtype, contiguous: bool) -> np.ndarray:
        return integers.random_range(generator, n, d, self.low, self.high)

    def native(self, out: Tensor, n: int, generator: Generator, contiguous: bool) -> bool:
        if out.dtype not in _EXACT or self.high is None:
            return False
        low, span = integers.bounds(out.dtype, self.low, self.high)
        if span >= integers.WIDE_RANGE:
            return False
        with generator.lock:
            engine, words, _, _ = generator.native()
            kernels.integers(out, engine, words, n, low, span, mask=span & (span - 1) == 0)
        return True


class Permutation(Sampler):
    def flat(self, generator: Generator, n: int, d: dtype, contiguous: bool) -> np.ndarray:
        return integers.randperm(generator, n, d)

    def native(self, out: Tensor, n: int, generator: Generator, contiguous: bool) -> bool:
        integers.check_permutation(n, out.dtype)
        if out.dtype not in _EXACT or n < 2 or n >= integers.COARSE:
            return False
        with generator.lock:
            engine, words, _, _ = generator.native()
            kernels.permutation(out, engine, words, n)
        return True
