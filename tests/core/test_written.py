"""Functions that are compiled when they are first called look, and answer, like any other before and after."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from flambeau.core.written import code_of, declared

_TEXT = "def f(a, b, *more, c, d):\n    return a, b, more, c, d, scale\n"


def _made(told: list[Any]) -> Any:
    space = {"scale": 2}
    function = declared("f", ["a", "b"], ["c", "d"], lambda: code_of(_TEXT, "text"), space, "more", told.append)
    function.__defaults__, function.__kwdefaults__ = (7,), {"d": 9}
    return function


def test_parameters_are_known_before_the_first_call_and_stay() -> None:
    function = _made([])
    before = inspect.signature(function)
    assert str(before) == "(a, b=7, *more, c, d=9)" and function.__name__ == function.__qualname__ == "f"
    function(1, c=3)
    assert inspect.signature(function) == before


def test_the_first_call_gets_every_argument_and_tells_its_code_once() -> None:
    told: list[Any] = []
    function = _made(told)
    assert not told
    assert function(1, 2, 5, 6, c=3) == (1, 2, (5, 6), 3, 9, 2)
    assert told == [function.__code__]
    assert function(b=4, a=1, c=3, d=8) == (1, 4, (), 3, 8, 2)
    assert len(told) == 1


def test_a_wrong_first_call_is_python_s_own_error() -> None:
    with pytest.raises(TypeError, match=r"f\(\) missing 1 required keyword-only argument: 'c'"):
        _made([])(1)
