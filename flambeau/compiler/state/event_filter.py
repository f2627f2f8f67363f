"""A profile function with a native filter: most events of an observed call are this library's own, and never reach Python.

`sys.setprofile` makes a dict of each frame's variables and calls a Python function for every event. Here a few machine instructions look up
the frame's code in a table of those to be skipped; without a compiler, or in another interpreter, every event is passed on."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import types
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from ...backends.cpu import jit, native_call
from ...kernels.llvm_text import Function

_SLOTS, _PROBES, _GOLDEN = 4096, 8, 0x9E3779B97F4A7C15  # of a table: its size, slots that are searched, a multiplier
_NAMES = tuple(map(sys.intern, ("call", "exception", "line", "return", "c_call", "c_exception", "c_return", "opcode")))
_CALL, _RETURN, _C_CALL = (_NAMES.index(name) for name in ("call", "return", "c_call"))
_WORDS = object.__basicsize__ // 8  # of an object's head; in one of ctypes follows the address of its contents


class Skipped:
    """Code whose events are passed over: by its id in `codes`, and in a table for the native filter. Callers keep the code alive. `passed` is
    the code that the native filter has passed over because of its file, to be taken from there."""

    def __init__(self) -> None:
        self.codes, self.slots, self.passed = set[int](), array("Q", bytes(8 * _SLOTS)), list[types.CodeType]()

    def add(self, code: types.CodeType, as_caller: bool = False, file: bool = False) -> None:
        """Pass over events of this code, or, in the native filter, of all code with the same object as name of its `file`; `as_caller`: in the
        native filter, where the first other code around it is passed over."""
        if not as_caller:
            self.codes.add(id(code))
        self._put(id(code), id(code) + as_caller)
        if file:
            self._put(id(code.co_filename), id(code.co_filename))

    def _put(self, key: int, word: int) -> None:
        first = (key * _GOLDEN & (1 << 64) - 1) >> 52
        for i in range(first, first + _PROBES):
            if self.slots[i % _SLOTS] in (0, word):
                self.slots[i % _SLOTS] = word
                return


class EventFilter(ctypes.Structure):
    """Base of profile functions that define `event(frame, name, argument)`. It gets all events if there is a `former` profile function, which
    gets them too; else calls, those of C functions, and, while `until` is the address of a frame, only its return. Code in `skipped` is
    passed over, except where it calls one of the two C functions `asked`."""

    _fields_ = [("table", ctypes.c_void_p), ("passed", ctypes.c_void_p), ("every", ctypes.c_int64), ("until", ctypes.c_int64),
                ("asked", ctypes.c_void_p * 2), ("names", ctypes.c_void_p * len(_NAMES))]  # fmt: skip

    def __init__(self, former: Any, asked: tuple[Any, Any], skipped: Skipped):
        super().__init__()
        self.former, self.skipped, self._asked, self.every = former, skipped, asked, former is not None
        self.table, self.passed = skipped.slots.buffer_info()[0], id(skipped.passed)
        self.asked[:] = [id(f) for f in asked]
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
    return jit.support_code(_native_filter, _file_place())


@functools.cache
def _file_place() -> int:
    """Return which word of a code object is the name of its file; 0 if that is not known."""
    samples = [f.__code__ for f in (functools.wraps, set_profile, Function.text)]
    words = range(_WORDS, types.CodeType.__basicsize__ // 8)
    word = ctypes.c_int64.from_address
    found = [i for i in words if all(word(id(code) + 8 * i).value == id(code.co_filename) for code in samples)]
    return found[0] if len(found) == 1 else 0


def _native_filter(file_place: int) -> Function:
    f = Function("define i32 @filter(ptr %self, ptr %frame, i32 %kind, ptr %argument) nounwind")
    state = f.item("%self", _WORDS, "ptr")
    table, passed, every, until, *asked = (
        f.item(state, i, kind) for i, kind in enumerate(("ptr", "ptr", "i64", "i64", "ptr", "ptr"))
    )
    kind = f.convert("zext", "i32", "%kind", "i64")
    with f.when(f.compare("eq", "i64", every, 0)):
        calls = f.op("or", "i1", f.compare("eq", "i64", kind, _CALL), f.compare("eq", "i64", kind, _C_CALL))
        waits, place = f.compare("ne", "i64", until, 0), f.convert("ptrtoint", "ptr", "%frame", "i64")
        ends = f.op("and", "i1", f.compare("eq", "i64", kind, _RETURN), f.compare("eq", "i64", place, until))
        with f.when(f.compare("eq", "i1", f.select(waits, "i1", ends, calls), 0)):
            f.ret("i32", 0)
        is_asked = f.op("or", "i1", *(f.compare("eq", "ptr", "%argument", one) for one in asked))
        with f.when(f.compare("eq", "i1", f.op("or", "i1", is_asked, waits), 0)):
            _skip(f, table, passed, file_place)
    missing = f.compare("eq", "ptr", "%argument", "null")
    argument = f.select(missing, "ptr", native_call.none(f), "%argument")
    given = [f"ptr {v}" for v in ("%self", "%frame", f.item(state, f.add(kind, 6), "ptr"), argument, "null")]
    result = f.call("ptr (ptr, ...)", "@PyObject_CallFunctionObjArgs", *given)
    with f.when(f.compare("eq", "ptr", result, "null")):
        f.ret("i32", -1)
    f.call("void", "@Py_DecRef", f"ptr {result}")
    f.ret("i32", 0)
    return f


def _skip(f: Function, table: str, passed: str, file_place: int) -> None:
    """Return from the filter if the code of the frame is passed over, or the first around it that is not skipped as its caller is."""
    place = f.variable("ptr", "%frame")
    with f.forever() as over:
        frame = f.read("ptr", place)
        with f.when(f.compare("eq", "ptr", frame, "null")):
            f.go(over)
        code = f.call("ptr", "@PyFrame_GetCode", f"ptr {frame}")
        f.call("void", "@Py_DecRef", f"ptr {code}")
        number = f.convert("ptrtoint", "ptr", code, "i64")
        further = f.fresh("further")
        with _searched(f, table, number) as (word, _):
            with f.when(f.compare("eq", "i64", word, number)):
                f.ret("i32", 0)
            with f.when(f.compare("eq", "i64", word, f.add(number, 1))):
                f.go(further)
        if file_place:
            file = f.item(code, file_place)
            with _searched(f, table, file) as (word, _), f.when(f.compare("eq", "i64", word, file)):
                _pass(f, table, passed, code)
        f.go(over)
        f.label(further)
        back = f.call("ptr", "@PyFrame_GetBack", f"ptr {frame}")
        f.call("void", "@Py_DecRef", f"ptr {back}")  # it runs, so that the interpreter holds it
        f.write("ptr", back, place)


@contextlib.contextmanager
def _searched(f: Function, table: str, key: str) -> Iterator[tuple[str, str]]:
    """Run the body for each slot of the table in which a key may be: its word, and its address."""
    first = f.op("lshr", "i64", f.mul(key, _GOLDEN - (1 << 64)), 52)
    with f.loop(_PROBES) as i:
        slot = f.place(table, f.op("and", "i64", f.add(first, i), _SLOTS - 1))
        yield f.read("i64", slot), slot


def _pass(f: Function, table: str, passed: str, code: str) -> None:
    """Return from the filter after putting code into the table and into the list of code that was passed over, if there is room."""
    number = f.convert("ptrtoint", "ptr", code, "i64")
    with _searched(f, table, number) as (word, slot), f.when(f.compare("eq", "i64", word, 0)):
        f.write("i64", number, slot)
        f.ret("i32", f.call("i32", "@PyList_Append", f"ptr {passed}", f"ptr {code}"))
