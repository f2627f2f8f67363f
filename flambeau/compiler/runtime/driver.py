"""The native function that runs a list of steps: one call from Python, however many kernels there are.

A step is three 64-bit words: the address of a *caller*, and its two arguments: a function and a block of arguments, one word each. A caller
exists once for every signature; it reads the block, calls the function, and returns 0 to continue, 1 on failure, or by how many steps to
continue further on. Before the first step, addresses that differ in every call are written into the blocks."""

from __future__ import annotations

import functools
from typing import Any

from ...backends.cpu import jit
from ...kernels.llvm_text import Function, Value

_KINDS = {
    "p": "ptr", "l": "i64", "L": "i64", "i": "i32", "I": "i32", "s": "i16", "S": "i16", "c": "i8", "B": "i8", "b": "i8",
    "d": "double", "f": "float",
}  # fmt: skip


@functools.cache
def runner(brief: bool) -> Any:
    """Return run(steps, count, patches, number of patches, values, place for the result), which writes 0, or 1 + the index of the step that
    failed."""
    f = Function("define void @run(ptr %steps, i64 %count, ptr %patches, i64 %fresh, ptr %values, ptr %result)")
    with f.loop("%fresh") as p:
        row = f.place("%patches", f.mul(p, 3))
        value = f.item("%values", f.item(row, 1))
        f.write("i64", f.add(value, f.item(row, 2)), f.item(row, 0, "ptr"))
    with f.loop("%count") as i:
        status = _step(f, "%steps", i)
        with f.when(f.compare("eq", "i64", status, 1)):
            f.write("i64", f.add(i, 1), "%result")
            f.ret()
        i.step = f.intrinsic("umax", "i64", status, 1)
    f.write("i64", 0, "%result")
    return jit.support_function(f, signature="plplpp", brief=brief)


def _step(f: Function, steps: str, index: Value) -> str:
    """Emit the run of a step; return the name of its caller's result."""
    row = f.place(steps, f.mul(index, 3))
    caller, function, block = (f.item(row, k, "ptr") for k in range(3))
    return f.call("i64", caller, f"ptr {function}", f"ptr {block}")


def _caller(name: str) -> Function:
    return Function(f"define i64 @{name}(ptr %function, ptr %block)")


@functools.cache
def caller(signature: str) -> int:
    """Return the address of the function that calls kernels of this signature with a block of 64-bit arguments."""
    return jit.support_code(_launch, signature, signature="pp", straight=True)


def _launch(signature: str) -> Function:
    f = _caller("launch")
    arguments = [f"{_KINDS[letter]} {f.item('%block', i, _KINDS[letter])}" for i, letter in enumerate(signature)]
    f.call("void", "%function", *arguments)
    f.ret("i64", 0)
    return f


@functools.cache
def tester(size: int) -> int:
    """Return the address of a caller that fails unless the number at the address in the block's first entry is zero."""
    f, kind = _caller("test"), f"i{8 * size}"
    bad = f.compare("ne", kind, f.read(kind, f.item("%block", 0, "ptr")), 0)
    f.ret("i64", f.new(f"zext i1 {bad} to i64"))
    return jit.support_code(f, signature="pp", straight=True)


@functools.cache
def cell_caller(store: bool, size: int) -> int:
    """Return the address of a caller over cells, numbers of `size` bytes that should be equal. Block: their addresses, count and value. It
    fails unless all have the value, or (`store`) writes it."""
    f, kind = _caller("cells"), f"i{8 * size}"
    addresses, count, value = f.item("%block", 0, "ptr"), f.item("%block", 1), f.item("%block", 2, kind)
    with f.loop(count) as i:
        cell = f.item(addresses, i, "ptr")
        if store:
            f.write(kind, value, cell)
        else:
            with f.when(f.compare("ne", kind, f.read(kind, cell), value)):
                f.ret("i64", 1)
    f.ret("i64", 0)
    return jit.support_code(f, signature="pp")


@functools.cache
def forker() -> int:
    """Return the address of a caller that runs lists of steps side by side, each in order. Block: how many steps to skip afterwards, the
    number of lists, then the address and length of each. None of the steps may fail."""
    lane = Function("define internal void @lane(ptr %block, i64 %rank, i64 %size)")
    with lane.loop(lane.item("%block", 1), "%rank", "%size") as number:
        place = lane.place("%block", lane.add(lane.mul(number, 2), 2))
        with lane.loop(lane.item(place, 1)) as i:
            _step(lane, lane.item(place, 0, "ptr"), i)
    fork = _caller("fork")
    further, count = fork.item("%block", 0), fork.item("%block", 1)
    fork.call("void", "@flambeau_parallel", f"ptr {fork.bring(lane)}", "ptr %block", f"i64 {count}")
    fork.ret("i64", further)
    return jit.support_code(fork, signature="pp")


@functools.cache
def checker() -> Any:
    """Return check(rows, count, place for the result), which finds the index of the first row (address, expected word) whose word in memory
    differs, or the count."""
    f = Function("define void @check(ptr %rows, i64 %count, ptr %result)")
    with f.loop("%count") as i:
        row = f.place("%rows", f.mul(i, 2))
        found = f.read("i64", f.item(row, 0, "ptr"))
        with f.when(f.compare("ne", "i64", found, f.item(row, 1))):
            f.write("i64", i, "%result")
            f.ret()
    f.write("i64", "%count", "%result")
    return jit.support_function(f, signature="plp", brief=True)
