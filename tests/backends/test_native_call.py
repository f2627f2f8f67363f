"""Kernels called as Python built-ins: arguments arrive as the kernel's types, mistakes raise instead of crashing."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import flambeau.expr as x
from flambeau.backends.cpu import jit, native_call
from flambeau.core import dtype as dt
from flambeau.kernels import ir
from flambeau.kernels.elementwise import formula_text
from flambeau.kernels.ir import Buffer, Kernel, Scalar, Store

OUT = Buffer("out", dt.float64)


def kernel_of(params, *values, brief=False):
    """A kernel that stores each value to its place in out."""
    body = [Store(OUT, x.const(i), v) for i, v in enumerate(values)]
    # Kernels are kept on disk under this text, so it must say what they are.
    text = f"native call {[(p.name, p.dtype.name) for p in params]} {formula_text(values)}"
    return jit.compile(Kernel("stores", [OUT, *params], body), text, brief)


@pytest.mark.parametrize("brief", [False, True])
@pytest.mark.parametrize(
    "name, given, expected",
    [
        ("int64", -(2**40), -(2.0**40)),
        ("int64", True, 1.0),
        ("int64", np.int64(7), 7.0),
        ("float64", 1.5, 1.5),
        ("float64", 3, 3.0),
        ("float32", 0.1, float(np.float32(0.1))),
        ("int32", -5, -5.0),
        ("uint8", 200, 200.0),
        ("bool", 1, 1.0),
    ],
)
def test_scalars_arrive_as_the_parameters_dtype(name, given, expected, brief):
    d = dt.BY_NAME[name]
    out = np.zeros(1)
    kernel_of([Scalar("value", d)], ir.var("value", d), brief=brief)(out.ctypes.data, given)
    assert out[0] == expected


def test_pointers_are_addresses_or_the_contents_of_bytes():
    source = Buffer("source", dt.int64)
    kernel = kernel_of([source], ir.load(source, x.const(1)))
    out, numbers = np.zeros(1), np.array([3, 4])
    kernel(out.ctypes.data, numbers.tobytes())
    assert out[0] == 4
    numbers[1] = 5
    kernel(out.ctypes.data, numbers.ctypes.data)
    assert out[0] == 5


@pytest.mark.skipif(not native_call.supported(), reason="ctypes words its own errors")
@pytest.mark.parametrize("brief", [False, True])
def test_wrong_arguments_raise(brief):
    kernel = kernel_of([Scalar("value", dt.int64)], ir.var("value", dt.int64), brief=brief)
    out = np.zeros(1)
    for wrong in ((out.ctypes.data,), (out.ctypes.data, 1, 2), (out.ctypes.data, 1.5), ("text", 1), (out, 1)):
        with pytest.raises(TypeError):
            kernel(*wrong)
    with pytest.raises(OverflowError):
        kernel(out.ctypes.data, 2**63)
    assert out[0] == 0


def test_one_kernel_serves_many_threads():
    kernel = kernel_of([Scalar("value", dt.int64)], ir.var("value", dt.int64))
    outs = [np.zeros(1) for _ in range(4)]

    def work(i):
        for _ in range(1000):
            kernel(outs[i].ctypes.data, i + 1)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert [o[0] for o in outs] == [1, 2, 3, 4]


def test_a_definition_outlives_its_table():
    """The interpreter clears modules before it frees the last built-ins, which still read their definitions then."""
    function = native_call.builtin(entry := 0x1234, 0)
    kept = weakref.ref(native_call._definitions.pop(entry))
    gc.collect()
    assert kept() is not None
    del function
