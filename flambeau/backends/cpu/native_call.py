"""Native functions as Python built-ins.

ctypes converts arguments through general machinery, which costs more than a small kernel. Here a few machine
instructions per signature read the arguments straight from Python's vector call and jump to the kernel: 0.05 us instead
of 0.4. They use stable functions of CPython only (PyLong_AsVoidPtr, PyFloat_AsDouble, ...); other interpreters go
through ctypes.
"""

from __future__ import annotations

import ctypes
import platform
from typing import Any

from .llvm_text import Function

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
    return platform.python_implementation() == "CPython" and hasattr(ctypes, "pythonapi")


def address(name: str) -> int:
    """The address of a function or an object of the interpreter."""
    found = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert found is not None
    return found


def builtin(entry: int, kernel: int | bytes) -> Any:
    """A built-in that enters at `entry` (code from `text`) and calls `kernel`, which it keeps as its `__self__`; other entries may
    want to find bytes there that say more."""
    global _new_builtin
    if _new_builtin is None:
        _new_builtin = ctypes.pythonapi.PyCFunction_NewEx
        _new_builtin.restype = ctypes.py_object
        _new_builtin.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
    if entry not in _definitions:
        definition = _definitions[entry] = _MethodDef(b"kernel", entry, _FASTCALL, None)
        # A reference that nobody gives back: built-ins read their definitions even when they are freed, and at the end of
        # the interpreter the table above may go before them.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(definition))
    return _new_builtin(ctypes.addressof(_definitions[entry]), kernel, None)


def text(signature: str, brief: bool) -> str:
    """The LLVM module of the entry for kernels of this signature, one letter per parameter. Pointers are given as int,
    bytes (its contents) or None. A `brief` entry keeps the interpreter's lock: for kernels of a few microseconds."""
    f = Function("define ptr @enter(ptr %self, ptr %arguments, i64 %given) #1")
    check_count(f, len(signature))
    arguments = [_argument(f, letter, f.item("%arguments", i, "ptr")) for i, letter in enumerate(signature)]
    kernel = f.call("ptr", "@PyLong_AsVoidPtr", "ptr %self")
    with f.when(f.compare("ne", "ptr", f.call("ptr", "@PyErr_Occurred"), "null")):
        f.ret("ptr", "null")
    recorder = f.read("ptr", "@flambeau_recorder")
    with f.when(f.compare("ne", "ptr", recorder, "null")):
        skipped = f.call("i32", recorder, "ptr %self", "ptr %arguments", "i64 %given")
        with f.when(f.compare("ne", "i32", skipped, 0)):
            return_none(f)
    thread = "" if brief else f.call("ptr", "@PyEval_SaveThread")
    f.call("void", kernel, *arguments)
    if not brief:
        f.call("void", "@PyEval_RestoreThread", f"ptr {thread}")
    return_none(f)
    return module(_DECLARED, "@flambeau_recorder = external global ptr", _pointer().text(), f.text())


def check_count(f: Function, count: int) -> None:
    """Raise TypeError unless as many arguments are given."""
    with f.when(f.compare("ne", "i64", "%given", count)):
        f.call("void", "@PyErr_SetString", f"ptr {f.read('ptr', '@PyExc_TypeError')}", "ptr @message")
        f.ret("ptr", "null")


def return_none(f: Function) -> None:
    f.call("void", "@Py_IncRef", "ptr @_Py_NoneStruct")
    f.ret("ptr", "@_Py_NoneStruct")


def _argument(f: Function, letter: str, given: str) -> str:
    """An argument converted to what the parameter's letter says, with its type."""
    if letter == "p":
        return f"ptr {f.call('ptr', '@pointer', f'ptr {given}')}"
    if letter in "df":
        value = f.call("double", "@PyFloat_AsDouble", f"ptr {given}")
        return f"double {value}" if letter == "d" else f"float {f.new(f'fptrunc double {value} to float')}"
    reader = "@PyLong_AsUnsignedLongLongMask" if letter == "L" else "@PyLong_AsLongLong"
    value, kind = f.call("i64", reader, f"ptr {given}"), _INTEGERS[letter]
    return f"i64 {value}" if kind == "i64" else f"{kind} {f.new(f'trunc i64 {value} to {kind}')}"


def _pointer() -> Function:
    """The address that an int, the contents of bytes, or None stand for."""
    f = Function("define internal ptr @pointer(ptr %object) #1")
    with f.when(f.compare("eq", "ptr", "%object", "@_Py_NoneStruct")):
        f.ret("ptr", "null")
    value = f.call("ptr", "@PyLong_AsVoidPtr", "ptr %object")
    with f.when(f.compare("ne", "ptr", value, "null")):
        f.ret("ptr", value)
    with f.when(f.compare("eq", "ptr", f.call("ptr", "@PyErr_Occurred"), "null")):
        f.ret("ptr", value)
    f.call("void", "@PyErr_Clear")
    f.ret("ptr", f.call("ptr", "@PyBytes_AsString", "ptr %object"))
    return f


def module(declared: str, *parts: str) -> str:
    """An LLVM module of functions that call Python's C interface; `declared` are functions like "ptr @PyErr_Occurred()", one a line."""
    head = [f"declare {line} #0" for line in declared.split("\n") if line]
    return "\n".join([*head, _FRAME, *parts])


_DECLARED = """
ptr @PyLong_AsVoidPtr(ptr)
double @PyFloat_AsDouble(ptr)
i64 @PyLong_AsLongLong(ptr)
i64 @PyLong_AsUnsignedLongLongMask(ptr)
ptr @PyBytes_AsString(ptr)
ptr @PyErr_Occurred()
void @PyErr_Clear()
void @PyErr_SetString(ptr, ptr)
ptr @PyEval_SaveThread()
void @PyEval_RestoreThread(ptr)
void @Py_IncRef(ptr)
"""
_FRAME = """
@_Py_NoneStruct = external global i8
@PyExc_TypeError = external global ptr
@message = private constant [38 x i8] c"wrong number of arguments of a kernel\\00"
attributes #0 = { nounwind nonlazybind }
attributes #1 = { nounwind }
!llvm.module.flags = !{!0}
!0 = !{i32 7, !"RtLibUseGOT", i32 1}
"""

__all__ = ["address", "builtin", "check_count", "module", "recorder", "return_none", "supported", "text"]
