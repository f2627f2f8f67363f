"""Loop nests compiled and run: statements, parallel loops, several parameters, linking."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

import flambeau.expr as x
from flambeau.backends.cpu import image, jit
from flambeau.core import dtype as dt
from flambeau.kernels import emit_llvm, ir
from flambeau.kernels.ir import (
    Assign,
    Break,
    Buffer,
    Continue,
    DeclareLocal,
    For,
    If,
    Kernel,
    Scalar,
    Store,
    While,
    load,
    var,
)
from flambeau.kernels.ir_check import InvalidKernel
from flambeau.kernels.llvm_text import Function

I64, F64 = dt.int64, dt.float64
n, i, total = var("n", I64), var("i", I64), var("total", F64)
A, OUT = Buffer("a", F64), Buffer("out", F64)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Keys here are not stable descriptions of kernels, so nothing may be found from earlier runs."""
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))


_keys = itertools.count()


def loop(name, stop, body, step=1, start=0, **options):
    return For(name, x.const(start), x.as_expr(stop), x.const(step), body, **options)


def run(body, *arrays, parameters=None, key=None):
    kernel = Kernel("test", list(parameters or (Scalar("n", I64), OUT, A)), body)
    function = jit.compile(kernel, key or f"test {next(_keys)}")
    values = [v.ctypes.data if isinstance(v, np.ndarray) else v for v in arrays]
    function(*values)


def test_variables_and_loops():
    a, out = np.arange(10.0), np.zeros(1)
    run(
        [
            Assign("total", F64, x.const(0)),
            loop("i", n, [Assign("total", F64, total + load(A, i))]),
            Store(OUT, x.const(0), total),
        ],
        10, out, a,
    )  # fmt: skip
    assert out[0] == 45


def test_steps_in_both_directions():
    a, out = np.arange(10.0), np.zeros(10)
    run([loop("i", n, [Store(OUT, i, load(A, i))], step=3)], 10, out, a)
    np.testing.assert_array_equal(out.nonzero()[0], [3, 6, 9])
    out[:] = 0
    run([For("i", n - 1, x.const(-1), x.const(-2), [Store(OUT, i, load(A, i))])], 10, out, a)
    np.testing.assert_array_equal(out.nonzero()[0], [1, 3, 5, 7, 9])


def test_break_continue_while_and_if():
    a, out = np.arange(10.0), np.zeros(3)
    count = var("count", I64)
    run(
        [
            Assign("total", F64, x.const(0)),
            loop("i", n, [If(i == 3, [Continue()]), If(i == 6, [Break()]), Assign("total", F64, total + load(A, i))]),
            Store(OUT, x.const(0), total),
            Assign("count", I64, x.const(0)),
            While(count * count < n, [Assign("count", I64, count + 1)]),
            If(count > 100, [Store(OUT, x.const(1), x.const(-1))], [Store(OUT, x.const(1), count)]),
        ],
        10, out, a,
    )  # fmt: skip
    np.testing.assert_array_equal(out, [0 + 1 + 2 + 4 + 5, 4, 0])


def test_the_body_may_change_its_loop_variable():
    out = np.zeros(10)
    run([loop("i", n, [Assign("i", I64, i * 2), Store(OUT, i, x.const(1))])], 5, out, out)
    np.testing.assert_array_equal(out.nonzero()[0], [0, 2, 4, 6, 8])


@pytest.mark.parametrize("size", [0, 1, 7, 100_003])
@pytest.mark.parametrize("step", [1, 3])
def test_parallel_loops_see_outer_variables_and_local_arrays(size, step):
    table = Buffer("table", F64, local_size=2)
    a, out = np.random.default_rng(0).random(size), np.zeros(size)
    scale, offset, flag = var("scale", F64), var("offset", F64), var("flag", dt.bool_)
    body = [
        Assign("scale", F64, x.const(3)),
        Assign("offset", F64, load(table, i % 2)),
        Store(OUT, i, x.where(flag, load(A, i) * scale + offset, 0)),
    ]
    run(
        [
            DeclareLocal(table),
            Store(table, x.const(0), x.const(0.5)),
            Store(table, x.const(1), x.const(-0.5)),
            Assign("flag", dt.bool_, n >= 0),
            loop("i", n, body, step=step, parallel=True),
        ],
        size, out, a,
    )  # fmt: skip
    want = np.zeros(size)
    index = np.arange(0, size, step)
    want[index] = a[index] * 3 + np.where(index % 2, -0.5, 0.5)
    np.testing.assert_array_equal(out, want)


def test_two_parallel_loops_in_one_kernel():
    size = 200_000
    a, out = np.random.default_rng(1).random(size), np.zeros(size)
    first = loop("i", n, [Store(OUT, i, load(A, i) * 2)], parallel=True)
    second = loop("i", n, [Store(OUT, i, load(OUT, i) + 1)], parallel=True)
    run([first, second], size, out, a)
    np.testing.assert_array_equal(out, a * 2 + 1)


def test_every_kind_of_parameter():
    parameters = (Scalar("n", I64), OUT, Scalar("d", F64), Scalar("b", dt.bool_), Scalar("f", dt.float32))
    value = x.where(var("b", dt.bool_), var("d", F64), 0) + var("f", dt.float32)
    out = np.zeros(1)
    run([Store(OUT, x.const(0), value)], 1, out, 2.5, True, 0.25, parameters=parameters)
    assert out[0] == 2.75
    run([Store(OUT, x.const(0), value * 2)], 1, out, 2.5, False, 0.25, parameters=parameters)
    assert out[0] == 0.5


def test_a_thunk_is_called_once():
    built = []

    def build():
        built.append(1)
        return Kernel("thunk", [OUT], [Store(OUT, x.const(0), x.const(7))])

    key = f"thunk {next(_keys)}"
    first, second = jit.compile(build, key), jit.compile(build, key)
    assert first is second and len(built) == 1


def test_functions_of_the_c_library_are_linked():
    out, a = np.zeros(4), np.array([0.5, 1.5, 2.5, 7.25])
    run([loop("i", n, [Store(OUT, i, x.functions.fmod(load(A, i), x.const(1)))])], 4, out, a)
    np.testing.assert_array_equal(out, [0.5, 0.5, 0.5, 0.25])


def test_linking_rejects_what_it_does_not_know():
    with pytest.raises(image.UnsupportedObject):
        image.link([b"not an object file"], "entry")


def test_objects_that_need_a_full_linker_go_through_llvm(monkeypatch):
    def refuse(object_file, entry):
        raise image.UnsupportedObject("pretend")

    monkeypatch.setattr(image, "link", refuse)
    jit._entry.cache_clear()
    size = 200_000
    a, out = np.random.default_rng(2).random(size), np.zeros(size)
    body = [loop("i", n, [Store(OUT, i, x.functions.fmod(load(A, i), 0.5) + 1)], parallel=True)]
    try:
        run(body, size, out, a, key="through llvm")
        np.testing.assert_array_equal(out, np.fmod(a, 0.5) + 1)
        jit._addresses.clear()
        jit._functions.clear()
        loaded, out[:] = jit.stats.loaded, 0
        again = jit.compile(lambda: pytest.fail("compiled again"), "through llvm")
        again(size, out.ctypes.data, a.ctypes.data)
        np.testing.assert_array_equal(out, np.fmod(a, 0.5) + 1)
        assert jit.stats.loaded == loaded + 1
    finally:
        jit._entry.cache_clear()


def test_what_only_forks_is_a_module_of_its_own():
    loops = [loop("i", n, [Store(OUT, i, load(A, i) + 1)], parallel=parallel) for parallel in (True, False)]
    forking, alone = (Kernel("apart", [Scalar("n", I64), OUT, A], [each]) for each in loops)
    computing, plain = emit_llvm.emit_apart(forking)
    assert "fadd double" in computing and "optnone" not in computing and "declare hidden void @apart.range1" in plain
    both = [jit._compiler().object_code(computing), jit._compiler().straight_code(plain)]
    assert isinstance(image.link(both, "apart").entry, int)
    with pytest.raises(image.UnsupportedObject, match="apart"):
        image.link(both[:1], "apart")
    assert emit_llvm.emit_apart(alone) == [emit_llvm.emit(alone)]


def test_code_is_not_writable():
    kernel = Kernel("plain", [OUT], [Store(OUT, x.const(0), x.const(1))])
    address = image.load(image.link([jit._compiler().object_code(emit_llvm.emit(kernel))], "plain"), {})
    out = np.zeros(1)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(out.ctypes.data)
    assert out[0] == 1
    with open("/proc/self/maps") as maps:
        for line in maps:
            low, high = (int(part, 16) for part in line.split()[0].split("-"))
            if low <= address < high:
                assert line.split()[1].startswith("r-x")
                return
    pytest.fail("the code is not mapped")


def test_conflicting_dtypes_of_a_variable_are_an_error():
    body = [Assign("v", I64, x.const(1)), Assign("v", F64, x.const(1.0)), Store(OUT, x.const(0), ir.var("v", F64))]
    with pytest.raises(InvalidKernel, match="'v' is int64 and is assigned float64"):
        jit.compile(Kernel("conflict", [OUT], body), "conflict")


_written: list[int] = []


def _adding(number: int) -> Function:
    _written.append(number)
    f = Function("define i64 @adding(i64 %x)")
    f.ret("i64", f.add("%x", number))
    return f


def test_code_that_is_stored_is_not_written_again(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    _written.clear()
    places = [jit.support_code(_adding, number, signature="l", straight=True) for number in (1, 2, 1)]
    assert [ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(place)(40) for place in places] == [41, 42, 41]
    assert _written == [1, 2]
