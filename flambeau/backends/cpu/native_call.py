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

_FASTCALL = 0x0080  # METH_FASTCALL: f(self, argument array, count)
_INTEGERS = {"l": "i64", "L": "i64", "i": "i32", "I": "i32", "s": "i16", "S": "i16", "c": "i8", "B": "i8", "b": "i8"}


class _MethodDef(ctypes.Structure):
    """PyMethodDef"""

    _fields_ = [("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


# While this holds the address of a function, every call tells it first: f(kernel's address, argument array, count). That is how
# a whole step is recorded; in between it costs one load and one test.
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
    reads: list[str] = []
    arguments: list[str] = []
    for i, letter in enumerate(signature):
        _read(letter, i, reads, arguments)
    call = f"  call void %kernel({', '.join(arguments)})"
    if not brief:
        call = f"  %thread = call ptr @PyEval_SaveThread()\n{call}\n  call void @PyEval_RestoreThread(ptr %thread)"
    return _MODULE.format(count=len(signature), reads="\n".join(reads), call=call)


def _read(letter: str, i: int, reads: list[str], arguments: list[str]) -> None:
    """Load argument number i and convert it to what the parameter's letter says."""
    reads.append(f"  %place{i} = getelementptr ptr, ptr %arguments, i64 {i}")
    reads.append(f"  %object{i} = load ptr, ptr %place{i}")
    if letter == "p":
        reads.append(f"  %value{i} = call ptr @pointer(ptr %object{i})")
        arguments.append(f"ptr %value{i}")
    elif letter in "df":
        reads.append(f"  %value{i} = call double @PyFloat_AsDouble(ptr %object{i})")
        if letter == "f":
            reads.append(f"  %single{i} = fptrunc double %value{i} to float")
        arguments.append(f"double %value{i}" if letter == "d" else f"float %single{i}")
    else:
        reader = "PyLong_AsUnsignedLongLongMask" if letter == "L" else "PyLong_AsLongLong"
        reads.append(f"  %value{i} = call i64 @{reader}(ptr %object{i})")
        kind = _INTEGERS[letter]
        if kind != "i64":
            reads.append(f"  %narrow{i} = trunc i64 %value{i} to {kind}")
        arguments.append(f"i64 %value{i}" if kind == "i64" else f"{kind} %narrow{i}")


_MODULE = """
declare ptr @PyLong_AsVoidPtr(ptr) #0
declare double @PyFloat_AsDouble(ptr) #0
declare i64 @PyLong_AsLongLong(ptr) #0
declare i64 @PyLong_AsUnsignedLongLongMask(ptr) #0
declare ptr @PyBytes_AsString(ptr) #0
declare ptr @PyErr_Occurred() #0
declare void @PyErr_Clear() #0
declare void @PyErr_SetString(ptr, ptr) #0
declare ptr @PyEval_SaveThread() #0
declare void @PyEval_RestoreThread(ptr) #0
declare void @Py_IncRef(ptr) #0
@_Py_NoneStruct = external global i8
@flambeau_recorder = external global ptr
@PyExc_TypeError = external global ptr
@message = private constant [38 x i8] c"wrong number of arguments of a kernel\\00"

define internal ptr @pointer(ptr %object) #1 {{
  %none = icmp eq ptr %object, @_Py_NoneStruct
  br i1 %none, label %null, label %read
null:
  ret ptr null
read:
  %value = call ptr @PyLong_AsVoidPtr(ptr %object)
  %zero = icmp eq ptr %value, null
  br i1 %zero, label %check, label %done
check:
  %error = call ptr @PyErr_Occurred()
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %done, label %contents
contents:
  call void @PyErr_Clear()
  %bytes = call ptr @PyBytes_AsString(ptr %object)
  ret ptr %bytes
done:
  ret ptr %value
}}

define ptr @enter(ptr %self, ptr %arguments, i64 %given) #1 {{
  %right = icmp eq i64 %given, {count}
  br i1 %right, label %read, label %wrong
wrong:
  %type = load ptr, ptr @PyExc_TypeError
  call void @PyErr_SetString(ptr %type, ptr @message)
  ret ptr null
read:
{reads}
  %kernel = call ptr @PyLong_AsVoidPtr(ptr %self)
  %error = call ptr @PyErr_Occurred()
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %run, label %failed
failed:
  ret ptr null
run:
  %recorder = load ptr, ptr @flambeau_recorder
  %recorded = icmp ne ptr %recorder, null
  br i1 %recorded, label %tell, label %go
tell:
  call void %recorder(ptr %self, ptr %arguments, i64 %given)
  br label %go
go:
{call}
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}}

attributes #0 = {{ nounwind nonlazybind }}
attributes #1 = {{ nounwind }}
!llvm.module.flags = !{{!0}}
!0 = !{{i32 7, !"RtLibUseGOT", i32 1}}
"""

__all__ = ["address", "builtin", "recorder", "supported", "text"]
