"""Different transforms for different slices of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.tensor import Tensor
from ..ops.shape.joining import cat, stack
from . import constraints
from .transform_base import Transform
from .utils import _sum_rightmost


class _SlicedTransform(Transform):
    """Base of transforms of slices: `_split` divides a tensor into one part per transform, `_join` joins the parts."""

    transforms: list[Transform]
    dim: int

    def __init__(self, tseq: Sequence[Transform], dim: int, cache_size: int) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    def _split(self, z: Tensor, name: str) -> Sequence[Tensor]:
        raise NotImplementedError

    def _check(self, z: Tensor, name: str, kind: str, size: int) -> None:
        if not -z.dim() <= self.dim < z.dim():
            raise AssertionError(f"dim {self.dim} out of range for tensor with {z.dim()} dimensions")
        if z.shape[self.dim] != size:
            raise AssertionError(f"{name}.size({self.dim}) = {z.shape[self.dim]} must equal {kind} {size}")

    @staticmethod
    def _join(parts: list[Tensor], dim: int) -> Tensor:
        raise NotImplementedError

    def _call(self, x: Tensor) -> Tensor:
        return self._join([t(part) for t, part in zip(self.transforms, self._split(x, "x"))], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._join([t.inv(part) for t, part in zip(self.transforms, self._split(y, "y"))], self.dim)

    def _part_log_determinants(self, x: Tensor, y: Tensor) -> list[Tensor]:
        parts = zip(self.transforms, self._split(x, "x"), self._split(y, "y"))
        return [t.log_abs_det_jacobian(a, b) for t, a, b in parts]

    @property
    def bijective(self) -> bool:
        return all(t.bijective for t in self.transforms)


class CatTransform(_SlicedTransform):
    """Slices of these lengths (1 each by default) along `dim`, joined by `cat`.

    >>> t = CatTransform([ExpTransform(), identity_transform], dim=0, lengths=[1, 2])
    >>> t(torch.zeros(3))
    tensor([1., 0., 0.])
    """

    _fields = ("transforms", "dim", "lengths")
    _join = staticmethod(cat)

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})")

    @property
    def event_dim(self) -> int:
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        return sum(self.lengths)

    def _split(self, z: Tensor, name: str) -> Sequence[Tensor]:
        self._check(z, name, "length", self.length)
        return z.split(self.lengths, self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        terms = [
            _sum_rightmost(term, self.event_dim - t.event_dim)
            for t, term in zip(self.transforms, self._part_log_determinants(x, y))
        ]
        dim = (self.dim - x.dim() if self.dim >= 0 else self.dim) + self.event_dim
        # Joined along a dimension of the event, the parts make one event.
        return cat(terms, dim) if dim < 0 else sum(terms[1:], terms[0])

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_SlicedTransform):
    """A transform for each index along `dim`."""

    _fields = ("transforms", "dim")
    _join = staticmethod(stack)

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)

    def _split(self, z: Tensor, name: str) -> Sequence[Tensor]:
        self._check(z, name, "len(transforms)", len(self.transforms))
        return z.unbind(self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return stack(self._part_log_determinants(x, y), self.dim)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
