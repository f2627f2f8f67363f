"""Functions whose source is generated from the parameters of an operator or kernel, compiled at the first call: most are never called."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any


def _compile_then_call(*args: Any, **kwargs: Any) -> Any:
    return _write()(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821 - a name of the function's own globals


def written(source: Callable[[], str | types.CodeType], space: dict[str, Any]) -> Any:
    """Return the function `compute` that the text or code of `source()` defines, in the globals `space`."""
    function: Any = types.FunctionType(_compile_then_call.__code__, space, "compute")

    def write() -> Any:
        text = source()
        code = compile(text, f"{__file__}<written>", "exec") if isinstance(text, str) else text
        exec(code, space)  # noqa: S102 - made of parameter names only
        made = space["compute"]
        function.__defaults__, function.__kwdefaults__ = made.__defaults__, made.__kwdefaults__
        function.__code__ = made.__code__
        return function

    space["_write"] = write
    return function
