"""Native functions as Python built-ins.

ctypes converts arguments through general machinery, which costs more than a small kernel. Here a few machine instructions per signature read
the arguments directly from Python's vector call and jump to the kernel: 0.05 us instead of 0.4. They use stable functions of CPython only
(PyLong_AsVoidPtr, PyFloat_AsDouble, ...); other interpreters go through ctypes.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

from ...kernels.llvm_text import Function

_FASTCALL = 0x0080  # METH_FASTCALL: f(self, argument array, count)
_INTEGERS = {"l": "i64", "L": "i64", "i": "i32", "I": "i32", "s": "i16", "S": "i16", "c": "i8", "B": "i8", "b": "i8"}


class _MethodDef(ctypes.Structure):
    """The C struct PyMethodDef."""

    _fields_ = [("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


# While this holds the address of a function, every call asks it first: f(kernel's address, argument array, count) is not zero where the
# kernel should not run. That is how a whole step is recorded, or only planned; in between it costs one load and one test.
recorder = ctypes.c_void_p()

_definitions: dict[int, _MethodDef] = {}
_new_builtin: Any = None


def supported() -> bool:
    return sys.implementation.name == "cpython" and hasattr(ctypes, "pythonapi")


def address(name: str) -> int:
    """Return the address of a function or an object of the interpreter."""
    found = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert found is not None
    return found


def builtin(entry: int, kernel: int | bytes) -> Any:
    """Return a built-in function that enters at the code `entry` and calls `kernel`, which it keeps as its `__self__`; other entries may
    expect bytes there that describe more."""
    global _new_builtin
    if _new_builtin is None:
        _new_builtin = ctypes.pythonapi.PyCFunction_NewEx
        _new_builtin.restype = ctypes.py_object
        _new_builtin.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    if entry not in _definitions:
        definition = _definitions[entry] = _MethodDef(b"kernel", entry, _FASTCALL, None)
        # A reference that is never released: built-ins read their definitions even when they are freed, and at the end of
        # the interpreter the table above may go before them.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(definition))
    return _new_builtin(ctypes.addressof(_definitions[entry]), kernel, None)


def entry(signature: str, brief: bool) -> Function:
    """Return the entry for kernels of this signature, one letter per parameter. Pointers are given as int, bytes (its contents) or None. A
    `brief` entry keeps the interpreter's lock: for kernels of a few microseconds."""
    f = Function("define ptr @enter(ptr %self, ptr %arguments, i64 %given) nounwind")
    check_count(f, len(signature))
    arguments = [_argument(f, letter, f.item("%arguments", i, "ptr")) for i, letter in enumerate(signature)]
    kernel = f.call("ptr", "@PyLong_AsVoidPtr", "ptr %self")
    with f.when(f.compare("ne", "ptr", f.call("ptr", "@PyErr_Occurred"), "null")):
        f.ret("ptr", "null")
    recorder = f.read("ptr", f.outside("flambeau_recorder"))
    with f.when(f.compare("ne", "ptr", recorder, "null")):
        skipped = f.call("i32", recorder, "ptr %self", "ptr %arguments", "i64 %given")
        with f.when(f.compare("ne", "i32", skipped, 0)):
            return_none(f)
    thread = "" if brief else f.call("ptr", "@PyEval_SaveThread")
    f.call("void", kernel, *arguments)
    if not brief:
        f.call("void", "@PyEval_RestoreThread", f"ptr {thread}")
    return_none(f)
    return f


def check_count(f: Function, count: int) -> None:
    """Emit code that raises TypeError unless `count` arguments are given."""
    with f.when(f.compare("ne", "i64", "%given", count)):
        kind, message = (
            f.read("ptr", f.outside("PyExc_TypeError")),
            f.letters("message", "wrong number of arguments of a kernel"),
        )
        f.call("void", "@PyErr_SetString", f"ptr {kind}", f"ptr {message}")
        f.ret("ptr", "null")


def none(f: Function) -> str:
    """Return the address of None."""
    return f.outside("_Py_NoneStruct")


def return_none(f: Function) -> None:
    f.call("void", "@Py_IncRef", f"ptr {none(f)}")
    f.ret("ptr", none(f))


def _argument(f: Function, letter: str, given: str) -> str:
    """Return an argument converted to the type of the parameter's letter, with that type."""
    if letter == "p":
        return f"ptr {f.call('ptr', _pointer(), f'ptr {given}')}"
    if letter in "df":
        value = f.call("double", "@PyFloat_AsDouble", f"ptr {given}")
        return f"double {value}" if letter == "d" else f"float {f.convert('fptrunc', 'double', value, 'float')}"
    reader = "@PyLong_AsUnsignedLongLongMask" if letter == "L" else "@PyLong_AsLongLong"
    value, kind = f.call("i64", reader, f"ptr {given}"), _INTEGERS[letter]
    return f"i64 {value}" if kind == "i64" else f"{kind} {f.convert('trunc', 'i64', value, kind)}"


@functools.cache
def _pointer() -> Function:
    """Return the function that finds the address in an int, of the contents of bytes, or null for None."""
    f = Function("define internal ptr @pointer(ptr %object) nounwind")
    with f.when(f.compare("eq", "ptr", "%object", none(f))):
        f.ret("ptr", "null")
    value = f.call("ptr", "@PyLong_AsVoidPtr", "ptr %object")
    with f.when(f.compare("ne", "ptr", value, "null")):
        f.ret("ptr", value)
    with f.when(f.compare("eq", "ptr", f.call("ptr", "@PyErr_Occurred"), "null")):
        f.ret("ptr", value)
    f.call("void", "@PyErr_Clear")
    f.ret("ptr", f.call("ptr", "@PyBytes_AsString", "ptr %object"))
    return f
