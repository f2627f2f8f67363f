"""Launching a kernel: arguments from Python to the driver in one step.

A few machine instructions per signature (made like those of backends.cpu.native_call) read the arguments of a Python call, make
the device's context current if it is not, and call cuLaunchKernel on the thread's stream. Where no machine code can be made,
ctypes does the same, more slowly."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any

from ..cpu import jit, native_call
from . import driver, threads

Kinds = tuple  # per parameter: "q" a 64-bit number or address, "d" double, "f" float, "i" int32, or N bytes by value

_LETTERS: dict[str, Any] = {"q": ctypes.c_uint64, "d": ctypes.c_double, "f": ctypes.c_float, "i": ctypes.c_int32}


_WORDS = 14  # of a descriptor, before the values that are fixed


def describe(
    function: int, index: int, shared: int, grid: Any = 0, block: Any = 0, kinds: Kinds = (), values: tuple = ()
) -> bytes:
    """What machine code needs to know of a kernel: handles, its device, and where they are fixed the sizes and first arguments.
    Each fixed argument is found by a distance from the start."""
    functions = driver.functions()
    words = [
        function, _address(functions.cuLaunchKernel), _address(functions.cuCtxSetCurrent), driver.context(index), index, shared,
        id(driver.CudaError), threads.key(), *three(grid), *three(block),
    ]  # fmt: skip
    parts, distances = [], []
    at = 8 * (_WORDS + len(kinds))
    for kind, value in zip(kinds, values, strict=True):
        data = bytes(_LETTERS[kind](value or 0)) if isinstance(kind, str) else value
        if isinstance(kind, int) and len(data) != kind:
            raise TypeError(f"a kernel takes {kind} bytes by value, not {len(data)}")
        distances.append(at)
        parts.append(data.ljust(-(-len(data) // 8) * 8, b"\0"))
        at += len(parts[-1])
    return struct.pack(f"<{_WORDS + len(kinds)}Q", *words, *distances) + b"".join(parts)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _is_native() -> bool:
    """Whether machine code can be made to launch with."""
    return (
        not driver.BLOCKING
        and native_call.supported()
        and jit.available()
        and isinstance(driver.functions(), driver.Functions)
    )


def launcher(function: int, kinds: Kinds, index: int, shared: int = 0) -> Callable:
    """f(grid, block, *values), which starts a kernel on the thread's stream; grid and block are numbers or (x, y, z)."""
    if not _is_native():
        return _through_ctypes(function, kinds, index, shared)
    return native_call.builtin(_entry(_letters(kinds), -1), describe(function, index, shared))


def fixed_launcher(
    function: int, kinds: Kinds, index: int, shared: int, grid: Any, block: Any, first: tuple
) -> Callable:
    """f(_, *values) for a kernel whose grid, block and first arguments are always the same. The first argument of the call is not
    looked at: plans have one that stands for all of these."""
    if not _is_native():
        run = _through_ctypes(function, kinds, index, shared)
        return lambda _, *values: run(grid, block, *first, *values)
    fixed = len(first)
    described = describe(function, index, shared, grid, block, kinds[:fixed], first)
    return native_call.builtin(_entry(_letters(kinds[fixed:]), fixed), described)


def _letters(kinds: Kinds) -> str:
    return "".join(k if isinstance(k, str) else "s" for k in kinds)


def three(size: int | tuple[int, ...]) -> tuple[int, int, int]:
    """Sizes of a grid or a block as three numbers."""
    if isinstance(size, int):
        return size, 1, 1
    return (*size, 1, 1)[:3]  # type: ignore[return-value]


def pack(kinds: Kinds, values: tuple) -> tuple[Any, list[Any]]:
    """The driver's array of pointers to arguments, and what they point to."""
    if len(kinds) != len(values):
        raise TypeError(f"wrong number of arguments of a kernel: {len(values)} for {len(kinds)}")
    held: list[Any] = []
    for kind, value in zip(kinds, values):
        if isinstance(kind, int):
            if len(value) != kind:
                raise TypeError(f"a kernel takes {kind} bytes by value, not {len(value)}")
            held.append(ctypes.create_string_buffer(value, kind))
        else:
            held.append(_LETTERS[kind](value or 0))
    return (ctypes.c_void_p * max(1, len(held)))(*(ctypes.addressof(h) for h in held)), held


def _through_ctypes(function: int, kinds: Kinds, index: int, shared: int) -> Callable:
    def launch(grid: Any, block: Any, *values: Any) -> None:
        pointers, held = pack(kinds, values)
        stream = threads.activate(index)
        driver.call("cuLaunchKernel", function, *three(grid), *three(block), shared, stream, pointers, None)
        del held
        if driver.BLOCKING and not driver.number("cuStreamIsCapturing", stream, kind=ctypes.c_int):
            driver.call("cuStreamSynchronize", stream)

    return launch


@functools.cache
def _entry(letters: str, fixed: int) -> int:
    """Machine code that launches kernels with such parameters."""
    return jit.support_code(entry_text(letters, fixed), "enter", straight=True)


_SLOT = {"q": "i64", "d": "double", "f": "float", "i": "i32", "s": "ptr"}


def entry_text(letters: str, fixed: int) -> str:
    """The LLVM module of that code; `letters` has an "s" for what is passed as bytes. `fixed` arguments, and the sizes, come from
    the descriptor; -1: the sizes come with the call."""
    given = 2 if fixed < 0 else 1  # arguments of the call before the kernel's
    before = max(fixed, 0)
    lines: list[str] = []
    for j in range(before):
        lines += [
            f"  %far{j}.at = getelementptr i64, ptr %described, i64 {_WORDS + j}",
            f"  %far{j} = load i64, ptr %far{j}.at",
            f"  %fixed{j} = getelementptr i8, ptr %described, i64 %far{j}",
            f"  %fixed{j}.slot = getelementptr ptr, ptr %pointers, i64 {j}",
            f"  store ptr %fixed{j}, ptr %fixed{j}.slot",
        ]
    for i, letter in enumerate(letters):
        lines.append(f"  %place{i} = getelementptr ptr, ptr %arguments, i64 {i + given}")
        lines.append(f"  %object{i} = load ptr, ptr %place{i}")
        lines.append(f"  %slot{i} = getelementptr ptr, ptr %pointers, i64 {i + before}")
        if letter == "s":
            lines.append(f"  %held{i} = call ptr @PyBytes_AsString(ptr %object{i})")
        else:
            lines += _read(letter, i)
        lines.append(f"  store ptr %held{i}, ptr %slot{i}")
    rooms = [f"  %held{i} = alloca {_SLOT[k]}" for i, k in enumerate(letters) if k != "s"]
    return _MODULE.format(
        count=len(letters) + given,
        rooms="\n".join(rooms),
        pointers=max(1, len(letters) + before),
        reads="\n".join(lines),
        words=threads.WORDS,
        sizes=_GIVEN_SIZES if fixed < 0 else _FIXED_SIZES,
    )


def _read(letter: str, i: int) -> list[str]:
    if letter == "q":
        return [f"  %v{i} = call i64 @whole(ptr %object{i})", f"  store i64 %v{i}, ptr %held{i}"]
    if letter == "i":
        return [
            f"  %w{i} = call i64 @whole(ptr %object{i})",
            f"  %v{i} = trunc i64 %w{i} to i32",
            f"  store i32 %v{i}, ptr %held{i}",
        ]
    lines = [f"  %w{i} = call double @PyFloat_AsDouble(ptr %object{i})"]
    if letter == "d":
        return [*lines, f"  store double %w{i}, ptr %held{i}"]
    return [*lines, f"  %v{i} = fptrunc double %w{i} to float", f"  store float %v{i}, ptr %held{i}"]


_GIVEN_SIZES = """  %grid.object = load ptr, ptr %arguments
  %block.place = getelementptr ptr, ptr %arguments, i64 1
  %block.object = load ptr, ptr %block.place
  call void @sizes(ptr %grid.object, ptr %grid)
  call void @sizes(ptr %block.object, ptr %block)"""
_FIXED_SIZES = "\n".join(
    f"""  %{name}{k}.from = getelementptr i64, ptr %described, i64 {start + k}
  %{name}{k}.long = load i64, ptr %{name}{k}.from
  %{name}{k}.value = trunc i64 %{name}{k}.long to i32
  %{name}{k}.to = getelementptr i32, ptr %{name}, i64 {k}
  store i32 %{name}{k}.value, ptr %{name}{k}.to"""
    for name, start in (("grid", 8), ("block", 11))
    for k in range(3)
)

# @whole: an int (any 64 bits of it) or None. @sizes: an int, or a tuple of up to three. @prepare: the thread's state with the
# device's context current, null if that fails.
_MODULE = """
declare i64 @PyLong_AsUnsignedLongLongMask(ptr) #0
declare i64 @PyLong_AsLongLong(ptr) #0
declare double @PyFloat_AsDouble(ptr) #0
declare ptr @PyBytes_AsString(ptr) #0
declare ptr @PyErr_Occurred() #0
declare void @PyErr_Clear() #0
declare void @PyErr_SetString(ptr, ptr) #0
declare void @PyErr_SetObject(ptr, ptr) #0
declare ptr @PyLong_FromLong(i64) #0
declare i64 @PyTuple_Size(ptr) #0
declare ptr @PyTuple_GetItem(ptr, i64) #0
declare void @Py_IncRef(ptr) #0
declare void @Py_DecRef(ptr) #0
declare ptr @pthread_getspecific(i32) #0
declare i32 @pthread_setspecific(i32, ptr) #0
declare ptr @calloc(i64, i64) #0
@_Py_NoneStruct = external global i8
@PyExc_TypeError = external global ptr
@message = private constant [38 x i8] c"wrong number of arguments of a kernel\\00"

define internal i64 @whole(ptr %object) #1 {{
  %none = icmp eq ptr %object, @_Py_NoneStruct
  br i1 %none, label %null, label %read
null:
  ret i64 0
read:
  %value = call i64 @PyLong_AsUnsignedLongLongMask(ptr %object)
  ret i64 %value
}}

define internal void @sizes(ptr %object, ptr %out) #1 {{
  %y = getelementptr i32, ptr %out, i64 1
  %z = getelementptr i32, ptr %out, i64 2
  store i32 1, ptr %y
  store i32 1, ptr %z
  %value = call i64 @PyLong_AsLongLong(ptr %object)
  %narrow = trunc i64 %value to i32
  store i32 %narrow, ptr %out
  %odd = icmp eq i64 %value, -1
  br i1 %odd, label %check, label %done
check:
  %error = call ptr @PyErr_Occurred()
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %done, label %tuple
tuple:
  call void @PyErr_Clear()
  %count = call i64 @PyTuple_Size(ptr %object)
  br label %loop
loop:
  %i = phi i64 [ 0, %tuple ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  %room = icmp slt i64 %i, 3
  %go = and i1 %more, %room
  br i1 %go, label %body, label %done
body:
  %item = call ptr @PyTuple_GetItem(ptr %object, i64 %i)
  %long = call i64 @PyLong_AsLongLong(ptr %item)
  %short = trunc i64 %long to i32
  %at = getelementptr i32, ptr %out, i64 %i
  store i32 %short, ptr %at
  %next = add i64 %i, 1
  br label %loop
done:
  ret void
}}

define internal ptr @prepare(ptr %described, ptr %known, i32 %key) #1 {{
  %missing = icmp eq ptr %known, null
  br i1 %missing, label %make, label %set
make:
  %fresh = call ptr @calloc(i64 {words}, i64 8)
  %kept = call i32 @pthread_setspecific(i32 %key, ptr %fresh)
  br label %set
set:
  %state = phi ptr [ %known, %0 ], [ %fresh, %make ]
  %setter.at = getelementptr i64, ptr %described, i64 2
  %setter = load ptr, ptr %setter.at
  %context.at = getelementptr i64, ptr %described, i64 3
  %context = load ptr, ptr %context.at
  %status = call i32 %setter(ptr %context)
  %right = icmp eq i32 %status, 0
  br i1 %right, label %good, label %bad
good:
  %device.at = getelementptr i64, ptr %described, i64 4
  %device = load i64, ptr %device.at
  %one = add i64 %device, 1
  store i64 %one, ptr %state
  ret ptr %state
bad:
  ret ptr null
}}

define ptr @enter(ptr %self, ptr %arguments, i64 %given) #1 {{
  %pointers = alloca [{pointers} x ptr]
  %grid = alloca [3 x i32]
  %block = alloca [3 x i32]
{rooms}
  %right = icmp eq i64 %given, {count}
  br i1 %right, label %read, label %wrong
wrong:
  %type = load ptr, ptr @PyExc_TypeError
  call void @PyErr_SetString(ptr %type, ptr @message)
  ret ptr null
read:
  %described = call ptr @PyBytes_AsString(ptr %self)
{sizes}
{reads}
  %error = call ptr @PyErr_Occurred()
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %look, label %failed
failed:
  ret ptr null
look:
  %key.at = getelementptr i64, ptr %described, i64 7
  %key.long = load i64, ptr %key.at
  %key = trunc i64 %key.long to i32
  %known = call ptr @pthread_getspecific(i32 %key)
  %device.at = getelementptr i64, ptr %described, i64 4
  %device = load i64, ptr %device.at
  %unknown = icmp eq ptr %known, null
  br i1 %unknown, label %prepare, label %compare
compare:
  %current = load i64, ptr %known
  %wanted = add i64 %device, 1
  %same = icmp eq i64 %current, %wanted
  br i1 %same, label %run, label %prepare
prepare:
  %made = call ptr @prepare(ptr %described, ptr %known, i32 %key)
  %lost = icmp eq ptr %made, null
  br i1 %lost, label %refused, label %run
run:
  %state = phi ptr [ %known, %compare ], [ %made, %prepare ]
  %stream.index = add i64 %device, 2
  %stream.at = getelementptr i64, ptr %state, i64 %stream.index
  %stream = load i64, ptr %stream.at
  %function = load ptr, ptr %described
  %launch.at = getelementptr i64, ptr %described, i64 1
  %launch = load ptr, ptr %launch.at
  %shared.at = getelementptr i64, ptr %described, i64 5
  %shared.long = load i64, ptr %shared.at
  %shared = trunc i64 %shared.long to i32
  %gx = load i32, ptr %grid
  %gy.at = getelementptr i32, ptr %grid, i64 1
  %gy = load i32, ptr %gy.at
  %gz.at = getelementptr i32, ptr %grid, i64 2
  %gz = load i32, ptr %gz.at
  %bx = load i32, ptr %block
  %by.at = getelementptr i32, ptr %block, i64 1
  %by = load i32, ptr %by.at
  %bz.at = getelementptr i32, ptr %block, i64 2
  %bz = load i32, ptr %bz.at
  %result = call i32 %launch(ptr %function, i32 %gx, i32 %gy, i32 %gz, i32 %bx, i32 %by, i32 %bz, i32 %shared, i64 %stream, ptr %pointers, ptr null)
  %launched = icmp eq i32 %result, 0
  br i1 %launched, label %done, label %refused
refused:
  %status = phi i32 [ 201, %prepare ], [ %result, %run ]
  %wide = sext i32 %status to i64
  %number = call ptr @PyLong_FromLong(i64 %wide)
  %error.at = getelementptr i64, ptr %described, i64 6
  %exception = load ptr, ptr %error.at
  call void @PyErr_SetObject(ptr %exception, ptr %number)
  call void @Py_DecRef(ptr %number)
  ret ptr null
done:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}}

attributes #0 = {{ nounwind nonlazybind }}
attributes #1 = {{ nounwind }}
!llvm.module.flags = !{{!0}}
!0 = !{{i32 7, !"RtLibUseGOT", i32 1}}
"""
