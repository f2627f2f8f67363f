"""float32 matrix products directly by oneDNN's sgemm: a shape needs only a table of numbers.

A primitive is machine code written for one shape, which takes oneDNN up to a millisecond. sgemm packs its operands into one
fixed kernel's blocks instead, so a product of a size that was never seen starts at once. The table, in 64-bit words:

    0 sgemm  1 omp_set_num_threads, or 0 to leave the threads alone  2 address of their number  3 status (written)
    4, 5 transposition letters  6, 7, 8 rows, columns, inner size  9, 10, 11 leading dimensions  12 whether operands swap
    13, 14 factors of the product and of what is there, as the bits of a float32

Signals are blocked during products that need it, or that may start threads (see `signals.py`).
"""

from __future__ import annotations

import ctypes
import functools
import platform
from typing import Any, NoReturn

from flambeau.backends.cpu import jit, native_call, signals, threads
from flambeau.backends.cpu.onednn import library as dnnl
from flambeau.backends.cpu.onednn.plan import ONE_THREAD_WORK
from flambeau.backends.cpu.onednn.sequence import POINTERS, STATUS
from flambeau.backends.cpu.onednn.shelter import shelter_pool
from flambeau.kernels.llvm_text import Function


class DirectProduct:
    """Product dst = a @ b (+ bias), run like a `PrimitivePlan`."""

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
        """Fill the table. `sizes` are (rows, columns, inner), `steps` the leading dimensions of the left, right and resulting matrix; an
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
    """Product dst += a @ b (+ bias), for the same operands as a direct product."""

    __slots__ = ()

    def __init__(self, product: DirectProduct):
        self.runner, self.table = product.runner, type(product.table)(*product.table)
        self.address = ctypes.addressof(self.table)
        self.table[_BETA] = _bits(1.0)


class ResizedProduct(DirectProduct):
    """A copy of a product, whose sizes and steps are written into its table before each run."""

    __slots__ = ()

    def __init__(self, product: DirectProduct):
        self.runner, self.table = product.runner, type(product.table)(*product.table)
        self.address = ctypes.addressof(self.table)

    @staticmethod
    def setter(work: int) -> int:
        """Return the word of the table that decides on how many threads a product of `work` multiply-adds runs."""
        if work < ONE_THREAD_WORK:
            return _addresses()[1]
        shelter_pool()
        return 0


# Words of a table: the setter of the number of threads, sizes, steps, and those that identify the product.
SETTER, SIZES, STEPS, KIND = 1, range(6, 9), range(9, 12), (4, 5, 12, 13, 14)
_ALPHA, _BETA = 13, 14


def _bits(value: float) -> int:
    """Return the bits of a float32 as an integer; those of infinity if the value is out of range."""
    return int.from_bytes(ctypes.c_float(value), "little")


def accumulate(product: DirectProduct, alpha: float, beta: float, *places: int) -> None:
    """Compute dst = beta * dst + alpha * a @ b, unseen by recorders of native calls."""
    product.table[_ALPHA], product.table[_BETA] = _bits(alpha), _bits(beta)
    _unrecorded()(product.address, *places, *(None,) * (POINTERS - len(places)))
    if product.table[STATUS]:
        product.fail()


@functools.cache
def _unrecorded() -> Any:
    """Return the runner as a function of ctypes, which releases the interpreter's lock while it runs."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (1 + POINTERS))(jit.address_of(runner(False)))


@functools.cache
def _addresses() -> tuple[int, int, int]:
    """Return the addresses of sgemm, of the function that sets the number of threads, and of that number."""
    function: Any = dnnl.library().sgemm
    return ctypes.cast(function, ctypes.c_void_p).value or 0, threads.setter_address(), threads.count_address()


@functools.cache
def runner(brief: bool) -> Any:
    """Return run(table address, dst, a, b, bias, ...) with POINTERS pointers; None if nothing can be compiled or oneDNN's sgemm is a plain
    loop (it is written for x86)."""
    if not native_call.supported() or not jit.available() or platform.machine() not in ("x86_64", "AMD64"):
        return None
    return jit.support_function(_multiply, signature="p" * (1 + POINTERS), brief=brief)


def _multiply() -> Function:
    rest = ", ".join(f"ptr %unused{i}" for i in range(POINTERS - 4))
    f = Function(f"define void @multiply(ptr %table, ptr noalias %dst, ptr %a, ptr %b, ptr noalias %bias, {rest})")
    sgemm, set_threads, count_at = (f.item("%table", i, "ptr") for i in range(3))
    letters = [f"i8 signext {f.new(f'trunc i64 {word} to i8')}" for word in (f.item("%table", 4), f.item("%table", 5))]
    m, n, k, lda, ldb, ldc, swap = (f.item("%table", i) for i in range(6, 13))
    alpha, beta = f.item("%table", _ALPHA, "float"), f.item("%table", _BETA, "float")
    swapped = f.compare("ne", "i64", swap, 0)
    first, second = (f.new(f"select i1 {swapped}, ptr {x}, ptr {y}") for x, y in (("%b", "%a"), ("%a", "%b")))
    alone = f.compare("ne", "ptr", set_threads, "null")
    long = f.compare("sgt", "i64", k, signals.LONGEST_ON_STACK)
    hide = f.new(f"or i1 {long}, {f.new(f'xor i1 {alone}, true')}")
    with f.when(hide):
        before = signals.hide(f)
    with f.when(alone):
        f.call("void", set_threads, "i32 1")
    sizes = [f"i64 {m}", f"i64 {n}", f"i64 {k}", f"float {alpha}"]
    factors = [f"ptr {first}", f"i64 {lda}", f"ptr {second}", f"i64 {ldb}"]
    result = f.call("i32", sgemm, *letters, *sizes, *factors, f"float {beta}", "ptr %dst", f"i64 {ldc}")
    f.write("i64", f.new(f"zext i32 {result} to i64"), f.place("%table", STATUS))
    with f.when(hide):
        signals.show(f, before)
    with f.when(alone):
        many = f.new(f"trunc i64 {f.read('i64', count_at)} to i32")
        f.call("void", set_threads, f"i32 {many}")
    with f.when(f.compare("ne", "ptr", "%bias", "null")), f.loop(m) as i:
        line = f.place("%dst", f.mul(i, ldc), "float")
        with f.loop(n) as j:
            place = f.place(line, j, "float")
            extra = f.read("float", f.place("%bias", j, "float"))
            f.write("float", f.new(f"fadd float {f.read('float', place)}, {extra}"), place)
    return f
