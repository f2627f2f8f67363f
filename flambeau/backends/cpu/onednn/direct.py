"""float32 matrix products straight through oneDNN's sgemm: nothing is made for a shape but a table of numbers.

A primitive is machine code written for one shape, which takes oneDNN up to a millisecond. sgemm packs its operands into one
fixed kernel's blocks instead, so a product of a size that was never seen starts at once. The table, in 64-bit words:

    0 sgemm  1 omp_set_num_threads, or 0 to leave the threads alone  2 address of their number  3 status (written)
    4, 5 transposition letters  6, 7, 8 rows, columns, inner size  9, 10, 11 leading dimensions  12 whether operands swap
    13, 14 factors of the product and of what is there, as the bits of a float32

Signals wait while a product runs that needs it, or whose threads may be started by it (see `signals.py`).
"""

from __future__ import annotations

import ctypes
import functools
import platform
from typing import Any, NoReturn

from flambeau.backends.cpu import jit, native_call, signals, threads
from flambeau.backends.cpu.onednn import library as dnnl
from flambeau.backends.cpu.onednn.sequence import POINTERS, STATUS
from flambeau.backends.cpu.onednn.shelter import shelter_pool


class DirectProduct:
    """dst = a @ b (+ bias), to be run like a `PrimitivePlan`."""

    __slots__ = ("table", "address", "runner")

    scratch_size = size = 0
    results = 1
    steps = ()  # no primitive

    def __init__(
        self,
        letters: tuple[bytes, bytes],
        sizes: tuple[int, int, int],
        steps: tuple[int, int, int],
        swapped: bool,
        alone: bool,
        runner: Any,
    ):
        """`sizes` are (rows, columns, inner), `steps` the leading dimensions of the left, right and resulting matrix; an
        `alone` product runs on one thread."""
        sgemm, set_threads, count = _addresses()
        words = (
            *(sgemm, set_threads if alone else 0, count, 0),
            *(ord(letters[0]), ord(letters[1]), *sizes, *steps, swapped, _bits(1.0), 0),
        )
        if not alone:
            shelter_pool()
        self.runner = runner
        self.table = dnnl.words(len(words))(*words)
        self.address = ctypes.addressof(self.table)

    def fail(self) -> NoReturn:
        status, self.table[STATUS] = self.table[STATUS], 0
        rows, columns, inner = self.table[6:9]
        raise dnnl.failure(status, "sgemm", f"{rows}x{inner} @ {inner}x{columns}")


class AddedProduct(DirectProduct):
    """dst += a @ b (+ bias), for operands as those of a direct product."""

    __slots__ = ()

    def __init__(self, product: DirectProduct):
        self.runner, self.table = product.runner, type(product.table)(*product.table)
        self.address = ctypes.addressof(self.table)
        self.table[_BETA] = _bits(1.0)


_ALPHA, _BETA = 13, 14


def _bits(value: float) -> int:
    """Of a float32, as an integer; infinite where the value is beyond its range."""
    return int.from_bytes(ctypes.c_float(value), "little")


def accumulate(product: DirectProduct, alpha: float, beta: float, *places: int) -> None:
    """dst = beta * dst + alpha * a @ b, without telling anyone who records native calls."""
    product.table[_ALPHA], product.table[_BETA] = _bits(alpha), _bits(beta)
    _unrecorded()(product.address, *places, *(None,) * (POINTERS - len(places)))
    if product.table[STATUS]:
        product.fail()


@functools.cache
def _unrecorded() -> Any:
    """The runner as a function of ctypes, which releases the interpreter's lock while it runs."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (1 + POINTERS))(jit.address_of(runner(False)))


@functools.cache
def _addresses() -> tuple[int, int, int]:
    """Of sgemm, of the function that sets the number of threads, and of that number."""
    function: Any = dnnl.library().sgemm
    return ctypes.cast(function, ctypes.c_void_p).value or 0, threads.setter_address(), threads.count_address()


@functools.cache
def runner(brief: bool) -> Any:
    """run(table address, dst, a, b, bias, ...) with POINTERS pointers, or None where nothing can be compiled or where
    oneDNN's sgemm is a plain loop (it is written for x86)."""
    if not native_call.supported() or not jit.available() or platform.machine() not in ("x86_64", "AMD64"):
        return None
    return jit.support_function(_TEXT, "multiply", "p" * (1 + POINTERS), brief)


def _read(*names: str) -> str:
    """Instructions that read the table's words into variables; a name ends in the number of its word."""
    lines = []
    for name in names:
        word = int("".join(c for c in name if c.isdigit()))
        kind = "ptr" if name.startswith("to_") else "float" if name.startswith(("alpha", "beta")) else "i64"
        lines.append(f"  %{name}_at = getelementptr i64, ptr %table, i64 {word}")
        lines.append(f"  %{name} = load {kind}, ptr %{name}_at")
    return "\n".join(lines)


_REST = ", ".join(f"ptr %unused{i}" for i in range(POINTERS - 4))
_TEXT = f"""
{signals.text()}
define void @multiply(ptr %table, ptr noalias %dst, ptr %a, ptr %b, ptr noalias %bias, {_REST}) {{
{_read("to_sgemm0", "to_threads1", "to_count2", "left4", "right5", "m6", "n7", "k8", "lda9", "ldb10", "ldc11", "swap12", "alpha13", "beta14")}
  %letter1 = trunc i64 %left4 to i8
  %letter2 = trunc i64 %right5 to i8
  %swapped = icmp ne i64 %swap12, 0
  %first = select i1 %swapped, ptr %b, ptr %a
  %second = select i1 %swapped, ptr %a, ptr %b
  %before = alloca [128 x i8], align 16
  %alone = icmp ne ptr %to_threads1, null
  %team = xor i1 %alone, true
  %long = icmp sgt i64 %k8, {signals.LONGEST_ON_STACK}
  %hide = or i1 %long, %team
  br i1 %hide, label %hidden, label %ready
hidden:
  call void @hide_signals(ptr %before)
  br label %ready
ready:
  br i1 %alone, label %one, label %call
one:
  call void %to_threads1(i32 1)
  br label %call
call:
  %result = call i32 %to_sgemm0(i8 signext %letter1, i8 signext %letter2, i64 %m6, i64 %n7, i64 %k8, float %alpha13,
    ptr %first, i64 %lda9, ptr %second, i64 %ldb10, float %beta14, ptr %dst, i64 %ldc11)
  %status = getelementptr i64, ptr %table, i64 {STATUS}
  %wide = zext i32 %result to i64
  store i64 %wide, ptr %status
  br i1 %hide, label %shown, label %ended
shown:
  call void @show_signals(ptr %before)
  br label %ended
ended:
  br i1 %alone, label %many, label %called
many:
  %count = load i64, ptr %to_count2
  %narrow = trunc i64 %count to i32
  call void %to_threads1(i32 %narrow)
  br label %called
called:
  %plain = icmp eq ptr %bias, null
  br i1 %plain, label %end, label %row
row:
  %i = phi i64 [ 0, %called ], [ %next_i, %row_done ]
  %start = mul i64 %i, %ldc11
  %line = getelementptr float, ptr %dst, i64 %start
  br label %element
element:
  %j = phi i64 [ 0, %row ], [ %next_j, %element ]
  %place = getelementptr float, ptr %line, i64 %j
  %from = getelementptr float, ptr %bias, i64 %j
  %value = load float, ptr %place
  %extra = load float, ptr %from
  %sum = fadd float %value, %extra
  store float %sum, ptr %place
  %next_j = add nuw nsw i64 %j, 1
  %more_j = icmp slt i64 %next_j, %n7
  br i1 %more_j, label %element, label %row_done
row_done:
  %next_i = add nuw nsw i64 %i, 1
  %more_i = icmp slt i64 %next_i, %m6
  br i1 %more_i, label %row, label %end
end:
  ret void
}}
"""
