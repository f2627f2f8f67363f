"""A whole plan as one native call: pass the pointers, run the primitives.

Through ctypes each of these steps costs more than oneDNN needs for a small product. The function below does them all; it reads the plan from
a table of 64-bit words:

    0 set_data_handle  1 execute  2 stream  3 status (written)  4 number of memories  5 number of primitives
    6 whether signals wait until the primitives have run (see `signals.py`)
    then the memories, then (primitive, argument count, argument array) for each primitive
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from flambeau.backends.cpu import jit, native_call, signals
from flambeau.backends.cpu.onednn import library as dnnl
from flambeau.kernels.llvm_text import Function

POINTERS = 7  # more than the tensors of any plan of an eager call: what follows takes some, too
STATUS, HIDES = 3, 6


@functools.cache
def runner(brief: bool) -> Any:
    """Return run(table address, pointer, ...) with POINTERS pointers, or None if nothing can be compiled."""
    if not native_call.supported() or not jit.available():
        return None
    return jit.support_function(_run, signature="p" * (1 + POINTERS), brief=brief)


def table(memories: Sequence[int], steps: Sequence[tuple[int, int, int]], hides: bool) -> Any:
    """Return the table that the runner reads, as a ctypes array."""
    words = [*_addresses(), dnnl.library().stream, 0, len(memories), len(steps), hides, *memories]
    for step in steps:
        words += step
    return dnnl.words(len(words))(*words)


@functools.cache
def _addresses() -> list[int]:
    lib = dnnl.library()
    functions: Any = (lib.set_data_handle, lib.execute_holding)
    return [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions]


def _run() -> Function:
    f = Function(f"define void @run(ptr %table, {', '.join(f'ptr %p{i}' for i in range(POINTERS))})")
    pointers = f.slot(f"[{POINTERS} x ptr]")
    for i in range(POINTERS):
        f.write("ptr", f"%p{i}", f.place(pointers, i, "ptr"))
    set_handle, execute, stream = (f.item("%table", i, "ptr") for i in range(3))
    count, steps = f.item("%table", 4), f.item("%table", 5)
    hide = f.compare("ne", "i64", f.item("%table", HIDES), 0)
    memories = f.place("%table", 7)
    with f.loop(count) as m:
        pointer = f.read("ptr", f.place(pointers, m, "ptr"))
        result = f.call("i32", set_handle, f"ptr {f.item(memories, m, 'ptr')}", f"ptr {pointer}")
        with f.when(f.compare("ne", "i32", result, 0)):
            f.write("i64", f.new(f"zext i32 {result} to i64"), f.place("%table", STATUS))
            f.ret()
    with f.when(hide):
        before = signals.hide(f)
    first = f.place(memories, count)
    with f.loop(steps) as k:
        step = f.place(first, f.mul(k, 3))
        primitive, number, arguments = f.item(step, 0, "ptr"), f.item(step, 1, "i32"), f.item(step, 2, "ptr")
        result = f.call("i32", execute, f"ptr {primitive}", f"ptr {stream}", f"i32 {number}", f"ptr {arguments}")
        failed = f.compare("ne", "i32", result, 0)
        with f.when(failed):
            f.write("i64", f.new(f"zext i32 {result} to i64"), f.place("%table", STATUS))
        k.step = f.new(f"select i1 {failed}, i64 {steps}, i64 1")  # the first failure ends it
    with f.when(hide):
        signals.show(f, before)
    return f
