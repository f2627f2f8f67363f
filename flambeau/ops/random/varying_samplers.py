"""Native samplers that take a varying number of draws per element: contiguous tensors of parameters in, samples out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ...core import dtype as dt
from ...core import random_math as rm
from ...core.generator import Generator
from ...core.random_samplers import STIRLING_TAIL, check_race, check_weights
from ...core.tensor import Tensor, copy_of_array, empty, numel_of
from ...kernels.library import random_varying as kernels
from .random_fill import fill
from .samplers import Exponential

_TAIL = copy_of_array(np.array(STIRLING_TAIL), dt.float64)


@contextmanager
def _drawing(generator: Generator) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Context manager: the engine, scratch words and the kept normal sample, with the generator locked."""
    with generator.lock:
        engine, words, kept, values = generator.native()
        waiting = generator.kept_normal
        values[0], values[1] = waiting is not None, waiting or 0.0
        yield engine, words, kept
        generator.kept_normal = float(values[1]) if values[0] else None


def poisson_samples(out: Tensor, generator: Generator, rates: Tensor) -> None:
    if not (rm.widen(rates._array(), rates.dtype) >= 0).all():
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    with _drawing(generator) as (engine, _, _):
        kernels.poisson(out, rates, engine, numel_of(rates.shape))


def binomial_samples(out: Tensor, generator: Generator, counts: Tensor, chances: Tensor) -> None:
    with _drawing(generator) as (engine, _, _):
        kernels.binomial(out, counts, chances, _TAIL, engine, numel_of(counts.shape))


def gamma_samples(out: Tensor, generator: Generator, alpha: Tensor) -> None:
    least = float(np.finfo(alpha.dtype.numpy).tiny)
    with _drawing(generator) as (engine, _, kept):
        kernels.gamma(out, alpha, engine, kept, numel_of(alpha.shape), least)


def dirichlet_samples(out: Tensor, generator: Generator, alpha: Tensor, k: int) -> None:
    """Write Dirichlet samples of k outcomes each, along the last dimension, to `out`."""
    limits = np.finfo(alpha.dtype.numpy)
    parts = empty((k,), dt.float64)
    with _drawing(generator) as (engine, _, kept):
        kernels.dirichlet(
            out, alpha, parts, engine, kept, numel_of(alpha.shape) // k, k, float(limits.tiny), 1 - float(limits.epsneg)
        )


def multinomial_samples(out: Tensor, generator: Generator, weights: Tensor, num_samples: int) -> None:
    """Write samples drawn with replacement from each row of `weights` to `out`."""
    k = weights.shape[-1]
    rows = numel_of(weights.shape) // k
    check_weights(rm.widen(weights._array(), weights.dtype).reshape(rows, k))
    with _drawing(generator) as (engine, words, _):
        kernels.multinomial(out, weights, empty((k,), dt.float64), engine, words, rows, k, num_samples)


def winner_samples(out: Tensor, generator: Generator, weights: Tensor) -> None:
    """Draw once from each row: the largest weight / exponential noise."""
    k = weights.shape[-1]
    rows = numel_of(weights.shape) // k
    check_race(rm.widen(weights._array(), weights.dtype).reshape(rows, k))
    noise = fill(empty(weights.shape, weights.dtype), generator, Exponential())
    kernels.race(out, weights, noise, rows, k)


def bernoulli_samples(generator: Generator, out: Tensor, chances: Tensor) -> None:
    """Fill `out` with Bernoulli samples of the probabilities in `chances`; both are contiguous, of one shape."""
    values = rm.widen(chances._array(), chances.dtype)
    if not ((values >= 0) & (values <= 1)).all():
        raise RuntimeError("bernoulli expects every element of p to be in [0, 1]")
    with _drawing(generator) as (engine, words, _):
        kernels.bernoulli_each(out, chances, engine, words, numel_of(out.shape))
