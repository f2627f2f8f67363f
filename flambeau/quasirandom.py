"""`torch.quasirandom`: Sobol' sequences, points that fill the unit cube more evenly than random ones."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from .core.generator import Generator
from .core.promotion import get_default_dtype
from .core.tensor import Tensor
from .ops.creation.construct import from_numpy
from .ops.random.fills import randint

_BITS = 30


@functools.lru_cache(maxsize=1)
def _joe_kuo() -> tuple[np.ndarray, np.ndarray]:
    """Return the primitive polynomials and initial numbers of S. Joe and F. Y. Kuo (2008), which SciPy includes."""
    found = importlib.util.find_spec("scipy")
    if found is None or found.origin is None:
        raise ImportError("SobolEngine needs the direction numbers that SciPy ships: pip install scipy")
    with np.load(Path(found.origin).parent / "stats" / "_sobol_direction_numbers.npz") as tables:
        return tables["poly"], tables["vinit"]


def _direction_numbers(dimension: int) -> np.ndarray:
    """Return the bits that bit k of a point's number toggles in each coordinate: the recurrence of Bratley and Fox (algorithm 659)."""
    polynomials, initial = (table[:dimension].astype(np.int64) for table in _joe_kuo())
    degrees = np.array([int(p).bit_length() - 1 for p in polynomials])
    numbers = np.ones((dimension, _BITS), np.int64)
    for degree in np.unique(degrees[1:]):
        rows = np.flatnonzero(degrees == degree)
        rows = rows[rows > 0]  # the first coordinate has all ones
        known = min(degree, _BITS)
        numbers[rows, :known] = initial[rows, :known]
        for j in range(known, _BITS):
            fresh = numbers[rows, j - degree]
            for k in range(degree):
                term = (polynomials[rows] >> (degree - 1 - k)) & 1
                fresh = fresh ^ (term * numbers[rows, j - k - 1] << (k + 1))
            numbers[rows, j] = fresh
    return numbers << np.arange(_BITS - 1, -1, -1)


def _scrambled(numbers: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """Multiply each number, as a vector of bits, by the unit lower triangular matrix of its coordinate (Matousek 1998)."""
    places = np.arange(_BITS - 1, -1, -1)
    bits = numbers[..., None] >> places & 1
    mixed = np.einsum("dpk,djk->djp", matrices, bits) & 1
    return (mixed << places).sum(-1)


class SobolEngine:
    """A (scrambled) Sobol' sequence of up to 21201 dimensions.

    >>> SobolEngine(dimension=2).draw(3)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])
    """

    MAXBIT = _BITS
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None):
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        numbers = _direction_numbers(dimension)
        shift = np.zeros(dimension, np.int64)
        if scramble:
            numbers, shift = self._scramble(numbers)
        self.sobolstate: Tensor = from_numpy(np.ascontiguousarray(numbers))
        self.shift: Tensor = from_numpy(shift)
        self.reset()

    def _scramble(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        generator = None
        if self.seed is not None:
            generator = Generator()
            generator.manual_seed(self.seed)
        bits = randint(2, (self.dimension, _BITS), generator=generator).numpy()
        matrices = np.tril(randint(2, (self.dimension, _BITS, _BITS), generator=generator).numpy())
        diagonal = np.arange(_BITS)
        matrices[:, diagonal, diagonal] = 1
        return _scrambled(numbers, matrices), (bits << diagonal).sum(1)

    def reset(self) -> SobolEngine:
        """Start again at the first point."""
        self.quasi: Tensor = self.shift.clone()
        self.num_generated = 0
        self._first_point: Tensor = (self.quasi / 2**_BITS).reshape(1, -1)
        return self

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """Return the next n points, one per row."""
        wanted = get_default_dtype() if dtype is None else dtype
        steps = n - (self.num_generated == 0)
        if steps < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {steps}: [{steps}, {self.dimension}]")
        points = self._advance(steps)
        if self.num_generated == 0:
            points = np.concatenate([self.shift.numpy()[None], points])
        self.num_generated += n
        result = from_numpy(points).to(wanted) * 2.0**-_BITS
        return result if out is None else out.resize_(result.shape).copy_(result)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """Return the next 2**m points; the total number drawn must be a power of two."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points have been"
                f" previously generated, then: n={self.num_generated}+2**{m}={total}. If you still want to do this, please use"
                " 'SobolEngine.draw()' instead."
            )
        return self.draw(n, out=out, dtype=dtype)

    def fast_forward(self, n: int) -> SobolEngine:
        """Skip n points."""
        self._advance(n - (self.num_generated == 0))
        self.num_generated += n
        return self

    def _advance(self, steps: int) -> np.ndarray:
        """Return the next points. Neighbours in Gray code differ in one bit of their number: that of its lowest zero."""
        before = max(self.num_generated - 1, 0)
        indices = np.arange(before, before + max(steps, 0))
        zeros = ~indices & (indices + 1)  # the lowest zero bit, alone
        changed = np.log2(zeros).astype(np.int64)
        toggles = self.sobolstate.numpy()[:, changed].T
        points = np.bitwise_xor.accumulate(np.concatenate([self.quasi.numpy()[None], toggles]), axis=0)[1:]
        if len(points):
            self.quasi = from_numpy(points[-1].copy())
        return points

    def __repr__(self) -> str:
        words = [f"dimension={self.dimension}"]
        if self.scramble:
            words.append("scramble=True")
        if self.seed is not None:
            words.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(words)})"
