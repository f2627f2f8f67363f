"""Functions that share their code, because one function made them: a recording depends on those that ran, and on no others."""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest

import flambeau
from flambeau import nn
from flambeau.compiler.state.frames import FRAMES_ARE_KNOWN

from .helpers import SETTLED

X = flambeau.linspace(-1, 1, 6)


def scaling(factor: Any) -> tuple[Callable, Callable]:
    """A function that multiplies, and one that changes the factor."""

    def scale(x: Any, *others: Any) -> Any:
        return (others[1] if len(others) == 2 else x) * factor  # it may also be a hook

    def change(new: Any) -> None:
        nonlocal factor
        factor = new

    return scale, change


def settled(function: Any, *args: Any) -> Any:
    """The compiled function, after so many calls that it is native, if it can be."""
    compiled = flambeau.compile(function)
    for _ in range(SETTLED):
        flambeau.testing.assert_close(compiled(*args), function(*args))
    return compiled


def recordings(compiled: Any) -> list[Any]:
    return compiled._compiled.recordings()


def check(function: Callable, compiled: Any, *args: Any) -> None:
    for _ in range(SETTLED):
        flambeau.testing.assert_close(compiled(*args), function(*args))


def test_frames_tell_which_function_they_run() -> None:
    assert FRAMES_ARE_KNOWN


def test_only_the_closure_that_ran_is_guarded() -> None:
    (scale, change), (_other, change_other) = scaling(2.0), scaling(3.0)
    compiled = settled(lambda x: scale(x), X)
    change_other(7.0)
    check(scale, compiled, X)
    assert len(recordings(compiled)) == 1
    change(5.0)
    check(scale, compiled, X)
    assert recordings(compiled)[-1].calls


def test_a_closure_beside_it_in_one_dict_is_not_guarded() -> None:
    (scale, change), (other, change_other) = scaling(2.0), scaling(3.0)
    table = {"one": scale, "two": other}

    def function(x: Any) -> Any:
        return table["one"](x)

    compiled = settled(function, X)
    change_other(7.0)
    check(scale, compiled, X)
    assert len(recordings(compiled)) == 1
    change(5.0)
    check(scale, compiled, X)
    table["one"] = other  # it did not run until now
    check(other, compiled, X)
    change_other(11.0)
    check(other, compiled, X)


def _model(where: Any) -> nn.Module:
    class Inner(nn.Module):
        def forward(self, x: Any) -> Any:
            return where.exp(x)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Any) -> Any:
            return x + self.inner(x)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(Block(), Block())

        def forward(self, x: Any) -> Any:
            return self.blocks(x)

    return Outer()


def test_a_twin_of_a_model_is_not_asked() -> None:
    library = threading.local()  # whose state cannot be seen
    library.exp = flambeau.exp
    twin, model = _model(library), _model(flambeau)
    twin(X)
    compiled = settled(lambda x: model(x), X)
    assert recordings(compiled) and not compiled._compiled.reasons
    asked = settled(lambda x: twin(x), X)
    assert not recordings(asked) and "_thread._local" in asked._compiled.reasons[0]


def test_a_twin_that_ran_without_being_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two is found by its name, the other was only seen running."""
    (scale, _), (other, change) = scaling(2.0), scaling(3.0)
    monkeypatch.setattr(flambeau.Tensor, "__matmul__", other)

    def function(x: Any) -> Any:
        return scale(x) @ x

    compiled = settled(function, X)
    change(7.0)
    check(function, compiled, X)


def test_a_twin_that_is_a_hook_of_all_modules() -> None:
    (scale, _), (other, change) = scaling(2.0), scaling(3.0)
    layer = nn.Identity()
    hook = nn.modules.module.register_module_forward_hook(other)

    def function(x: Any) -> Any:
        return layer(scale(x))

    try:
        compiled = settled(function, X)
        change(7.0)
        check(function, compiled, X)
    finally:
        hook.remove()


def test_a_function_made_of_anothers_parts_in_each_call() -> None:
    scale, change = scaling(2.0)
    weights = types.SimpleNamespace(by=[3.0])

    def shift(x: Any, by: Any = weights.by) -> Any:
        return x + by[0]

    def function(x: Any) -> Any:
        scaled = types.FunctionType(scale.__code__, scale.__globals__, "again", None, scale.__closure__)
        shifted = types.FunctionType(shift.__code__, shift.__globals__, "again", shift.__defaults__)
        return shifted(scaled(x))

    compiled = settled(function, X)
    change(5.0)
    check(function, compiled, X)
    weights.by[0] = 4.0
    check(function, compiled, X)


def test_a_twin_whose_results_are_kept() -> None:
    """The results of one are new, those of the other were kept before: what it would run counts, too."""
    offset = types.SimpleNamespace(by=1.0)

    def made(factor: float) -> Any:
        @functools.lru_cache
        def number(n: int) -> float:
            return n * factor + (offset.by if factor == 3.0 else 0.0)

        return number

    new, old = made(2.0), made(3.0)
    old(2)

    def function(x: Any) -> Any:
        return x * new(2) + old(2)

    compiled = settled(function, X)
    offset.by = 5.0
    old.cache_clear()
    check(function, compiled, X)


def test_a_wrapper_of_a_compiled_function() -> None:
    """It has the marks of the compiled function, which `functools.wraps` copies, and variables of its own."""
    factor = 2.0
    inner = flambeau.compile(lambda x: x + 1)

    @functools.wraps(inner)
    def wrapper(x: Any) -> Any:
        return inner(x) * factor

    def function(x: Any) -> Any:
        return wrapper(x).exp()

    compiled = settled(function, X)
    factor = 5.0
    check(function, compiled, X)
    assert flambeau.compiler.disable(wrapper) is wrapper
    assert flambeau.compiler.disable(inner) is inner.__wrapped__


def test_generators_of_one_function() -> None:
    def made(factor: float) -> tuple[Callable, Callable]:
        def powers(x: Any) -> Any:
            for _ in range(3):
                x = x * factor
                yield x

        def change(new: float) -> None:
            nonlocal factor
            factor = new

        return powers, change

    (powers, change), (_other, change_other) = made(2.0), made(3.0)

    def function(x: Any) -> Any:
        return sum(powers(x))

    compiled = settled(function, X)
    change_other(7.0)
    check(function, compiled, X)
    assert len(recordings(compiled)) <= 1
    change(5.0)
    check(function, compiled, X)


def test_closures_that_are_made_run_and_kept_in_each_call() -> None:
    class Scaled(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, function: Callable) -> Any:
            ctx.function = function  # which lives on with the result
            return function(x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2, None

    factor = flambeau.tensor(2.0)
    weight = flambeau.ones(6, requires_grad=True)
    kept: list[Any] = []

    def function(x: Any) -> Any:
        scaled = factor * 3
        return Scaled.apply(x * weight, lambda y: y * scaled)

    compiled = flambeau.compile(function)
    for _ in range(SETTLED + 2):
        kept.append(compiled(X))
        flambeau.testing.assert_close(kept[-1], function(X))
    assert recordings(compiled) and not compiled._compiled.reasons
