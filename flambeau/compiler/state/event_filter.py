"""A profile function with a native filter: most events of an observed call are this library's own, and never reach Python.

`sys.setprofile` makes a dict of each frame's variables and calls a Python function for every event. Here a few machine instructions look up
the frame's code in a table of those to be skipped; without a compiler, or in another interpreter, every event is passed on."""

from __future__ import annotations

import ctypes
import functools
import sys
import types
from array import array
from collections.abc import Callable
from typing import Any

from ...backends.cpu import jit, native_call
from ...kernels.llvm_text import Function

_SLOTS, _PROBES, _GOLDEN = 4096, 8, 0x9E3779B97F4A7C15  # of a table: its size, slots that are searched, a multiplier
_NAMES = tuple(map(sys.intern, ("call", "exception", "line", "return", "c_call", "c_exception", "c_return", "opcode")))
_CALL, _RETURN, _C_CALL = (_NAMES.index(name) for name in ("call", "return", "c_call"))
_WORDS = object.__basicsize__ // 8  # of an object's head; in one of ctypes follows the address of its contents


class Skipped:
    """Code whose events are passed over: by its id in `codes`, and in a table for the native filter. Callers keep the code alive."""

    def __init__(self) -> None:
        self.codes, self.slots = set[int](), array("Q", bytes(8 * _SLOTS))

    def add(self, code: types.CodeType, as_caller: bool = False) -> None:
        """Pass over events of this code; `as_caller`: in the native filter, where the first other code around it is passed over."""
        if not as_caller:
            self.codes.add(id(code))
        first = (id(code) * _GOLDEN & (1 << 64) - 1) >> 52
        for i in range(first, first + _PROBES):
            if not self.slots[i % _SLOTS]:
                self.slots[i % _SLOTS] = id(code) + as_caller
                return


class EventFilter(ctypes.Structure):
    """Base of profile functions that define `event(frame, name, argument)`. It gets all events if there is a `former` profile function, which
    gets them too; else calls, those of C functions, and, while `returns` is set, returns. Code in `skipped` is passed over, except
    where it calls one of the two C functions `asked`."""

    _fields_ = [("table", ctypes.c_void_p), ("every", ctypes.c_int64), ("returns", ctypes.c_int64),
                ("asked", ctypes.c_void_p * 2), ("names", ctypes.c_void_p * len(_NAMES))]  # fmt: skip

    def __init__(self, former: Any, asked: tuple[Any, Any], skipped: Skipped):
        super().__init__()
        self.former, self.skipped, self._asked, self.every = former, skipped, asked, former is not None
        self.table, self.asked[:] = skipped.slots.buffer_info()[0], [id(f) for f in asked]
        self.names[:] = [id(name) for name in _NAMES]

    def __call__(self, frame: types.FrameType, name: str, argument: Any) -> None:
        if id(frame.f_code) not in self.skipped.codes or (name == "c_call" and argument in self._asked):
            self.event(frame, name, argument)
        if self.former is not None:
            self.former(frame, name, argument)

    event: Callable[[types.FrameType, str, Any], None]  # handles one that is not passed over


def set_profile(function: Any) -> None:
    """Set the profile function of this thread, with its native filter if it has one and code can be compiled; None for none."""
    set_native = _native_setter() if isinstance(function, EventFilter) else None
    if set_native is None:
        sys.setprofile(function)
    else:
        set_native(_filter(), function)


@functools.cache
def _native_setter() -> Any:
    """Return the interpreter's function that sets a native profile function, if it and the layout of objects are as expected."""
    sample = ctypes.c_int64()
    known = native_call.supported() and sys.maxsize > 1 << 32 and jit.available()
    if not known or ctypes.c_int64.from_address(id(sample) + 8 * _WORDS).value != ctypes.addressof(sample):
        return None
    set_native = ctypes.pythonapi["PyEval_SetProfile"]
    set_native.argtypes, set_native.restype = [ctypes.c_void_p, ctypes.py_object], None
    return set_native


@functools.cache
def _filter() -> int:
    """Return the address of the native profile function of an `EventFilter`."""
    f = Function("define i32 @filter(ptr %self, ptr %frame, i32 %kind, ptr %argument) nounwind")
    state = f.item("%self", _WORDS, "ptr")
    table, every, returns, *asked = (
        f.item(state, i, kind) for i, kind in enumerate(("ptr", "i64", "i64", "ptr", "ptr"))
    )
    kind = f.convert("zext", "i32", "%kind", "i64")
    with f.when(f.compare("eq", "i64", every, 0)):
        calls = f.op("or", "i1", f.compare("eq", "i64", kind, _CALL), f.compare("eq", "i64", kind, _C_CALL))
        ends = f.op("and", "i1", f.compare("eq", "i64", kind, _RETURN), f.compare("ne", "i64", returns, 0))
        with f.when(f.compare("eq", "i1", f.op("or", "i1", calls, ends), 0)):
            f.ret("i32", 0)
        is_asked = f.op("or", "i1", *(f.compare("eq", "ptr", "%argument", one) for one in asked))
        with f.when(f.compare("eq", "i1", is_asked, 0)):
            _skip(f, table)
    missing = f.compare("eq", "ptr", "%argument", "null")
    argument = f.select(missing, "ptr", native_call.none(f), "%argument")
    given = [f"ptr {v}" for v in ("%self", "%frame", f.item(state, f.add(kind, 5), "ptr"), argument, "null")]
    result = f.call("ptr (ptr, ...)", "@PyObject_CallFunctionObjArgs", *given)
    with f.when(f.compare("eq", "ptr", result, "null")):
        f.ret("i32", -1)
    f.call("void", "@Py_DecRef", f"ptr {result}")
    f.ret("i32", 0)
    return jit.support_code(f)


def _skip(f: Function, table: str) -> None:
    """Return from the filter if the code of the frame is passed over, or the first around it that is not skipped as its caller is."""
    place = f.variable("ptr", "%frame")
    with f.forever() as over:
        frame = f.read("ptr", place)
        with f.when(f.compare("eq", "ptr", frame, "null")):
            f.go(over)
        code = f.call("ptr", "@PyFrame_GetCode", f"ptr {frame}")
        f.call("void", "@Py_DecRef", f"ptr {code}")
        number = f.convert("ptrtoint", "ptr", code, "i64")
        first = f.op("lshr", "i64", f.mul(number, _GOLDEN - (1 << 64)), 52)
        further = f.fresh("further")
        with f.loop(_PROBES) as i:
            word = f.item(table, f.op("and", "i64", f.add(first, i), _SLOTS - 1))
            with f.when(f.compare("eq", "i64", word, number)):
                f.ret("i32", 0)
            with f.when(f.compare("eq", "i64", word, f.add(number, 1))):
                f.go(further)
        f.go(over)
        f.label(further)
        back = f.call("ptr", "@PyFrame_GetBack", f"ptr {frame}")
        f.call("void", "@Py_DecRef", f"ptr {back}")  # it runs, so that the interpreter holds it
        f.write("ptr", back, place)
