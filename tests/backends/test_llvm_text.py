"""Functions written instruction by instruction: loops, steps that the body sets, early returns."""

from __future__ import annotations

import ctypes

import pytest

from flambeau.backends.cpu import jit
from flambeau.kernels.llvm_text import Function

if not jit.available():
    pytest.skip("needs llvmlite", allow_module_level=True)


def compiled(f: Function, *kinds: type, straight: bool = False):
    return ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(jit.support_code(f, straight=straight))


def words(*values: int):
    return (ctypes.c_int64 * len(values))(*values)


def test_a_loop_over_a_table() -> None:
    f = Function("define i64 @total(ptr %numbers, i64 %count)")
    total = f.slot("i64")
    f.write("i64", 0, total)
    with f.loop("%count") as i:
        f.write("i64", f.add(f.read("i64", total), f.item("%numbers", i)), total)
    f.ret("i64", f.read("i64", total))
    run = compiled(f, ctypes.c_void_p, ctypes.c_int64)
    assert run(words(3, 4, 5), 3) == 12
    assert run(words(3), 0) == 0


@pytest.mark.parametrize("straight", [False, True])
def test_early_returns_and_steps_of_the_body(straight: bool) -> None:
    """Each word says how far to go; 0 ends it."""
    f = Function("define i64 @hops(ptr %numbers, i64 %count)")
    with f.loop("%count") as i:
        far = f.item("%numbers", i)
        with f.when(f.compare("eq", "i64", far, 0)):
            f.ret("i64", i)
        i.step = far
    f.ret("i64", -1)
    run = compiled(f, ctypes.c_void_p, ctypes.c_int64, straight=straight)
    assert run(words(2, 0, 1, 0), 4) == 3
    assert run(words(2, 0, 1, 5), 4) == -1


def test_constants_are_folded_and_nothing_returns_twice() -> None:
    f = Function("define i64 @folded(i64 %x)")
    assert f.add(1, 2, 3) == 6 and f.mul(2, 5) == 10 and f.mul("%x", 1) == "%x" and f.add("%x", 0) == "%x"
    with f.when(f.compare("slt", "i64", "%x", 0)):
        f.ret("i64", 0)
    f.ret("i64", f.add("%x", 7))
    assert f.text().count("ret i64") == 2
    assert compiled(f, ctypes.c_int64)(5) == 12
