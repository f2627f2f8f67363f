"""Kernel launches: arguments passed from Python to the driver in one step.

A few machine instructions per signature (made like those of backends.cpu.native_call) read the arguments of a Python call, make
the device's context current if it is not, and call cuLaunchKernel on the thread's stream. Where no machine code can be made,
ctypes does the same, more slowly."""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import Any, TypeAlias

from ...core.aliases import AnyFunction, Values
from ...kernels.llvm_text import Function
from ..cpu import jit, native_call
from . import driver, threads

# Per parameter: "q" a 64-bit number or address, "d" double, "f" float, "i" int32, or N bytes by value.
Kinds: TypeAlias = tuple[Any, ...]

_LETTERS: dict[str, Any] = {"q": ctypes.c_uint64, "d": ctypes.c_double, "f": ctypes.c_float, "i": ctypes.c_int32}
# The words of a descriptor (the first one is the kernel), and how many there are before the values that are fixed.
_LAUNCH, _SETTER, _CONTEXT, _DEVICE, _SHARED, _ERROR, _KEY, _GRID = range(1, 9)
_WORDS = _GRID + 6
_INVALID_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT


def describe(
    function: int, index: int, shared: int, grid: Any = 0, block: Any = 0, kinds: Kinds = (), values: Values = ()
) -> bytes:
    """Describe a kernel for machine code: handles, its device, and, if they are fixed, the sizes and first arguments, each found by its
    distance from the start."""
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
    """Return whether launches can be done by machine code."""
    return (
        not driver.BLOCKING
        and native_call.supported()
        and jit.available()
        and isinstance(driver.functions(), driver.Functions)
    )


def launcher(function: int, kinds: Kinds, index: int, shared: int = 0) -> AnyFunction:
    """Return f(grid, block, *values), which starts a kernel on the thread's stream; grid and block are numbers or (x, y, z)."""
    if not _is_native():
        return _through_ctypes(function, kinds, index, shared)
    return native_call.builtin(_entry(_letters(kinds), -1), describe(function, index, shared))


def fixed_launcher(
    function: int, kinds: Kinds, index: int, shared: int, grid: Any, block: Any, first: Values
) -> AnyFunction:
    """Return f(_, *values) for a kernel whose grid, block and first arguments are always the same. The first argument of the call is ignored:
    plans pass one that stands for all of these."""
    if not _is_native():
        run = _through_ctypes(function, kinds, index, shared)
        return lambda _, *values: run(grid, block, *first, *values)
    fixed = len(first)
    described = describe(function, index, shared, grid, block, kinds[:fixed], first)
    return native_call.builtin(_entry(_letters(kinds[fixed:]), fixed), described)


def _letters(kinds: Kinds) -> str:
    return "".join(k if isinstance(k, str) else "s" for k in kinds)


def three(size: int | tuple[int, ...]) -> tuple[int, int, int]:
    """Return the sizes of a grid or a block as three numbers."""
    if isinstance(size, int):
        return size, 1, 1
    x, y, z = (*size, 1, 1)[:3]
    return x, y, z


def pack(kinds: Kinds, values: Values) -> tuple[Any, list[Any]]:
    """Return the driver's array of pointers to arguments, and the objects they point to."""
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


def _through_ctypes(function: int, kinds: Kinds, index: int, shared: int) -> AnyFunction:
    def launch(grid: Any, block: Any, *values: Any) -> None:
        pointers, held = pack(kinds, values)
        stream = threads.activate(index)
        driver.call("cuLaunchKernel", function, *three(grid), *three(block), shared, stream, pointers, None)
        del held
        if driver.BLOCKING and not driver.is_recorded(stream):
            driver.call("cuStreamSynchronize", stream)

    return launch


@functools.cache
def _entry(letters: str, fixed: int) -> int:
    """Return the address of machine code that launches kernels with such parameters."""
    return jit.support_code(entry(letters, fixed), straight=True)


def entry(letters: str, fixed: int) -> Function:
    """Return the function that launches kernels; `letters` has an "s" for arguments passed as bytes. `fixed` arguments, and the sizes, come
    from the descriptor; -1: the sizes come with the call."""
    given = 2 if fixed < 0 else 1  # arguments of the call before the kernel's
    f = Function("define ptr @enter(ptr %self, ptr %arguments, i64 %given) nounwind")
    pointers = f.slot(f"[{max(1, len(letters) + max(fixed, 0))} x ptr]")
    sizes = f.slot("[6 x i32]")  # grid, block
    native_call.check_count(f, len(letters) + given)
    described = f.call("ptr", "@PyBytes_AsString", "ptr %self")
    if fixed < 0:
        for k in range(2):
            f.call("void", _sizes(), f"ptr {f.item('%arguments', k, 'ptr')}", f"ptr {f.place(sizes, 3 * k, 'i32')}")
    else:
        for k in range(6):
            f.write("i32", f.item(described, _GRID + k, "i32"), f.place(sizes, k, "i32"))
    for j in range(max(fixed, 0)):
        held = f.place(described, f.item(described, _WORDS + j), "i8")
        f.write("ptr", held, f.place(pointers, j, "ptr"))
    for i, letter in enumerate(letters):
        held = _held(f, letter, f.item("%arguments", i + given, "ptr"))
        f.write("ptr", held, f.place(pointers, i + max(fixed, 0), "ptr"))
    with f.when(f.compare("ne", "ptr", f.call("ptr", "@PyErr_Occurred"), "null")):
        f.ret("ptr", "null")
    _launched(f, described, sizes, pointers)
    return f


def _held(f: Function, letter: str, given: str) -> str:
    """Return the address of an argument's bytes."""
    if letter == "s":
        return f.call("ptr", "@PyBytes_AsString", f"ptr {given}")
    kind = {"q": "i64", "d": "double", "f": "float", "i": "i32"}[letter]
    room = f.slot(kind, 8)
    if letter in "qi":
        value = f.call("i64", _whole(), f"ptr {given}")
        value = value if letter == "q" else f.new(f"trunc i64 {value} to i32")
    else:
        value = f.call("double", "@PyFloat_AsDouble", f"ptr {given}")
        value = value if letter == "d" else f.new(f"fptrunc double {value} to float")
    f.write(kind, value, room)
    return room


def _launched(f: Function, described: str, sizes: str, pointers: str) -> None:
    """Emit a launch on the thread's current stream, with the device's context current; it returns None, or raises the error."""
    key, device = f.item(described, _KEY, "i32"), f.item(described, _DEVICE)
    state = f.slot("ptr", 8)
    known = f.call("ptr", "@pthread_getspecific", f"i32 {key}")
    f.write("ptr", known, state)
    current = f.slot("i1", 8)
    f.write("i1", "false", current)
    with f.when(f.compare("ne", "ptr", known, "null")):
        f.write("i1", f.compare("eq", "i64", f.read("i64", known), f.add(device, 1)), current)
    with f.when(f.compare("eq", "i1", f.read("i1", current), "false")):
        made = f.call("ptr", _prepare(), f"ptr {described}", f"ptr {known}", f"i32 {key}")
        with f.when(f.compare("eq", "ptr", made, "null")):
            f.ret("ptr", f.call("ptr", _refuse(), f"ptr {described}", f"i32 {_INVALID_CONTEXT}"))
        f.write("ptr", made, state)
    stream = f.item(f.read("ptr", state), f.add(device, 2))
    function, launch, shared = (
        f.item(described, 0, "ptr"),
        f.item(described, _LAUNCH, "ptr"),
        f.item(described, _SHARED, "i32"),
    )
    across = [f"i32 {f.read('i32', f.place(sizes, k, 'i32'))}" for k in range(6)]
    result = f.call(
        "i32", launch, f"ptr {function}", *across, f"i32 {shared}", f"i64 {stream}", f"ptr {pointers}", "ptr null"
    )
    with f.when(f.compare("ne", "i32", result, 0)):
        f.ret("ptr", f.call("ptr", _refuse(), f"ptr {described}", f"i32 {result}"))
    native_call.return_none(f)


@functools.cache
def _whole() -> Function:
    """Return the function that converts an int (any 64 bits of it), or None to 0."""
    f = Function("define internal i64 @whole(ptr %object) nounwind")
    with f.when(f.compare("eq", "ptr", "%object", native_call.none(f))):
        f.ret("i64", 0)
    f.ret("i64", f.call("i64", "@PyLong_AsUnsignedLongLongMask", "ptr %object"))
    return f


@functools.cache
def _sizes() -> Function:
    """Return the function that reads three sizes from an int, or a tuple of up to three."""
    f = Function("define internal void @sizes(ptr %object, ptr %out) nounwind")
    value = f.call("i64", "@PyLong_AsLongLong", "ptr %object")
    f.write("i32", f.new(f"trunc i64 {value} to i32"), "%out")
    for k in (1, 2):
        f.write("i32", 1, f.place("%out", k, "i32"))
    with f.when(f.compare("ne", "i64", value, -1)):
        f.ret()
    with f.when(f.compare("eq", "ptr", f.call("ptr", "@PyErr_Occurred"), "null")):
        f.ret()
    f.call("void", "@PyErr_Clear")
    count = f.call("i64", "@PyTuple_Size", "ptr %object")
    few = f.compare("slt", "i64", count, 3)
    with f.loop(f.new(f"select i1 {few}, i64 {count}, i64 3")) as i:
        item = f.call("ptr", "@PyTuple_GetItem", "ptr %object", f"i64 {i}")
        long = f.call("i64", "@PyLong_AsLongLong", f"ptr {item}")
        f.write("i32", f.new(f"trunc i64 {long} to i32"), f.place("%out", i, "i32"))
    return f


@functools.cache
def _prepare() -> Function:
    """Return the function that finds the thread's state and makes the device's context current; null if that fails."""
    f = Function("define internal ptr @prepare(ptr %described, ptr %known, i32 %key) nounwind")
    state = f.slot("ptr", 8)
    f.write("ptr", "%known", state)
    with f.when(f.compare("eq", "ptr", "%known", "null")):
        fresh = f.call("ptr", "@calloc", f"i64 {threads.WORDS}", "i64 8")
        f.call("i32", "@pthread_setspecific", "i32 %key", f"ptr {fresh}")
        f.write("ptr", fresh, state)
    setter, context = f.item("%described", _SETTER, "ptr"), f.item("%described", _CONTEXT, "ptr")
    with f.when(f.compare("ne", "i32", f.call("i32", setter, f"ptr {context}"), 0)):
        f.ret("ptr", "null")
    found = f.read("ptr", state)
    f.write("i64", f.add(f.item("%described", _DEVICE), 1), found)
    f.ret("ptr", found)
    return f


@functools.cache
def _refuse() -> Function:
    """Return the function that raises the descriptor's exception with a status of the driver."""
    f = Function("define internal ptr @refuse(ptr %described, i32 %status) nounwind")
    number = f.call("ptr", "@PyLong_FromLong", f"i64 {f.new('sext i32 %status to i64')}")
    f.call("void", "@PyErr_SetObject", f"ptr {f.item('%described', _ERROR, 'ptr')}", f"ptr {number}")
    f.call("void", "@Py_DecRef", f"ptr {number}")
    f.ret("ptr", "null")
    return f
