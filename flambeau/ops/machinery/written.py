"""Functions whose source is made of an operator's parameters, and compiled when they are first called: most never are."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any


def _until_then(*args: Any, **kwargs: Any) -> Any:
    return _write()(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821 - a name of the function's own globals


def written(source: Callable[[], str], space: dict[str, Any]) -> Any:
    """The function `compute` of the text that `source()` gives, in the globals `space`."""
    function: Any = types.FunctionType(_until_then.__code__, space, "compute")

    def write() -> Any:
        exec(compile(source(), f"{__file__}<written>", "exec"), space)  # noqa: S102 - made of parameter names only
        made = space["compute"]
        function.__defaults__, function.__kwdefaults__ = made.__defaults__, made.__kwdefaults__
        function.__code__ = made.__code__
        return function

    space["_write"] = write
    return function
