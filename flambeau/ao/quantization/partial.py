"""Constructors with some of their arguments given: what a configuration holds instead of observers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class _PartialWrapper:
    """Makes a new object at each call. `callable_args` are called first, at the time."""

    def __init__(self, p: functools.partial):
        self.p = p
        self.callable_args: dict[str, Callable] = {}

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        late = {name: make() for name, make in self.callable_args.items() if name not in keywords}
        return self.p(*args, **late, **keywords)

    def __repr__(self) -> str:
        return repr(self.p) + repr(self.callable_args)

    def with_args(self, **kwargs: Any) -> _PartialWrapper:
        """Return this constructor with more arguments given."""
        return _with_args(self, **kwargs)

    def with_callable_args(self, **kwargs: Callable) -> _PartialWrapper:
        """Return this constructor with arguments that are found when an object is made."""
        result = _PartialWrapper(self.p)
        result.callable_args = {**self.callable_args, **kwargs}
        return result


_PartialWrapper.__module__ = "flambeau.ao.quantization.observer"  # its name in pickled configurations


def _with_args(cls_or_self: Any, **kwargs: Any) -> _PartialWrapper:
    """A constructor of `cls_or_self` with arguments given: `MinMaxObserver.with_args(dtype=torch.qint8)`."""
    return _PartialWrapper(functools.partial(cls_or_self, **kwargs))


def _with_callable_args(cls_or_self: Any, **kwargs: Callable[..., Any]) -> _PartialWrapper:
    """A constructor of `cls_or_self` whose given arguments are computed at each call."""
    return _PartialWrapper(functools.partial(cls_or_self)).with_callable_args(**kwargs)
