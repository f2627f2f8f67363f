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


def test_what_is_called_comes_into_the_module() -> None:
    """A function as it is, once; anything else as a declaration that follows from the call."""
    twice = Function("define internal i64 @twice(i64 %x)")
    twice.ret("i64", twice.intrinsic("smax", "i64", twice.mul("%x", 2), 0))
    f = Function("define i64 @outer(i64 %x)")
    far = f.call("i64", "@labs", f"i64 {f.call('i64', twice, 'i64 %x')}")
    f.ret("i64", f.add(f.call("i64", twice, f"i64 {far}"), f.call("i64", "@labs", "i64 -1")))
    text = f.module()
    assert text.count("@twice(i64 %x) {") == text.count("declare i64 @labs(i64)") == 1
    assert "declare i64 @llvm.smax.i64(i64, i64)" in text
    assert compiled(f, ctypes.c_int64)(10) == 41


def test_vectors_and_calls_of_any_number_of_arguments_are_declared() -> None:
    f = Function("define void @many(ptr %x)")
    vector = "<4 x float>"
    f.intrinsic("fma", vector, *["zeroinitializer"] * 3)
    f.call(
        "void",
        "@llvm.masked.store.v4f32.p0",
        f"{vector} zeroinitializer",
        "ptr %x",
        "i32 4",
        "<4 x i1> <i1 true, i1 0, i1 0, i1 0>",
    )
    f.call("i64 (i64, ...)", "@syscall", "i64 39", "ptr %x")
    text = f.module()
    assert f"declare {vector} @llvm.fma.v4f32({vector}, {vector}, {vector})" in text
    assert f"declare void @llvm.masked.store.v4f32.p0({vector}, ptr, i32, <4 x i1>)" in text
    assert "declare i64 @syscall(i64, ...) nounwind nonlazybind" in text
    jit._compiler().optimised(text)


@pytest.mark.parametrize("straight", [False, True])
def test_endless_loops_and_atomic_memory(straight: bool) -> None:
    """Counts a word down by steps of its neighbour, until a swap finds zero there."""
    f = Function("define i64 @count(ptr %words)")
    step, turns = f.item("%words", 1), f.variable("i64", 0)
    with f.forever() as end:
        with f.when(f.swap("i64", "%words", 0, -1, "acq_rel")):
            f.go(end)
        f.change("sub", "i64", "%words", step, "seq_cst")
        f.write("i64", f.add(f.read("i64", turns), 1), turns)
    f.write("i64", f.read("i64", "%words", "acquire"), f.place("%words", 1), "release")
    f.ret("i64", f.read("i64", turns))
    memory = words(12, 4)
    assert compiled(f, ctypes.c_void_p, straight=straight)(memory) == 3
    assert list(memory) == [-1, -1]


def test_a_name_stands_for_one_function() -> None:
    """Two of one name would call each other's code."""

    def named(value: int) -> Function:
        f = Function("define internal i64 @same()")
        f.ret("i64", value)
        return f

    def calling(*functions: Function) -> Function:
        f = Function("define i64 @outer()")
        for function in functions:
            f.call("i64", function)
        f.ret("i64", 0)
        return f

    assert calling(named(1), named(1)).module().count("@same() {") == 1
    with pytest.raises(ValueError, match="@same is the name of two functions"):
        calling(named(1), named(2))
    with pytest.raises(ValueError, match="@outer is the name of two functions"):
        calling(calling(named(1))).module()
