"""Functions whose source is made of the parameters of an operator or a kernel, and compiled when they are first called: most never
are, and compiling them all would be a tenth of the time of `import flambeau`."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any


def _until_then(*args: Any, **kwargs: Any) -> Any:
    return _write()(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821 - a name of the function's own globals


def _first_call() -> Any:
    return _begin(locals())  # type: ignore[name-defined]  # noqa: F821 - a name of the function's own globals


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


def declared(
    name: str,
    positional: Sequence[str],
    named: Sequence[str],
    code: Callable[[], types.CodeType],
    space: dict[str, Any],
    star: str | None = None,
    begins: Callable[[types.CodeType], None] = lambda code: None,
) -> Any:
    """A function in the globals `space` that has these parameters (keyword-only if `named`, `star` for `*args`) from the start, and
    the code that `code()` gives from its first call on; `begins` is told that code."""
    function: Any = types.FunctionType(_stand_in(tuple(positional), tuple(named), star), space, name)
    function.__qualname__ = name

    def begin(values: dict[str, Any]) -> Any:
        function.__code__ = made = code()
        begins(made)
        more = values.pop(star) if star is not None else ()
        return function(*(values.pop(n) for n in positional), *more, **values)

    space["_begin"] = begin
    return function


def code_of(source: str, file: str) -> types.CodeType:
    """The code of the one function that a text defines, which is made of names of parameters only."""
    return next(c for c in compile(source, file, "exec").co_consts if isinstance(c, types.CodeType))


@functools.cache
def _stand_in(positional: tuple[str, ...], named: tuple[str, ...], star: str | None) -> types.CodeType:
    """`_first_call` with these parameters. Its code names no local variable, so any may be declared."""
    names = (*positional, *named) if star is None else (*positional, *named, star)
    code = _first_call.__code__
    return code.replace(
        co_argcount=len(positional), co_kwonlyargcount=len(named), co_varnames=names, co_nlocals=len(names),
        co_flags=code.co_flags | (0 if star is None else inspect.CO_VARARGS),
    )  # fmt: skip
