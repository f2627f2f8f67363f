"""Identification of the function that a frame runs: closures made by one function share their code, and differ in their variables."""

from __future__ import annotations

import ctypes
import functools
import gc
import signal
import sys
import traceback
import types
from typing import Any

_FRAME = 24  # in the object of a frame: where the frame itself is
_RUNS = 16 if sys.version_info >= (3, 12) else 0  # in a frame: the function that it runs


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def function_id(f: types.FunctionType) -> Any:
    """Return a key that distinguishes a function from others with the same code."""
    return id(f) if sys.version_info >= (3, 11) else (id(f.__globals__), *map(id, f.__closure__ or ()))


def running_id(frame: types.FrameType) -> Any:
    """Return the `function_id` of the function that a frame runs. Python 3.10 knows only its variables: functions that share all of these
    have one id."""
    if sys.version_info >= (3, 11):
        return _word(_word(id(frame) + _FRAME) + _RUNS)
    around = len(frame.f_code.co_freevars)
    cells = [id(o) for o in gc.get_referents(frame) if type(o) is types.CellType] if around else []
    return (id(frame.f_globals), *cells[-around:])


def signal_handlers() -> set[Any]:
    """Return the code of what handles signals, which may run at any time, inside any function: functions, methods, callable objects."""
    handlers = filter(callable, map(signal.getsignal, signal.valid_signals()))
    behind = (f.func if isinstance(f, functools.partial) else f for f in handlers)
    return {getattr(f, "__code__", None) or getattr(type(f).__call__, "__code__", None) for f in behind} - {None}


def from_signal_handler(problem: BaseException) -> bool:
    """Return whether an exception comes from a signal's handler, not from what ran when the signal came."""
    codes = signal_handlers()
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(problem.__traceback__))


def _frames_are_known() -> bool:
    """Return whether frames tell which function they run, after a trial on functions with the same code, and on generators."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 14) or object.__basicsize__ != 16:
        return False

    def made(a: Any) -> tuple[Any, Any]:
        def plain(b: Any) -> Any:
            return running_id(sys._getframe()), a, lambda: b  # b is a variable of its own that others see

        def generator(b: Any) -> Any:
            yield running_id(sys._getframe()), a, lambda: b

        return plain, generator

    (first, one), (second, two) = made(1), made(2)
    found = [first(0)[0], second(0)[0], next(one(0))[0], next(two(0))[0]]
    return found[0] != found[1] and found == [function_id(f) for f in (first, second, one, two)]


FRAMES_ARE_KNOWN = _frames_are_known()
FUNCTIONS_ARE_KNOWN = FRAMES_ARE_KNOWN and sys.version_info >= (3, 11)  # the id is the function's address
