"""A whole plan as one native call: hand over the pointers, run the primitives.

Through ctypes each of these steps costs more than oneDNN needs for a small product. The function below does them all; what
it needs to know of a plan lies in a table of 64-bit words:

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

POINTERS = 7  # more than the tensors of any plan of an eager call: what follows takes some, too
STATUS, HIDES = 3, 6


@functools.cache
def runner(brief: bool) -> Any:
    """run(table address, pointer, ...) with POINTERS pointers, or None where nothing can be compiled."""
    if not native_call.supported() or not jit.available():
        return None
    return jit.support_function(_TEXT, "run", "p" * (1 + POINTERS), brief)


def table(memories: Sequence[int], steps: Sequence[tuple[int, int, int]], hides: bool) -> Any:
    """What the runner reads, as a ctypes array."""
    words = [*_addresses(), dnnl.library().stream, 0, len(memories), len(steps), hides, *memories]
    for step in steps:
        words += step
    return dnnl.words(len(words))(*words)


@functools.cache
def _addresses() -> list[int]:
    lib = dnnl.library()
    functions: Any = (lib.set_data_handle, lib.execute_holding)
    return [ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions]


_STORES = "".join(
    f"  %slot{i} = getelementptr ptr, ptr %pointers, i64 {i}\n  store ptr %p{i}, ptr %slot{i}\n"
    for i in range(POINTERS)
)
_TEXT = f"""
{signals.text()}
define void @run(ptr %table, {", ".join(f"ptr %p{i}" for i in range(POINTERS))}) {{
  %pointers = alloca [{POINTERS} x ptr]
  %before = alloca [128 x i8], align 16
{_STORES}  %set = load ptr, ptr %table
  %execute_at = getelementptr i64, ptr %table, i64 1
  %execute = load ptr, ptr %execute_at
  %stream_at = getelementptr i64, ptr %table, i64 2
  %stream = load ptr, ptr %stream_at
  %status = getelementptr i64, ptr %table, i64 3
  %count_at = getelementptr i64, ptr %table, i64 4
  %count = load i64, ptr %count_at
  %steps_at = getelementptr i64, ptr %table, i64 5
  %steps = load i64, ptr %steps_at
  %hides_at = getelementptr i64, ptr %table, i64 6
  %hides = load i64, ptr %hides_at
  %hide = icmp ne i64 %hides, 0
  %memories = getelementptr i64, ptr %table, i64 7
  %first = getelementptr i64, ptr %memories, i64 %count
  br label %bind
bind:
  %i = phi i64 [ 0, %0 ], [ %next, %bound ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %set_one, label %start
set_one:
  %memory_at = getelementptr i64, ptr %memories, i64 %i
  %memory = load ptr, ptr %memory_at
  %pointer_at = getelementptr ptr, ptr %pointers, i64 %i
  %pointer = load ptr, ptr %pointer_at
  %set_result = call i32 %set(ptr %memory, ptr %pointer)
  %set_failed = icmp ne i32 %set_result, 0
  br i1 %set_failed, label %failed, label %bound
bound:
  %next = add i64 %i, 1
  br label %bind
start:
  br i1 %hide, label %hidden, label %run
hidden:
  call void @hide_signals(ptr %before)
  br label %run
run:
  %k = phi i64 [ 0, %start ], [ 0, %hidden ], [ %after, %done ]
  %left = icmp slt i64 %k, %steps
  br i1 %left, label %run_one, label %finished
run_one:
  %place = mul i64 %k, 3
  %primitive_at = getelementptr i64, ptr %first, i64 %place
  %primitive = load ptr, ptr %primitive_at
  %number_at = getelementptr i64, ptr %primitive_at, i64 1
  %number = load i32, ptr %number_at
  %arguments_at = getelementptr i64, ptr %primitive_at, i64 2
  %arguments = load ptr, ptr %arguments_at
  %run_result = call i32 %execute(ptr %primitive, ptr %stream, i32 %number, ptr %arguments)
  %run_failed = icmp ne i32 %run_result, 0
  br i1 %run_failed, label %failed, label %done
done:
  %after = add i64 %k, 1
  br label %run
failed:
  %result = phi i32 [ %set_result, %set_one ], [ %run_result, %run_one ]
  %was_hidden = phi i1 [ false, %set_one ], [ %hide, %run_one ]
  %wide = zext i32 %result to i64
  store i64 %wide, ptr %status
  br i1 %was_hidden, label %shown, label %end
finished:
  br i1 %hide, label %shown, label %end
shown:
  call void @show_signals(ptr %before)
  br label %end
end:
  ret void
}}
"""
