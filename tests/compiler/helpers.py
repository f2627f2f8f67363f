"""Run a function compiled and as it is, on twins of the same state, and compare everything that can be seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import flambeau

SETTLED = 4  # calls after which a function runs as one native call


def same(a: Any, b: Any, where: str = "", near: tuple[float, float] = (1e-5, 1e-6)) -> None:
    """Equal values (up to a relative and an absolute tolerance), dtypes, shapes, strides and flags; structures compared part by part."""
    assert type(a) is type(b), f"{where}: {type(a)} and {type(b)}"
    if isinstance(a, flambeau.Tensor):
        for name in ("shape", "dtype", "requires_grad", "is_leaf"):
            assert getattr(a, name) == getattr(b, name), f"{where}.{name}: {getattr(a, name)} and {getattr(b, name)}"
        assert a.stride() == b.stride(), where
        flambeau.testing.assert_close(
            a.detach(), b.detach(), rtol=near[0], atol=near[1], equal_nan=True, msg=f"{where}: {a} and {b}"
        )
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, f"{where}[{i}]", near)
    elif isinstance(a, dict):
        assert list(a) == list(b), where
        for k in a:
            same(a[k], b[k], f"{where}[{k!r}]", near)
    else:
        assert a == b or (a != a and b != b), f"{where}: {a} and {b}"


class Twins:
    """`build()` makes (function, state), twice with the same seed; one function is compiled."""

    def __init__(self, build: Callable[[], tuple[Callable, Any]], **options: Any):
        flambeau.manual_seed(0)
        self.plain, self.plain_state = build()
        flambeau.manual_seed(0)
        function, self.state = build()
        self.compiled = flambeau.compile(function, **options)
        self.behind = self.compiled._compiled
        self.number = 0

    def call(self, make: Callable[[], tuple], times: int = 1) -> None:
        """Call both with equal arguments and compare results, changed arguments, gradients of arguments and the state."""
        for _ in range(times):
            self.number += 1
            outcomes = []
            for function in (self.plain, self.compiled):
                flambeau.manual_seed(self.number)
                args = make()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result = function(*args)
                grads = [a.grad for a in args if isinstance(a, flambeau.Tensor) and a.is_leaf]
                outcomes.append((result, list(args), grads, flambeau.get_rng_state()))
            same(*outcomes, f"call {self.number}")
            same(visible(self.plain_state), visible(self.state), f"state after call {self.number}")

    @property
    def native(self) -> int:
        """How many calls were native."""
        return sum(r.calls for r in self.behind.recordings())


def visible(state: Any) -> Any:
    """What of a state can be compared: tensors with gradients and versions, and plain values."""
    if isinstance(state, flambeau.nn.Module):
        return [visible(t) for t in state.state_dict(keep_vars=True).values()]
    if isinstance(state, flambeau.optim.Optimizer):
        return state.state_dict()
    if isinstance(state, flambeau.Tensor):
        return [state, state.grad if state.is_leaf else None, state._version]
    if isinstance(state, (list, tuple)):
        return [visible(s) for s in state]
    if isinstance(state, dict):
        return {k: visible(v) for k, v in state.items()}
    return state if isinstance(state, (int, float, str)) else None


__all__ = ["SETTLED", "Twins", "same", "visible"]
