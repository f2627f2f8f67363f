"""The printer and the verifier of loop nests."""

from __future__ import annotations

import pytest

import flambeau  # noqa: F401
from flambeau.core import dtype as dt
from flambeau.expr import arg, const
from flambeau.kernels import elementwise, ir
from flambeau.kernels.ir_check import InvalidKernel, verify
from flambeau.kernels.ir_text import show
from flambeau.kernels.library import scan, softmax

OUT, X = ir.Buffer("out", dt.float32), ir.Buffer("x", dt.float32)
N = ir.Scalar("n", dt.int64)


def kernel(*body: ir.Statement) -> ir.Kernel:
    return ir.Kernel("test", [OUT, X, N], list(body))


def test_a_kernel_prints_as_a_program():
    added = elementwise.build((arg(0) + arg(1),), (dt.float32, dt.float32), (dt.float32,), "ccc", 1)
    text = show(added)
    assert text.startswith("map(n: int64, out0: float32*, in0: float32*, in1: float32*):")
    assert "parallel for i in 0 .. n:" in text and "in0[i] + in1[i]" in text and "out0[i] = result0" in text


@pytest.mark.parametrize("lowered", [
    lambda: softmax.softmax_rows.lower(dt.float32, dt.float32, int, int, log_result=False),
    lambda: scan.cumulate.lower(dt.float32, dt.float32, int, int, int, op="sum", reverse=False),
], ids=["softmax", "cumulate"])  # fmt: skip
def test_kernels_of_the_library_are_valid_and_print(lowered):
    verify(lowered())
    assert "for " in show(lowered())


i = ir.var("i", dt.int64)
BROKEN = {
    "read before it is set": kernel(ir.Store(OUT, const(0), ir.var("y", dt.float32))),
    "and is read as": kernel(ir.Assign("y", dt.float64, const(1.0)), ir.Store(OUT, const(0), ir.var("y", dt.float32))),
    "and is assigned": kernel(ir.Assign("y", dt.float64, const(1.0)), ir.Assign("y", dt.float32, const(1.0))),
    "neither a parameter nor declared": kernel(ir.Store(ir.Buffer("z", dt.float32), const(0), const(1.0))),
    "outside of a loop": kernel(ir.Break()),
    "inside another one": kernel(
        ir.For("i", const(0), ir.var("n", dt.int64), const(1), [
            ir.For("j", const(0), i, const(1), [], parallel=True)], parallel=True)
    ),
    "an unbound operand": kernel(ir.Store(OUT, const(0), arg(0))),
    "share a name": ir.Kernel("test", [OUT, OUT], []),
}  # fmt: skip


@pytest.mark.parametrize("why", list(BROKEN))
def test_a_broken_kernel_is_named(why):
    with pytest.raises(InvalidKernel, match=why):
        verify(BROKEN[why])
