"""Constructors with bound arguments, which a configuration holds instead of observers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class _PartialWrapper:
    """Constructor with bound arguments; `callable_args` are called for their values each time an object is made."""

    def __init__(self, p: functools.partial):
        self.p = p
        self.callable_args: dict[str, Callable] = {}

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        late = {name: make() for name, make in self.callable_args.items() if name not in keywords}
        return self.p(*args, **late, **keywords)

    def __repr__(self) -> str:
        return repr(self.p) + repr(self.callable_args)

    def with_args(self, **kwargs: Any) -> _PartialWrapper:
        """Return this constructor with more arguments bound."""
        return _with_args(self, **kwargs)

    def with_callable_args(self, **kwargs: Callable) -> _PartialWrapper:
        """Return this constructor with arguments that are computed when an object is made."""
        result = _PartialWrapper(self.p)
        result.callable_args = {**self.callable_args, **kwargs}
        return result


_PartialWrapper.__module__ = "flambeau.ao.quantization.observer"  # its name in pickled configurations


def _with_args(cls_or_self: Any, **kwargs: Any) -> _PartialWrapper:
    """Return a constructor of `cls_or_self` with bound arguments: `MinMaxObserver.with_args(dtype=torch.qint8)`."""
    return _PartialWrapper(functools.partial(cls_or_self, **kwargs))


def _with_callable_args(cls_or_self: Any, **kwargs: Callable[..., Any]) -> _PartialWrapper:
    """Return a constructor of `cls_or_self` whose bound arguments are computed at each call."""
    return _PartialWrapper(functools.partial(cls_or_self)).with_callable_args(**kwargs)
