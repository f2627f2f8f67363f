"""Base of this package's families: broadcast parameters, one `expand` for all, checked values.

A family keeps its tensors under the names in `arg_constraints` and may be built on other distributions; both are all that
`expand` has to widen. Parameters come as probabilities or as logits in many discrete families: `ProbsOrLogits`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ..core.naming import own_name
from ..core.size import Size
from ..core.tensor import Tensor
from ..ops.creation.filled import empty, full
from ..ops.creation.ranges import arange
from .constraints import Constraint
from .distribution import Distribution
from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits


def checked(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A method of a value that first checks it against shapes and support, unless validation is off."""

    @wraps(method)
    def wrapper(self: Any, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        return method(self, value)

    return wrapper


class Parametric(Distribution):
    def _broadcast(self, validate_args: bool | None, **parameters: Any) -> None:
        """Keep the parameters, broadcast together, as attributes; their shape is the batch shape."""
        values = broadcast_all(*parameters.values())
        self.__dict__.update(zip(parameters, values))
        Distribution.__init__(self, values[0].shape, validate_args=validate_args)

    def _parameters(self) -> dict[str, Constraint]:
        """The tensors that have the batch shape, and the constraints that say how many dimensions follow it."""
        return self.arg_constraints

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        family = next(c for c in type(self).__mro__ if own_name(c.__module__).startswith(__package__ + "."))
        new = self._get_checked_instance(family, _instance)
        batch_shape = Size(batch_shape)
        for name, value in self.__dict__.items():
            if name not in new.__dict__ and not self._recomputed(name):
                new.__dict__[name] = self._expanded(name, value, batch_shape)
        new._batch_shape = batch_shape
        return new

    def _recomputed(self, name: str) -> bool:
        """Cached values are left behind, unless they are parameters, which are cheap to expand."""
        return name not in self._parameters() and isinstance(getattr(type(self), name, None), lazy_property)

    def _expanded(self, name: str, value: Any, batch_shape: Size) -> Any:
        if isinstance(value, Distribution):
            return value.expand(batch_shape + value.batch_shape[len(self._batch_shape) :])
        if name in (parameters := self._parameters()):
            event_dim = parameters[name].event_dim
            return value.expand(batch_shape + value.shape[value.dim() - event_dim :])
        return value

    def _empty(self, like: Tensor, sample_shape: Sequence[int]) -> Tensor:
        """Room for a sample, to be filled with noise."""
        return empty(self._extended_shape(sample_shape), dtype=like.dtype, device=like.device)

    def _constant(self, value: float, like: Tensor) -> Tensor:
        return full(self._extended_shape(), value, dtype=like.dtype, device=like.device)


class ProbsOrLogits(Parametric):
    """The base of distributions given by `probs` or `logits`: the other is computed when asked for."""

    _binary = True

    @staticmethod
    def _choose(probs: Any, logits: Any) -> tuple[str, Any]:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        return ("probs", probs) if probs is not None else ("logits", logits)

    def _broadcast_counts(self, total_count: Any, probs: Any, logits: Any, validate_args: bool | None) -> None:
        """Parameters of a family that counts trials: `total_count` takes the dtype of the probabilities."""
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

    def _counted(self, number: int, expand: bool, dtype: Any) -> Tensor:
        """0 ... number - 1 along a new first dimension."""
        values = arange(number, dtype=dtype, device=self._param.device).view(-1, *(1 for _ in self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values
