"""Base of all distributions: shapes, checked parameters, and the methods that a family defines."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..autograd.grad_mode import no_grad
from ..core.size import Size
from ..core.tensor import Tensor
from . import constraints
from .utils import lazy_property

__all__ = ["Distribution"]

_NO_SHAPE = Size()


class Distribution:
    """A probability distribution, or a batch of them.

    `batch_shape` counts distributions that differ in their parameters, `event_shape` is the shape of one outcome. A sample
    has the shape `sample_shape + batch_shape + event_shape`.
    """

    has_rsample = False
    has_enumerate_support = False

    if TYPE_CHECKING:  # parameters are attributes, named by `arg_constraints`

        def __getattr__(self, name: str) -> Any: ...

    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set whether parameters and values are checked where `validate_args` is not given; they are unless Python runs
        with -O."""
        if value not in (True, False):
            raise ValueError(f"validate_args must be True or False, but got {value!r}")
        Distribution._validate_args = value

    def __init__(
        self, batch_shape: Size = _NO_SHAPE, event_shape: Size = _NO_SHAPE, validate_args: bool | None = None
    ) -> None:
        self._batch_shape, self._event_shape = batch_shape, event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()
        super().__init__()

    def _validate_parameters(self) -> None:
        try:
            expected = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize the "
                "distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        for name, constraint in expected.items():
            computed = name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy_property)
            if computed or constraints.is_dependent(constraint):
                continue
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) "
                    f"of distribution {self!r} to satisfy the constraint {constraint!r}, "
                    f"but found invalid values:\n{value}"
                )

    # -- shapes -------------------------------------------------------------------------------------------------------

    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters: how many distributions this is."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one outcome."""
        return self._event_shape

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with a larger batch shape; parameters are expanded, not copied."""
        raise NotImplementedError

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """An empty instance for `expand`; refused if a subclass's own constructor may keep more than `cls` knows."""
        if _instance is None and type(self).__init__ is not cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method "
                "must also define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    def _extended_shape(self, sample_shape: Sequence[int] = _NO_SHAPE) -> Size:
        return Size(sample_shape) + self._batch_shape + self._event_shape

    # -- what families define -----------------------------------------------------------------------------------------

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """The constraint of each parameter, by name."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint that outcomes satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The expected squared distance from the mean."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = _NO_SHAPE) -> Tensor:
        """Random outcomes, without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = _NO_SHAPE) -> Tensor:
        """Random outcomes that are differentiable functions of the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """`sample((n,))`, which should be used instead."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", category=FutureWarning, stacklevel=2
        )
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability (density) of `value`."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of an outcome up to `value`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The outcome up to which the probability is `value`: the inverse of `cdf`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return all outcomes along a new first dimension; for every distribution of the batch if `expand`."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The expected value of -log_prob."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """exp of the entropy: how many equally likely outcomes would be as uncertain."""
        return self.entropy().exp()

    # -- checks and printing ------------------------------------------------------------------------------------------

    def _validate_sample(self, value: Any) -> None:
        """Raise ValueError unless `value` fits the shapes and is in the support."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        shape, event_dim = value.shape, len(self._event_shape)
        if shape[len(shape) - event_dim :] != self._event_shape:
            raise ValueError(f"The right-most size of value must match event_shape: {shape} vs {self._event_shape}.")
        expected = self._batch_shape + self._event_shape
        if any(1 != have != want != 1 for have, want in zip(reversed(shape), reversed(expected))):
            raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {shape} vs {expected}.")
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable sample validation. Please initialize the distribution "
                "with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not support.check(value).all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(shape)}) "
                f"to be within the support ({support!r}) of the distribution {self!r}, "
                f"but found invalid values:\n{value}"
            )

    def __repr__(self) -> str:
        given = [(name, self.__dict__[name]) for name in self.arg_constraints if name in self.__dict__]
        shown = ", ".join(f"{name}: {value if value.numel() == 1 else value.size()}" for name, value in given)
        return f"{type(self).__name__}({shown})"
