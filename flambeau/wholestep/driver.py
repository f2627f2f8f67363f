"""The native function that runs a list of steps: one call from Python, however many kernels there are.

A step is three 64-bit words: the address of a *caller*, and what it is given: a function and a block of arguments, one word each. A
caller exists once for every signature; it reads the block, calls the function, and returns 0 to go on, 1 where it failed, or how many
steps further to go on. Before the first step, addresses that are new in every call are written into the blocks."""

from __future__ import annotations

import functools
from typing import Any

from ..backends.cpu import jit

_KINDS = {
    "p": "ptr", "l": "i64", "L": "i64", "i": "i32", "I": "i32", "s": "i16", "S": "i16", "c": "i8", "B": "i8", "b": "i8",
    "d": "double", "f": "float",
}  # fmt: skip


@functools.cache
def runner(brief: bool) -> Any:
    """run(steps, count, patches, number of patches, values, place for the result): 0, or 1 + the number of the step that failed."""
    return jit.support_function(_RUN, "run", "plplpp", brief)


@functools.cache
def caller(signature: str) -> int:
    """The address of the function that calls kernels of this signature with a block of words."""
    lines, arguments = [], []
    for i, letter in enumerate(signature):
        kind = _KINDS[letter]
        lines.append(f"  %at{i} = getelementptr i64, ptr %block, i64 {i}")
        lines.append(f"  %v{i} = load {kind}, ptr %at{i}")
        arguments.append(f"{kind} %v{i}")
    return jit.support_code(
        "define i64 @launch(ptr %function, ptr %block) {\n"
        + "\n".join(lines)
        + f"\n  call void %function({', '.join(arguments)})\n  ret i64 0\n}}\n",
        "launch",
        "pp",
        straight=True,
    )


@functools.cache
def tester(size: int) -> int:
    """The address of a caller that fails unless the number at the address in the block's first word is zero."""
    kind = f"i{8 * size}"
    return jit.support_code(
        f"define i64 @test(ptr %function, ptr %block) {{\n  %place = load ptr, ptr %block\n  %value = load {kind}, ptr %place\n"
        f"  %bad = icmp ne {kind} %value, 0\n  %result = zext i1 %bad to i64\n  ret i64 %result\n}}\n",
        "test",
        "pp",
        straight=True,
    )


@functools.cache
def cell_caller(store: bool, size: int) -> int:
    """A caller over cells, numbers of `size` bytes that should all be equal. Block: their addresses, how many, the value. It fails
    unless all have the value, or stores it."""
    kind = f"i{8 * size}"
    work = (
        f"  store {kind} %value, ptr %cell\n  br label %next"
        if store
        else f"  %found = load {kind}, ptr %cell\n  %same = icmp eq {kind} %found, %value\n"
        "  br i1 %same, label %next, label %failed"
    )
    return jit.support_code(
        f"""define i64 @cells(ptr %function, ptr %block) {{
  %addresses = load ptr, ptr %block
  %count_at = getelementptr i64, ptr %block, i64 1
  %count = load i64, ptr %count_at
  %value_at = getelementptr i64, ptr %block, i64 2
  %value = load {kind}, ptr %value_at
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %j, %next ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %end
one:
  %at = getelementptr ptr, ptr %addresses, i64 %i
  %cell = load ptr, ptr %at
{work}
next:
  %j = add i64 %i, 1
  br label %loop
failed:
  ret i64 1
end:
  ret i64 0
}}
""",
        "cells",
        "pp",
    )


@functools.cache
def forker() -> int:
    """A caller that runs lists of steps side by side, each in order. Block: how many steps further to go on, how many lists there are,
    then for each its address and how many steps it has. None of the steps may fail."""
    return jit.support_code(_FORK, "fork", "pp")


@functools.cache
def checker() -> Any:
    """check(rows, count, place for the result): the number of the first row (address, expected word) whose word in memory is
    another one, or the count."""
    return jit.support_function(_CHECK, "check", "plp", True)


_RUN = """
define void @run(ptr %steps, i64 %count, ptr %patches, i64 %fresh, ptr %values, ptr %result) {
  br label %patch
patch:
  %p = phi i64 [ 0, %0 ], [ %q, %patch_one ]
  %left = icmp slt i64 %p, %fresh
  br i1 %left, label %patch_one, label %loop
patch_one:
  %row = mul i64 %p, 3
  %slot_at = getelementptr i64, ptr %patches, i64 %row
  %slot = load ptr, ptr %slot_at
  %index_at = getelementptr i64, ptr %slot_at, i64 1
  %index = load i64, ptr %index_at
  %offset_at = getelementptr i64, ptr %slot_at, i64 2
  %offset = load i64, ptr %offset_at
  %value_at = getelementptr i64, ptr %values, i64 %index
  %value = load i64, ptr %value_at
  %sum = add i64 %value, %offset
  store i64 %sum, ptr %slot
  %q = add i64 %p, 1
  br label %patch
loop:
  %i = phi i64 [ 0, %patch ], [ %j, %done ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %end
one:
  %start = mul i64 %i, 3
  %caller_at = getelementptr i64, ptr %steps, i64 %start
  %caller = load ptr, ptr %caller_at
  %function_at = getelementptr i64, ptr %caller_at, i64 1
  %function = load ptr, ptr %function_at
  %block_at = getelementptr i64, ptr %caller_at, i64 2
  %block = load ptr, ptr %block_at
  %status = call i64 %caller(ptr %function, ptr %block)
  %fine = icmp eq i64 %status, 0
  br i1 %fine, label %done, label %other
other:
  %bad = icmp eq i64 %status, 1
  br i1 %bad, label %failed, label %done
done:
  %further = phi i64 [ 1, %one ], [ %status, %other ]
  %j = add i64 %i, %further
  br label %loop
failed:
  %number = add i64 %i, 1
  store i64 %number, ptr %result
  ret void
end:
  store i64 0, ptr %result
  ret void
}
"""

_FORK = """
declare void @flambeau_parallel(ptr, ptr, i64)
define i64 @fork(ptr %function, ptr %block) {
  %further = load i64, ptr %block
  %count_at = getelementptr i64, ptr %block, i64 1
  %count = load i64, ptr %count_at
  call void @flambeau_parallel(ptr @lane, ptr %block, i64 %count)
  ret i64 %further
}
define internal void @lane(ptr %block, i64 %rank, i64 %size) {
  %count_at = getelementptr i64, ptr %block, i64 1
  %count = load i64, ptr %count_at
  br label %lists
lists:
  %list = phi i64 [ %rank, %0 ], [ %list_next, %ended ]
  %more_lists = icmp slt i64 %list, %count
  br i1 %more_lists, label %begin, label %end
begin:
  %twice = mul i64 %list, 2
  %place = add i64 %twice, 2
  %steps_at = getelementptr i64, ptr %block, i64 %place
  %steps = load ptr, ptr %steps_at
  %size_at = getelementptr i64, ptr %steps_at, i64 1
  %steps_count = load i64, ptr %size_at
  br label %loop
loop:
  %i = phi i64 [ 0, %begin ], [ %j, %one ]
  %more = icmp slt i64 %i, %steps_count
  br i1 %more, label %one, label %ended
one:
  %start = mul i64 %i, 3
  %caller_at = getelementptr i64, ptr %steps, i64 %start
  %caller = load ptr, ptr %caller_at
  %callee_at = getelementptr i64, ptr %caller_at, i64 1
  %callee = load ptr, ptr %callee_at
  %arguments_at = getelementptr i64, ptr %caller_at, i64 2
  %arguments = load ptr, ptr %arguments_at
  %status = call i64 %caller(ptr %callee, ptr %arguments)
  %j = add i64 %i, 1
  br label %loop
ended:
  %list_next = add i64 %list, %size
  br label %lists
end:
  ret void
}
"""

_CHECK = """
define void @check(ptr %rows, i64 %count, ptr %result) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %j, %one ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %end
one:
  %start = mul i64 %i, 2
  %address_at = getelementptr i64, ptr %rows, i64 %start
  %address = load ptr, ptr %address_at
  %expected_at = getelementptr i64, ptr %address_at, i64 1
  %expected = load i64, ptr %expected_at
  %found = load i64, ptr %address
  %same = icmp eq i64 %found, %expected
  %j = add i64 %i, 1
  br i1 %same, label %loop, label %end
end:
  %which = phi i64 [ %i, %loop ], [ %i, %one ]
  store i64 %which, ptr %result
  ret void
}
"""

__all__ = ["caller", "cell_caller", "checker", "forker", "runner", "tester"]
