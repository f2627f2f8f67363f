"""Code that a Ctrl-C cannot divide: finalizers, and the ends of `with` blocks.

Python delivers signals between two instructions of the main thread: at the start of a function, after a call, and when a loop goes round. In
a finalizer, a KeyboardInterrupt raised there is printed and lost; at the start of an `__exit__` it leaves the context's state as it was
inside. So such functions are marked `@uninterrupted`, which removes the first of these places, and have neither calls nor loops before they
have done their work; to call a C function they use `at_once`.

A context that changes more than one thing by calls is written as a generator with try and finally (`contextlib.contextmanager`)
or restores all its state by assignments.
"""

from __future__ import annotations

import opcode
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_RESUME = opcode.opmap.get("RESUME")  # Python 3.10 has none; there, a function that begins with `try:` starts unchecked
_AFTER_YIELD_FROM = 2  # the argument of a RESUME that does not look for signals


def uninterrupted(function: F) -> F:
    """Return the function, started without a check for signals. Its code should begin with `try:`."""
    assert isinstance(function, FunctionType)
    code = function.__code__
    instructions = bytearray(code.co_code)
    for at in range(0, len(instructions), 2):
        if instructions[at] == _RESUME:
            instructions[at + 1] |= _AFTER_YIELD_FROM
            function.__code__ = code.replace(co_code=bytes(instructions))
            break
    return function


def at_once(function: Callable[..., Any]) -> Any:
    """Return an object that calls a C function without a check for signals afterwards: `at_once(f)[x]` is f(x), and `at_once(f)[x] = y` is
    f(x, y). The function must not be one that binds to instances, as Python's do.

    >>> seen = []
    >>> at_once(seen.append)[5]
    >>> seen
    [5]
    """
    return type("AtOnce", (), {"__slots__": (), "__getitem__": function, "__setitem__": function})()
