"""Bases of all distributions: shapes and checks, exponential families, families with broadcast parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

from ..autograd.api import grad
from ..autograd.grad_mode import enable_grad, no_grad
from ..compat.former_names import settle
from ..core.naming import own_name
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.filled import empty, full
from ..ops.creation.ranges import arange
from . import constraints
from .constraints import Constraint
from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits

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
        """Set whether parameters and values are checked if `validate_args` is not given; they are unless Python runs with -O."""
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
        """The shape of the parameters: the number of distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one outcome."""
        return self._event_shape

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """Return the distribution with a larger batch shape; parameters are expanded, not copied."""
        raise NotImplementedError

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """Return an empty instance for `expand`; raises if a subclass's own constructor may keep more than `cls` knows."""
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
        """Draw random outcomes, without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = _NO_SHAPE) -> Tensor:
        """Draw random outcomes that are differentiable functions of the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """Draw `sample((n,))`, which should be used instead."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", category=FutureWarning, stacklevel=2
        )
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the logarithm of the probability (density) of `value`."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """Return the probability of an outcome up to `value`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """Return the outcome up to which the probability is `value`: the inverse of `cdf`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return all outcomes along a new first dimension; for every distribution of the batch if `expand`."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """Return the expected value of -log_prob."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """Return exp of the entropy: the number of equally likely outcomes that would be as uncertain."""
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


class ExponentialFamily(Distribution):
    """Base of exponential families, which define their natural parameters and log normaliser A; the derivatives of A are the expected
    statistics, which give the entropy (here) and the divergence between two members (in `kl`)."""

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any, **others: Any) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def _expected_statistics(self) -> tuple[list[Tensor], Tensor, tuple[Tensor, ...]]:
        """Return natural parameters, log normaliser there, and its derivatives."""
        with enable_grad():
            parameters = [p.detach().requires_grad_() for p in self._natural_params]
            normalizer = self._log_normalizer(*parameters)
            return parameters, normalizer, grad(normalizer.sum(), parameters, create_graph=True)

    def entropy(self) -> Tensor:
        carrier = self._mean_carrier_measure
        parameters, result, statistics = self._expected_statistics()
        for parameter, statistic in zip(parameters, statistics):
            result = result - (parameter * statistic).reshape(*self._batch_shape, -1).sum(-1)
        return result - carrier


def checked(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Wrap a method of a value to check the value against shapes and support first, unless validation is off."""

    @wraps(method)
    def wrapper(self: Any, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return method(self, value)

    return wrapper


class Parametric(Distribution):
    def _broadcast(self, validate_args: bool | None, **parameters: Any) -> None:
        """Store the parameters, broadcast together, as attributes; their shape is the batch shape."""
        values = broadcast_all(*parameters.values())
        self.__dict__.update(zip(parameters, values))
        Distribution.__init__(self, values[0].shape, validate_args=validate_args)

    def _parameters(self) -> dict[str, Constraint]:
        """Return the tensors that have the batch shape, with the constraints that say how many dimensions follow it."""
        return self.arg_constraints

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        family = next(c for c in type(self).__mro__ if own_name(c.__module__).startswith(__package__ + "."))
        new = self._get_checked_instance(family, _instance)
        batch_shape = Size(batch_shape)
        for name, value in self.__dict__.items():
            if name not in new.__dict__ and not self._is_recomputed(name):
                new.__dict__[name] = self._expand_parameter(name, value, batch_shape)
        new._batch_shape = batch_shape
        return new

    def _is_recomputed(self, name: str) -> bool:
        """Return whether a cached value is dropped by `expand`: all but parameters, which are cheap to expand."""
        return name not in self._parameters() and isinstance(getattr(type(self), name, None), lazy_property)

    def _expand_parameter(self, name: str, value: Any, batch_shape: Size) -> Any:
        if isinstance(value, Distribution):
            return value.expand(batch_shape + value.batch_shape[len(self._batch_shape) :])
        if name in (parameters := self._parameters()):
            event_dim = parameters[name].event_dim
            return value.expand(batch_shape + value.shape[value.dim() - event_dim :])
        return value

    def _empty(self, like: Tensor, sample_shape: Sequence[int]) -> Tensor:
        """Return uninitialised memory for a sample, to be filled with noise."""
        return empty(self._extended_shape(sample_shape), dtype=like.dtype, device=like.device)

    def _constant(self, value: float, like: Tensor) -> Tensor:
        return full(self._extended_shape(), value, dtype=like.dtype, device=like.device)


class ProbsOrLogits(Parametric):
    """Base of distributions parameterised by `probs` or `logits`: the other is computed on first use."""

    _binary = True

    @staticmethod
    def _choose(probs: Any, logits: Any) -> tuple[str, Any]:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        return ("probs", probs) if probs is not None else ("logits", logits)

    def _broadcast_counts(self, total_count: Any, probs: Any, logits: Any, validate_args: bool | None) -> None:
        """Store the parameters of a family that counts trials: `total_count` takes the dtype of the probabilities."""
        self._given, given = self._choose(probs, logits)
        total_count, given = broadcast_all(total_count, given)
        self._broadcast(validate_args, **{"total_count": total_count.type_as(given), self._given: given})

    @property
    def _param(self) -> Tensor:
        """The parameter that was given: probabilities or logits."""
        return self.__dict__[self._given]

    @property
    def param_shape(self) -> Size:
        return self._param.shape

    @lazy_property
    def logits(self) -> Tensor:
        return probs_to_logits(self.probs, self._binary)

    @lazy_property
    def probs(self) -> Tensor:
        return logits_to_probs(self.logits, self._binary)

    def _count_up(self, number: int, expand: bool, dtype: Any) -> Tensor:
        """Return 0 ... number - 1 along a new first dimension."""
        values = arange(number, dtype=dtype, device=self._param.device).view(-1, *(1 for _ in self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values


settle(__name__)
