"""Base of transforms, and transforms derived from others: the inverse, compositions, more event dimensions."""

from __future__ import annotations

from typing import Any

from ..core.naming import own_name
from ..core.numeric_limits import finfo
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.filled import zeros_like
from . import constraints
from .utils import Number, _sum_rightmost


def _clipped_sigmoid(x: Tensor) -> Tensor:
    """Return the logistic function, never exactly 0 or 1."""
    limits = finfo(x.dtype)
    return x.sigmoid().clamp(limits.tiny, 1.0 - limits.eps)


class Transform:
    """A function from the region `domain` to `codomain`, with `inv`, and the logarithm of its Jacobian's determinant.

    With `cache_size=1` the last argument and result are cached, so that inverting a result that was just computed returns the same tensor
    object. A subclass defines `_call`, `_inverse` and `log_abs_det_jacobian`.
    """

    bijective: Any = False
    domain: constraints.Constraint
    codomain: constraints.Constraint
    # Attributes that are the constructor's arguments, in order: how a copy with a cache is made.
    _fields: tuple[str, ...] = ()

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._inv: Transform | None = None
        self._cached_x_y: tuple[Any, Any] = (None, None)
        super().__init__()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inv": None}

    @property
    def event_dim(self) -> int:
        """The dimensions of one event, if arguments and results have the same."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")
        return self.domain.event_dim

    @property
    def inv(self) -> Transform:
        """The inverse transform; its `inv` is this one."""
        if self._inv is None:
            self._inv = _InverseTransform(self)
        return self._inv

    @property
    def sign(self) -> Any:
        """+1 where increasing, -1 where decreasing (functions of one number)."""
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> Transform:
        """Return this transform with or without a cache of its last argument and result."""
        if self._cache_size == cache_size:
            return self
        if not self._fields and type(self).__init__ is not Transform.__init__:
            raise NotImplementedError(f"{type(self)}.with_cache is not implemented")
        arguments: list[Any] = [getattr(self, field) for field in self._fields]
        return type(self)(*arguments, cache_size=cache_size)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __call__(self, x: Tensor) -> Tensor:
        if not self._cache_size:
            return self._call(x)
        if x is not self._cached_x_y[0]:
            self._cached_x_y = x, self._call(x)
        return self._cached_x_y[1]

    def _inv_call(self, y: Tensor) -> Tensor:
        if not self._cache_size:
            return self._inverse(y)
        if y is not self._cached_x_y[1]:
            self._cached_x_y = self._inverse(y), y
        return self._cached_x_y[0]

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return log |det dy/dx| of each event, for y = self(x)."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return type(self).__name__ + "()"

    def forward_shape(self, shape: Size) -> Size:
        """Return the shape of the result for an argument of `shape`."""
        return shape

    def inverse_shape(self, shape: Size) -> Size:
        """Return the shape of the argument for a result of `shape`."""
        return shape


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, (*Number, list)) and isinstance(b, (*Number, list)):
        return a == b
    return bool((a == b).all())


class ByValue(Transform):
    """Base of transforms that compare by value: those of the same class with the same arguments are equal."""

    def __eq__(self, other: object) -> bool:
        kind = next(c for c in type(self).__mro__ if own_name(c.__module__).startswith(__package__ + "."))
        return isinstance(other, kind) and all(_same(getattr(self, f), getattr(other, f)) for f in self._fields)


class _InverseTransform(Transform):
    """Inverse of another transform."""

    _inv: Transform

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform._cache_size)
        self._inv = transform

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> constraints.Constraint:
        return self._inv.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> constraints.Constraint:
        return self._inv.domain

    @property
    def bijective(self) -> bool:
        return self._inv.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"

    def __call__(self, x: Tensor) -> Tensor:
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Size) -> Size:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Size) -> Size:
        return self._inv.forward_shape(shape)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()


def _widen_region(region: constraints.Constraint, event_dim: int) -> constraints.Constraint:
    extra = event_dim - region.event_dim
    return constraints.independent(region, extra) if extra else region


class ComposeTransform(ByValue):
    """Transforms applied one after the other; each keeps its own cache."""

    _fields = ("parts",)

    def __init__(self, parts: list[Transform], cache_size: int = 0) -> None:
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else parts
        super().__init__(cache_size)

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> constraints.Constraint:
        return self._last_region([(p.codomain, p.domain) for p in reversed(self.parts)])

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> constraints.Constraint:
        return self._last_region([(p.domain, p.codomain) for p in self.parts])

    @staticmethod
    def _last_region(regions: list[tuple[constraints.Constraint, constraints.Constraint]]) -> constraints.Constraint:
        """Return the last region of a chain (from, to), (from, to) ..., with as many event dimensions as the widest needs."""
        if not regions:
            return constraints.real
        event_dim = regions[0][0].event_dim
        for source, target in regions:
            event_dim = max(event_dim + target.event_dim - source.event_dim, target.event_dim)
        return _widen_region(regions[-1][1], event_dim)

    @property
    def bijective(self) -> bool:
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        sign: Any = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self) -> Transform:
        if self._inv is None:
            self._inv = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv._inv = self
        return self._inv

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return zeros_like(x)
        total: Any = 0
        event_dim = self.domain.event_dim
        for left, part in zip(range(len(self.parts) - 1, -1, -1), self.parts):
            result = part(x) if left else y
            term = part.log_abs_det_jacobian(x, result)
            total = total + _sum_rightmost(term, event_dim - part.domain.event_dim)
            event_dim += part.codomain.event_dim - part.domain.event_dim
            x = result
        return total

    def forward_shape(self, shape: Size) -> Size:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Size) -> Size:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        inside = ",\n    ".join(map(repr, self.parts))
        return f"{type(self).__name__}(\n    {inside}\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform whose events have this many more dimensions: determinants are summed over them."""

    _fields = ("base_transform", "reinterpreted_batch_ndims")

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> constraints.Constraint:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> constraints.Constraint:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        if x.dim() < self.domain.event_dim:
            raise ValueError("Too few dimensions on input")
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        if y.dim() < self.codomain.event_dim:
            raise ValueError("Too few dimensions on input")
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return _sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"

    def forward_shape(self, shape: Size) -> Size:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Size) -> Size:
        return self.base_transform.inverse_shape(shape)
