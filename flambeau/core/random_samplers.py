"""Random samplers that take a varying number of draws per element, with PyTorch's bits.

Each element's draws start where the previous element's ended, so these are plain loops over a stream of uniforms.
Parameters come as flat arrays in logical (row-major) order; results are in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

from flambeau.core import random_math as rm
from flambeau.core.dtype import dtype, float32, float64
from flambeau.core.generator import Generator
from flambeau.core.random_algorithms import exponential, unit53

_BLOCK = 4096


class UniformStream:
    """Single float64 uniforms on [0, 1), read ahead in blocks; on leaving, unread numbers are returned to the engine. For use with the
    generator's lock held."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    def __enter__(self) -> UniformStream:  # noqa: PYI034 (Self needs Python 3.11)
        self._start = self.generator.position()
        self._values: list[float] = []
        self._next, self._read, self._size = 0, 0, 64
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        taken = self._read - (len(self._values) - self._next)
        self.generator.rewind(self._start)
        self.generator.skip(2 * taken)

    def uniform(self) -> float:
        if self._next == len(self._values):
            self._values, self._next = unit53(self.generator, self._size).tolist(), 0
            self._read += self._size
            self._size = min(2 * self._size, _BLOCK)
        value = self._values[self._next]
        self._next += 1
        return value

    def normal(self) -> float:
        kept = self.generator.kept_normal
        if kept is not None:
            self.generator.kept_normal = None
            return kept
        angle = 2.0 * math.pi * self.uniform()
        radius = math.sqrt(-2.0 * math.log1p(-self.uniform()))
        self.generator.kept_normal = radius * math.sin(angle)
        return radius * math.cos(angle)


def _floor(value: float) -> float:
    """Convert floor(value) to a 64-bit integer as C does, which gives the least one if it does not fit."""
    return float(math.floor(value)) if abs(value) < 2.0**63 else -(2.0**63)


# -- poisson ----------------------------------------------------------------------------------------------------------


def poisson(generator: Generator, rate: np.ndarray[Any, Any], of: dtype) -> np.ndarray[Any, Any]:
    """Draw the samples of `poisson(rate)`: multiplication of uniforms below 10, Hörmann's transformed rejection (PTRS) from there on."""
    if not of.is_floating_point:
        raise NotImplementedError(f'"poisson" not implemented for {of}')
    rates = rm.widen(rate, of)
    if not (rates >= 0).all():
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    with generator.lock, UniformStream(generator) as stream:
        draw = stream.uniform
        counts = [_poisson_large(draw, r) if r >= 10 else _poisson_small(draw, r) for r in rates.tolist()]
    return rm.narrow(np.array(counts, np.float64), of)


def _poisson_small(draw: Callable[[], float], rate: float) -> float:
    if rate == 0:
        return 0.0
    limit = math.exp(-rate)
    product = draw()
    count = 0
    while product > limit:
        product *= draw()
        count += 1
    return float(count)


def _poisson_large(draw: Callable[[], float], rate: float) -> float:
    log_rate = math.log(rate)
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    log_inverse_alpha = math.log(1.1239 + 1.1328 / (b - 3.4))
    accept = 0.9277 - 3.6224 / (b - 2.0)
    while True:
        u = draw() - 0.5
        v = draw()
        us = 0.5 - abs(u)
        k = _floor((2.0 * a / us + b) * u + rate + 0.43) if us else -1.0
        if us >= 0.07 and v <= accept:
            return k
        if k < 0 or (us < 0.013 and v > us):
            continue
        bound = -rate + k * log_rate - math.lgamma(k + 1.0)
        if rm.log(v) + log_inverse_alpha - math.log(a / (us * us) + b) <= bound:
            return k


# -- binomial ---------------------------------------------------------------------------------------------------------

# log(k!) minus Stirling's formula, for k = 0 ... 9
STIRLING_TAIL = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.0207906721037650, 0.0166446911898211,
    0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


def binomial(
    generator: Generator, count: np.ndarray[Any, Any], probability: np.ndarray[Any, Any], of: dtype
) -> np.ndarray[Any, Any]:
    """Draw the samples of `binomial(count, probability)`; both already broadcast. Parameters are combined in their own precision."""
    if of is not float32 and of is not float64:
        raise NotImplementedError(f'"binomial" not implemented for {of}')
    number = of.numpy.type
    with generator.lock, UniformStream(generator) as stream:
        pairs = zip(rm.widen(count, of), rm.widen(probability, of), strict=True)
        samples = [_binomial(stream.uniform, n, p, number(1)) for n, p in pairs]
    return rm.narrow(np.array(samples, np.float64), of)


def _binomial(draw: Callable[[], float], count: np.floating, p: np.floating, one: np.floating) -> float:
    if count <= 0 or p <= 0:
        return 0.0
    if p >= 1:
        return float(count)
    if math.isnan(p) or math.isnan(count):
        return math.nan
    rare = p if p <= 0.5 else one - p  # for frequent successes the failures are counted
    sampler = _binomial_rejection if count * rare >= 10 else _binomial_inversion
    drawn = sampler(draw, count, rare, one)
    return drawn if p <= 0.5 else float(count) - drawn


def _binomial_inversion(draw: Callable[[], float], count: np.floating, p: np.floating, one: np.floating) -> float:
    """Draw a sample by counting the geometric waiting times that fit into `count` trials."""
    log_failure = float(type(one)(math.log1p(-p)))
    limit, trials, successes = float(count), 0.0, 0
    while True:
        waiting = rm.log(draw()) / log_failure
        # The first test also keeps the infinite waiting time of a zero sample away from ceil.
        if waiting > limit or (trials := trials + math.ceil(waiting)) > limit:
            return float(successes)
        successes += 1


def _binomial_rejection(draw: Callable[[], float], count: np.floating, p: np.floating, one: np.floating) -> float:
    """Draw a sample by Hörmann's transformed rejection (BTRS)."""
    spread = float(np.sqrt(count * p * (one - p)))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * float(p)
    c = float(count * p) + 0.5
    accept = 0.92 - 4.2 / b
    odds = float(p / (one - p))
    alpha = (2.83 + 5.1 / b) * spread
    m = float(np.floor((count + one) * p))
    n = float(count)
    while True:
        u = draw() - 0.5
        v = draw()
        us = 0.5 - abs(u)
        if not us:
            continue
        k = float(math.floor((2.0 * a / us + b) * u + c))
        if us >= 0.07 and v <= accept:
            return k
        if k < 0 or k > n:
            continue
        bound = (
            (m + 0.5) * math.log((m + 1.0) / (odds * (n - m + 1.0)))
            + (n + 1.0) * math.log((n - m + 1.0) / (n - k + 1.0))
            + (k + 0.5) * math.log(odds * (n - k + 1.0) / (k + 1.0))
            + _stirling_tail(m)
            + _stirling_tail(n - m)
            - _stirling_tail(k)
            - _stirling_tail(n - k)
        )
        if rm.log(v * alpha / (a / (us * us) + b)) <= bound:
            return k


def _stirling_tail(k: float) -> float:
    if k <= 9:
        return STIRLING_TAIL[int(k)]
    square = (k + 1.0) * (k + 1.0)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1.0)


# -- gamma and dirichlet ----------------------------------------------------------------------------------------------

_THIRD = float(np.float32(1.0) / np.float32(3.0))
_SQUEEZE = float(np.float32(0.0331))


def standard_gamma(generator: Generator, alpha: np.ndarray[Any, Any], of: dtype) -> np.ndarray[Any, Any]:
    """Draw the samples of `_standard_gamma(alpha)` by Marsaglia and Tsang's method; never below the smallest normal number."""
    if of is not float32 and of is not float64:
        raise NotImplementedError(f'"standard_gamma" not implemented for {of}')
    number = of.numpy.type
    with generator.lock, UniformStream(generator) as stream:
        samples = [_gamma(stream, a) for a in rm.widen(alpha, of).astype(number)]
    drawn = np.array(samples, np.float64).astype(number)
    least = np.finfo(number).tiny
    return np.where(drawn > least, drawn, least).astype(number)


def dirichlet(generator: Generator, alpha: np.ndarray[Any, Any], of: dtype) -> np.ndarray[Any, Any]:
    """Draw the samples of `_sample_dirichlet(alpha)` for a 2-D array, one distribution per row."""
    if of is not float32 and of is not float64:
        raise NotImplementedError(f'"sample_dirichlet" not implemented for {of}')
    with generator.lock, UniformStream(generator) as stream:
        parts = np.array([_gamma(stream, a) for a in alpha.astype(np.float64).reshape(-1)]).reshape(alpha.shape)
    parts = np.maximum(parts, np.finfo(np.float64).tiny)  # never 0 / 0
    shares = (parts / parts.sum(-1, keepdims=True)).astype(of.numpy)
    limits = np.finfo(of.numpy)
    return np.clip(shares, limits.tiny, limits.dtype.type(1) - limits.epsneg)


def _gamma(stream: UniformStream, alpha: np.floating) -> float:
    """Draw a gamma sample; the parameter is handled in its own precision, the rest in float64, as PyTorch does."""
    number = type(alpha)
    scale = 1.0
    if alpha < 1:
        if alpha == 0:
            return 0.0
        scale = _power(1.0 - stream.uniform(), float(number(1) / alpha))
        alpha = alpha + number(1)
    d = float(alpha - number(_THIRD))
    c = 1.0 / math.sqrt(9.0 * d) if d > 0 else math.nan
    while True:
        x = stream.normal()
        y = 1.0 + c * x
        while y <= 0:
            x = stream.normal()
            y = 1.0 + c * x
        v = y * y * y
        u = 1.0 - stream.uniform()
        square = x * x
        if u < 1.0 - _SQUEEZE * square * square or math.log(u) < 0.5 * square + d * (1.0 - v + math.log(v)):
            return scale * d * v


def _power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf


# -- multinomial ------------------------------------------------------------------------------------------------------


def multinomial(
    generator: Generator, weights: np.ndarray[Any, Any], of: dtype, num_samples: int, replacement: bool = False
) -> np.ndarray[Any, Any]:
    """Draw the samples of `multinomial` over the rows of a 2-D, C-contiguous array: int64 indices of shape (rows, num_samples).

    Without replacement the winners are the largest of weight / exponential noise, best first; rows of `weights` are
    taken in memory order, so a transposed tensor must have its noise placed by the caller (`race_scores`).
    """
    if not of.is_floating_point:
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {of}")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    rows, categories = weights.shape
    if not replacement and num_samples > categories:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    values = rm.widen(weights, of).reshape(rows, categories)
    if rows == 0:
        return np.empty((0, num_samples), np.int64)
    if replacement and num_samples > 1:
        return _multinomial_replacement(generator, values, num_samples)
    noise = exponential(generator, rows * categories, of)
    scores = race_scores(values, rm.widen(noise, of).reshape(rows, categories), of)
    if num_samples == 1:
        return scores.argmax(-1, keepdims=True)
    return np.argsort(-scores, axis=-1, kind="stable")[:, :num_samples]


def race_scores(values: np.ndarray[Any, Any], noise: np.ndarray[Any, Any], of: dtype) -> np.ndarray[Any, Any]:
    """Return weight / noise after PyTorch's checks, in the precision of dtype `of`; the largest of a row wins."""
    check_race(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        return rm.widen(rm.narrow(values / noise, of), of).reshape(values.shape)


def check_race(values: np.ndarray[Any, Any]) -> None:
    """Raise a RuntimeError unless every row can be drawn from without replacement."""
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if (values.sum(-1) == 0).any():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")


def check_weights(values: np.ndarray[Any, Any]) -> None:
    """Raise a RuntimeError unless every row can be drawn from with replacement."""
    if not (values >= 0).all():
        raise RuntimeError("invalid multinomial distribution (encountering probability entry < 0)")
    if not np.isfinite(values).all():
        raise RuntimeError("invalid multinomial distribution (encountering probability entry = infinity or NaN)")
    if not (values.max(-1) > 0).all():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")


def _multinomial_replacement(
    generator: Generator, values: np.ndarray[Any, Any], num_samples: int
) -> np.ndarray[Any, Any]:
    check_weights(values)
    cumulative = np.cumsum(values, -1, dtype=values.dtype)
    totals = cumulative[:, -1:]
    steps = (cumulative / totals).astype(np.float64)
    steps[:, -1] = 1.0
    samples = unit53(generator, values.shape[0] * num_samples).reshape(-1, num_samples)
    return np.stack([row.searchsorted(sample) for row, sample in zip(steps, samples, strict=True)])


# -- rrelu ------------------------------------------------------------------------------------------------------------


def rrelu_noise(
    generator: Generator, x: np.ndarray[Any, Any], of: dtype, lower: float = 1.0 / 8, upper: float = 1.0 / 3
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return `(output, noise)` of `rrelu_with_noise(x, ..., training=True)`; only elements <= 0 take a draw."""
    if not of.is_floating_point or of.name == "float16":
        raise NotImplementedError(f'"rrelu_with_noise" not implemented for {of}')
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    values = rm.widen(x, of)
    low, high = (float(values.dtype.type(bound)) for bound in (lower, upper))
    negative = values <= 0
    slope = np.ones(values.size, values.dtype)
    slope[negative] = unit53(generator, int(negative.sum())) * (high - low) + low
    return rm.narrow(values * slope, of), rm.narrow(slope, of)
