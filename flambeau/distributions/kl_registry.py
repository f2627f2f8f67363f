"""Registry of the functions that compute the divergence between two kinds of distributions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ..core.tensor import Tensor
from .distribution import Distribution

_Formula = Callable[[Any, Any], Tensor]
_registered: dict[tuple[type, type], _Formula] = {}
_found: dict[tuple[type, type], _Formula | None] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[_Formula], _Formula]:
    """A decorator that makes a function of (p, q) the divergence between these classes and their subclasses.

    >>> @register_kl(Normal, MyNormal)
    ... def divergence(p, q):
    ...     return ...
    """
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type):  # of any kind: libraries register classes of their own that only behave like one
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def decorator(formula: _Formula) -> _Formula:
        _registered[type_p, type_q] = formula
        _found.clear()
        return formula

    return decorator


def _find(type_p: type, type_q: type) -> _Formula | None:
    """The formula of the nearest base classes; a warning if nearness in p and in q lead to different ones."""
    order_p, order_q = type_p.__mro__, type_q.__mro__
    matches = [(order_p.index(p), order_q.index(q), p, q) for p, q in _registered if p in order_p and q in order_q]
    if not matches:
        return None
    by_p = min(matches, key=lambda match: (match[0], match[1]))
    by_q = min(matches, key=lambda match: (match[1], match[0]))
    if _registered[by_p[2:]] is not _registered[by_q[2:]]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({by_p[2].__name__}, {by_q[3].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _registered[by_p[2:]]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The Kullback-Leibler divergence: the expected value, under p, of log p(x) - log q(x).

    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
    tensor(0.5000)
    """
    pair = type(p), type(q)
    if pair not in _found:
        _found[pair] = _find(*pair)
    formula = _found[pair]
    if formula is None:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
        )
    return formula(p, q)
