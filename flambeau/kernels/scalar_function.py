"""Functions of numbers written in the loop-kernel language, and fingerprints of such functions without their source."""

from __future__ import annotations

import builtins
import hashlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.dtype import dtype
from ..expr.node import Expr, call
from .loops_language import BUILTINS, Intrinsic


class ScalarFunction:
    """A function of numbers written in the kernel language: inlined in kernels, a `call` node in formulas, plain Python
    on numbers. `@fn.derivative` declares its pullback for formulas: (g, y, *args) -> one cotangent per argument."""

    def __init__(self, function: Callable[..., Any]):
        self.function: Any = function
        self.__name__ = self.function.__name__
        self.__doc__ = function.__doc__
        self._pullback: Callable[..., Any] | None = None
        self._name: str | None = None
        self._python: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        """Return a name that identifies what the function computes: formulas that call it are cached under it."""
        if self._name is None:
            self._name = f"{self.__name__}_{fingerprint(self)[:12]}"
        return self._name

    def __call__(self, *args: Any, **constants: Any) -> Any:
        if any(isinstance(a, Expr) for a in args):
            if constants:
                raise TypeError(f"{self.__name__} takes no keyword arguments in a formula")
            return call(self, *args)
        if self._python is None:
            self._python = as_python(self.function)
        return self._python(*args, **constants)

    def derivative(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self._pullback = function
        return function

    def pullback(self, g: Expr, y: Expr, *args: Expr) -> tuple[Any, ...]:
        if self._pullback is None:
            raise NotImplementedError(f"the derivative of '{self.__name__}' is not implemented")
        result = self._pullback(g, y, *args)
        return result if isinstance(result, tuple) else (result,)

    def numpy(self, *arrays: Any) -> np.ndarray[Any, Any]:
        """Compute element by element over arrays: the reference implementation of a `call` node."""
        inputs = np.broadcast_arrays(*arrays)
        flat = [a.reshape(-1) for a in inputs]
        with np.errstate(all="ignore"):
            values = [self(*(f[i] for f in flat)) for i in range(flat[0].size)]
        return np.array(values, dtype=np.result_type(*arrays)).reshape(inputs[0].shape)

    def __repr__(self) -> str:
        return f"<scalar function {self.__name__}>"


def as_python(function: Any) -> Any:
    """Return the function with the builtins that the language redefines (min and max propagate nan), to run on numbers."""
    space = {**function.__globals__, "__builtins__": {**vars(builtins), **BUILTINS}}
    copy = types.FunctionType(function.__code__, space, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


_MISSING = object()


def resolve(function: Any, name: str) -> tuple[bool, Any]:
    """Return whether a global or closed-over name is defined for `function`, and its value."""
    code = function.__code__
    if name in code.co_freevars:
        return True, function.__closure__[code.co_freevars.index(name)].cell_contents
    if name in function.__globals__:
        return True, function.__globals__[name]
    found = BUILTINS.get(name, getattr(builtins, name, _MISSING))
    return found is not _MISSING, found


def fingerprint(function: ScalarFunction | Callable[..., Any]) -> str:
    """Return a hash of what a function does: its bytecode, constants, and the constants and scalar functions it names. It is the same in
    every process, so compiled kernels are found on disk without reading any source."""
    plain = function.function if isinstance(function, ScalarFunction) else function
    return hashlib.sha256(repr(_describe(plain, ())).encode()).hexdigest()


def _describe(function: Any, active: tuple[Any, ...]) -> tuple[Any, ...]:
    if function in active:
        return ("recursive", function.__name__)
    code, active = function.__code__, (*active, function)
    used = []
    for name in dict.fromkeys((*code.co_names, *code.co_freevars)):
        value = resolve(function, name)[1]
        used.append((name, describe_constant(value, active)))
        if isinstance(value, types.ModuleType):  # a constant may be an attribute of a module
            attributes = [n for n in code.co_names if hasattr(value, n)]
            used.append((name, tuple((n, describe_constant(getattr(value, n), active)) for n in attributes)))
    defaults = tuple(describe_constant(v, active) for v in function.__defaults__ or ())
    keywords = tuple((n, describe_constant(v, active)) for n, v in (function.__kwdefaults__ or {}).items())
    shape = (code.co_argcount, code.co_kwonlyargcount, code.co_varnames, defaults, keywords)
    return (code.co_name, shape, _describe_code(code), tuple(used))


def _describe_code(code: Any) -> tuple[Any, ...]:
    constants = tuple(
        _describe_code(c) if hasattr(c, "co_code") else (type(c).__name__, repr(c)) for c in code.co_consts
    )
    return (code.co_code.hex(), constants, code.co_names)


def describe_constant(value: Any, active: tuple[Any, ...] = ()) -> Any:
    """Return the part of a compile-time constant that determines the generated code, as an object with a stable repr."""
    if isinstance(value, ScalarFunction):
        return _describe(value.function, active)
    if isinstance(value, Intrinsic):
        return ("word", value.name)
    if value is None or isinstance(value, (bool, int, float, complex, str, dtype)):
        return (type(value).__name__, repr(value))
    if isinstance(value, tuple):
        return tuple(describe_constant(v, active) for v in value)
    return ("object", getattr(value, "__name__", type(value).__name__))
