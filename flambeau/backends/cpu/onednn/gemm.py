"""Matrix products through oneDNN: 2-D and batched, any operand transposed, batch dimensions broadcast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from flambeau.backends.cpu import operands
from flambeau.backends.cpu.onednn import direct
from flambeau.backends.cpu.onednn import library as dnnl
from flambeau.backends.cpu.onednn.matrix_layout import MatrixLayout, fold_batch, leading
from flambeau.backends.cpu.onednn.packed import Packed, packed_product
from flambeau.backends.cpu.onednn.plan import (
    CODE_SIZE,
    ONE_THREAD_WORK,
    SHORT_WORK,
    Builder,
    Descriptor,
    PrimitivePlan,
    ThreadPlans,
)
from flambeau.backends.cpu.onednn.postops import CHANNEL, Attributes, Step
from flambeau.backends.cpu.onednn.sequence import STATUS
from flambeau.core import dtype as dtypes
from flambeau.core import watching
from flambeau.core.device import cpu
from flambeau.core.storage import UntypedStorage
from flambeau.core.tensor import Tensor, new_tensor
from flambeau.kernels.library.product import columns_times_vector, rows_times_vector

_plans = ThreadPlans(128 << 20)
_MISSING = object()

# A large matrix times a vector: oneDNN's code for it is 2 to 20 times slower than a loop (measured, float32).
_LARGE_FOR_A_VECTOR = 1 << 14

# Where the direct product (see direct.py) is as fast as a primitive made for the shape, measured; which of the two it is
# depends on the operands' layouts only, never on what ran before: equal calls give equal bits. Above this many multiply-adds
# making the primitive costs little beside running it.
_DIRECT_WORK = 2e8
# Elements of a result: the bias is added in a pass of its own, which should find them in a cache.
_DIRECT_BIASED = 1 << 20
_LONG_COLUMNS, _FEW_ROWS = 256, 16  # packing long columns of a transposed right operand is slow; a few rows do without
_WORTH_A_PRIMITIVE = 1 << 16  # elements of a result
_SMALLEST_PRIMITIVE = 5e4  # multiply-adds, below which running one takes longer than a direct product
_GENERAL_SIZE = 8 << 10  # bytes of a primitive without code of its own
_NARROW, _SMALL_MATRIX = 16, 1 << 18  # rows or columns, and multiply-adds, of each matrix of a batch


def matmul(dst: Any, a: Any, b: Any, bias: Any = None) -> None:
    """Compute dst = a @ b (+ bias, a row added to every row). RuntimeError if oneDNN does not accept the operands' layouts."""
    if not try_matmul(dst, a, b, bias):
        shapes = f"{tuple(a.shape)} {a._strides} @ {tuple(b.shape)} {b._strides} -> {tuple(dst.shape)} {dst._strides}"
        raise RuntimeError(f"oneDNN: no matmul of {dst.dtype.name} for shapes and strides {shapes}")


def try_matmul(dst: Any, a: Any, b: Any, bias: Any = None) -> bool:
    """Compute a product with oneDNN; return False, having done nothing, if oneDNN cannot."""
    # Written out, without calls or loops over operands: a small product itself takes a microsecond or two.
    key: tuple[Any, ...] = (
        dst.shape,
        a.shape,
        b.shape,
        dst._strides,
        a._strides,
        b._strides,
        dst.dtype,
        a.dtype,
        b.dtype,
    )
    if bias is not None:
        key += (bias.shape, bias._strides, bias.dtype)
    cache = _plans.cache
    plan = cache.young.get(key, _MISSING)
    if plan is _MISSING:
        plan = cache.find(key, lambda: _make(dst, a, b, bias))
    if plan is None:
        return False
    if type(plan) is _VectorProduct and plan.native is None:
        plan.interpret(dst, a, b, bias)
        return True
    if plan.scratch_size:
        plan.bind_scratch()
    last = None if bias is None else bias.data_ptr()
    places = dst.data_ptr(), a.data_ptr(), b.data_ptr()
    if not all(places) or last == 0:
        operands.check_memory(dst, a, b, bias)
    plan.runner(plan.address, *places, last, None, None, None)
    if plan.table[STATUS]:
        plan.fail()
    return True


def known_product(form: str, a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """Return the product in a new tensor, if one of operands like these was cached under `form` by `keep_product`, without checking or
    converting anything again; else None."""
    key: tuple[Any, ...] = (form, a.shape, b.shape, a._strides, b._strides, a.dtype, b.dtype, a.device, b.device)
    if bias is not None:
        key += (bias.shape, bias._strides, bias.dtype, bias.device)
    found = _plans.cache.young.get(key)
    if found is None:
        return None
    plan, nbytes, size, strides, d = found
    storage = UntypedStorage(nbytes)
    if plan.scratch_size:
        plan.bind_scratch()
    step = d.itemsize
    last = None if bias is None else bias._storage.ptr + bias._offset * step
    plan.runner(
        plan.address,
        storage.ptr,
        a._storage.ptr + a._offset * step,
        b._storage.ptr + b._offset * step,
        last,
        None,
        None,
        None,
    )
    if plan.table[STATUS]:
        plan.fail()
    return new_tensor(storage, size, strides, 0, d, cpu, True)


def keep_product(form: str, a: Tensor, b: Tensor, bias: Tensor | None, result: Tensor, made: tuple[Any, ...]) -> None:
    """Cache how `result` came from a, b and bias. `made` are the matrices (dst, a, b) that `try_matmul` got: other headers over the same
    memory, or nothing is cached."""
    cache = _plans.cache
    key: tuple[Any, ...] = (*(x.shape for x in made), *(x._strides for x in made), *(x.dtype for x in made))
    if bias is not None:
        key += (bias.shape, bias._strides, bias.dtype)
    plan: Any = cache.young.get(key)
    same = all(x._storage is y._storage and x._offset == y._offset for x, y in zip(made, (result, a, b)))
    kept = type(plan) in (PrimitivePlan, direct.DirectProduct) or (
        type(plan) is _VectorProduct and plan.native is not None
    )
    if kept and same and result._contig and result._offset == 0:
        key = (form, a.shape, b.shape, a._strides, b._strides, a.dtype, b.dtype, a.device, b.device)
        if bias is not None:
            key += (bias.shape, bias._strides, bias.dtype, bias.device)
        entry = (plan, result.nbytes, result.shape, result._strides, result.dtype)
        cache.find(key, lambda: entry, plan.size)


class _VectorProduct:
    """A matrix times a column, or a row times a matrix, run like a `PrimitivePlan`."""

    size = scratch_size = address = 0
    table = (0,) * (STATUS + 1)  # a loop cannot fail

    def __init__(self, c: MatrixLayout, left: MatrixLayout, right: MatrixLayout, bias: Any):
        self.matrix_first = c.shape[1] == 1
        if self.matrix_first:
            (rows, n), (row_step, column_step) = left.shape, left.strides
            x_step, out_step = right.strides[0], c.strides[0]
        else:
            (n, rows), (column_step, row_step) = right.shape, right.strides
            x_step, out_step = left.strides[1], c.strides[1]
        by_rows = column_step == 1
        bias_step = 0 if bias is None or bias.shape[0] == 1 else bias._strides[0]
        self.numbers = rows, n, row_step if by_rows else column_step, x_step, out_step, bias_step
        self.kernel = rows_times_vector if by_rows else columns_times_vector
        f32 = dtypes.float32
        self.native = self.kernel.native(f32, f32, f32, None if bias is None else f32, *[int] * 6)

    def runner(self, address: int, dst: int, a: int, b: int, bias: int | None, *rest: None) -> None:
        first, second = (a, b) if self.matrix_first else (b, a)
        if bias is None:
            self.native(dst, first, second, *self.numbers)
        else:
            self.native(dst, first, second, bias, *self.numbers)

    def interpret(self, dst: Any, a: Any, b: Any, bias: Any) -> None:
        self.kernel(dst, *((a, b) if self.matrix_first else (b, a)), bias, *self.numbers)


def supports(dst: Any, a: Any, b: Any, bias: Any = None) -> bool:
    """Return whether `matmul` takes these operands without a copy."""
    return _make(dst, a, b, bias) is not None


def _make(dst: Any, a: Any, b: Any, bias: Any, direct_too: bool = True, steps: Sequence[Step] = ()) -> Any:
    """Make the plan that computes dst = a @ b (+ bias), or None; with `steps`, which are applied to the sums, only a primitive does."""
    if type(b) is Packed:
        return packed_product(dst, a, b, bias)
    operands.check_matmul(dst, a, b, bias)
    quick = _make_quickly(dst, a, b, bias) if direct_too else None
    if quick is not None:
        return quick
    data_type = dnnl.DATA_TYPES.get(dst.dtype)
    rank = len(dst.shape)
    if data_type is None or 0 in dst.shape or a.shape[-1] == 0 or rank > dnnl.MAX_DIMS:
        return None
    c, left, right = (MatrixLayout(operand, rank) for operand in (dst, a, b))
    if operands.overlaps(dst.shape, dst._strides):
        raise RuntimeError(f"matmul: elements of the result overlap, shape {tuple(dst.shape)}, strides {dst._strides}")
    fold_batch(c, left, right)
    if any(count > 1 == p == q for count, p, q in zip(c.shape[:-2], left.shape, right.shape)):
        return None  # both operands expanded: oneDNN broadcasts one only
    if not (c.settle() and left.settle() and right.settle()):
        return None
    vector = len(c.shape) == 2 and 1 in c.shape and dst.dtype is dtypes.float32
    if vector and math.prod(c.shape) * left.shape[1] >= _LARGE_FOR_A_VECTOR:
        return None if steps else _VectorProduct(c, left, right, bias)
    swapped = c.strides[-1] != 1  # a column-major result: compute its transpose, whose rows are dense
    if swapped or (bias is not None and bias.shape[0] > 1 and bias._strides[0] != 1):
        if bias is not None or any(step.operand == CHANNEL for step in steps):
            return None
        for layout in (c, left, right):
            layout.transpose()
    work = math.prod(dst.shape) * a.shape[-1]
    if direct_too and data_type == dnnl.DATA_TYPES[dtypes.float32] and len(c.shape) == 2:
        first, second = (right, left) if swapped else (left, right)
        sizes = (c.shape[0], c.shape[1], first.shape[1])
        product = _direct_product(sizes, leading(first), leading(second), c.strides[0], bias, swapped)
        if product is not None:
            return product
    told = (dst.dtype.name, tuple(a.shape), tuple(b.shape))
    build = Builder(lambda: "matmul of {} {} @ {}".format(*told), work)
    descriptors = [Descriptor.strided(x.shape, x.strides, data_type) for x in (c, left, right)]
    row = [1] * (len(c.shape) - 1) + [c.shape[-1]]
    if bias is not None:
        descriptors.append(Descriptor.strided(row, [row[-1]] * (len(row) - 1) + [1], data_type))
    memories = [build.user_memory(descriptor) for descriptor in descriptors]
    general = _prefers_gemm(c, left, right, swapped) and data_type == dnnl.DATA_TYPES[dtypes.float32]
    source, weights = (2, 1) if swapped else (1, 2)
    attributes = Attributes(steps, (c.shape, c.strides), len(c.shape) - 1) if steps else None
    created = build.primitive_desc(
        "matmul_primitive_desc_create",
        dnnl.library().engine,
        descriptors[source],
        descriptors[weights],
        descriptors[3] if bias is not None else None,
        descriptors[0],
        dnnl.library().attributes if attributes is None else attributes.owned,
        prefer="gemm" if general else None,
    )
    if created is None:
        return None
    arguments = {dnnl.ARG_SRC: memories[source], dnnl.ARG_WEIGHTS: memories[weights], dnnl.ARG_DST: memories[0]}
    if bias is not None:
        arguments[dnnl.ARG_BIAS] = memories[3]
    if attributes is not None:
        arguments.update(attributes.memories(build))
    else:
        row_of = None if bias is None else _layout_of(bias)
        build.described = Product(_layout_of(dst), _layout_of(a), _layout_of(b), row_of)
    build.step(created, arguments, _GENERAL_SIZE if general else CODE_SIZE)
    return PrimitivePlan(build)


class Product(NamedTuple):
    """Description of a product's plan: result = left @ right (+ bias), with their layouts."""

    result: operands.Shaped
    left: operands.Shaped
    right: operands.Shaped
    bias: operands.Shaped | None

    @property
    def kind(self) -> str:
        """Return "product", as opposed to the kinds of convolutions."""
        return "product"

    @property
    def tensors(self) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return shape and strides of the tensors by name, in order."""
        return {name: (t.shape, t._strides) for name, t in self._asdict().items() if t is not None}

    def followed(self, steps: Sequence[Step]) -> PrimitivePlan | None:
        """Return the primitive that adds a bias and applies these steps to the sums, or None. It is for repeated runs: it takes longer to
        make than a direct product."""
        if self.result.dtype is not dtypes.float32:
            return None
        return _make(self.result, self.left, self.right, self.bias, False, steps)


def _layout_of(t: Any) -> operands.Shaped:
    return operands.Shaped(tuple(t.shape), tuple(t._strides), t.dtype)


def described(product: direct.DirectProduct) -> Product | None:
    """Return the description of a direct product with a bias; None if its operands are swapped."""
    if product.table[12]:
        return None
    (rows, columns, inner), letters, steps = product.table[6:9], product.table[4:6], product.table[9:12]
    a, b = (
        operands.Shaped(shape, (step, 1) if letter == ord("N") else (1, step))
        for shape, letter, step in zip(((rows, inner), (inner, columns)), letters, steps)
    )
    return Product(operands.Shaped((rows, columns), (steps[2], 1)), a, b, operands.Shaped((columns,), (1,)))


def takes_more(product: direct.DirectProduct) -> bool:
    """Return whether a primitive instead of a direct product gains by doing more than multiply: not if the left operand is transposed, nor
    for small results."""
    rows, columns, _ = product.table[6:9]
    return product.table[4] == ord("N") and (rows * columns > _WORTH_A_PRIMITIVE or _lays_out_long(product))


def _lays_out_long(product: direct.DirectProduct) -> bool:
    """Return whether a product spends long on converting its right operand: a transposed one, with more than a few rows."""
    rows, columns, inner = product.table[6:9]
    return product.table[5] == ord("T") and rows >= _FEW_ROWS and rows * columns * inner >= _SMALLEST_PRIMITIVE


def _make_quickly(dst: Any, a: Any, b: Any, bias: Any) -> direct.DirectProduct | None:
    """Return the direct product of simple float32 matrices: a dense row-major result, operands with dense rows or columns, no dimension of
    size 0 or 1. None for all others, and if a primitive is faster."""
    if dst.dtype is not dtypes.float32 or not len(dst.shape) == len(a.shape) == len(b.shape) == 2:
        return None
    (rows, columns), inner = dst.shape, a.shape[1]
    if rows < 2 or columns < 2 or inner < 2 or dst._strides[1] != 1 or dst._strides[0] < columns:
        return None
    if bias is not None and bias._strides[0] != 1:
        return None
    left, right = _dense_side(a, rows, inner), _dense_side(b, inner, columns)
    if left is None or right is None:
        return None
    return _direct_product((rows, columns, inner), left, right, dst._strides[0], bias, False)


def _dense_side(matrix: Any, rows: int, columns: int) -> tuple[bytes, int] | None:
    """Return BLAS's transposition flag and leading dimension of a matrix with dense rows or columns."""
    row_step, column_step = matrix._strides
    if column_step == 1 and row_step >= columns:
        return b"N", row_step
    return (b"T", column_step) if row_step == 1 and column_step >= rows else None


def _direct_product(
    sizes: tuple[int, int, int], left: tuple[bytes, int], right: tuple[bytes, int], step: int, bias: Any, swapped: bool
) -> direct.DirectProduct | None:
    """Return the product without a primitive, or None if a primitive is faster. `sizes` are rows, columns and inner size, left and right the
    flags and leading dimensions; if they are `swapped`, the result's transpose is computed from b and a."""
    rows, columns, inner = sizes
    work = rows * columns * inner
    (left_letter, left_step), (right_letter, right_step) = left, right
    if work >= _DIRECT_WORK or (bias is not None and rows * columns > _DIRECT_BIASED):
        return None
    if right_letter == b"T" and inner >= _LONG_COLUMNS and rows >= _FEW_ROWS:
        return None
    runner = direct.runner(work < SHORT_WORK)
    if runner is None:
        return None
    steps = (left_step, right_step, step)
    return direct.DirectProduct((left_letter, right_letter), sizes, steps, swapped, work < ONE_THREAD_WORK, runner)


def _prefers_gemm(c: MatrixLayout, left: MatrixLayout, right: MatrixLayout, swapped: bool) -> bool:
    """Return whether a batch of products runs about as fast on oneDNN's general code, which is made five times as quickly as code for one
    shape: if left operands are transposed, or matrices are neither small nor narrow."""
    first = right if swapped else left
    if len(c.shape) == 2:
        return False
    rows, columns = c.shape[-2:]
    large = min(rows, columns) >= _NARROW and rows * columns * first.shape[-1] >= _SMALL_MATRIX
    return large or first.strides[-1] != 1


def try_gemm(dst: Any, a: Any, b: Any, alpha: float, beta: float) -> bool:
    """Compute dst = beta * dst + alpha * a @ b for float32 matrices; return False, having done nothing, if it does not apply."""
    operands.check_matmul(dst, a, b)
    runner = direct.runner(False)
    if runner is None or dst.dtype is not dtypes.float32 or len(dst.shape) != 2 or 0 in dst.shape or 0 in a.shape:
        return False
    c, left, right = (MatrixLayout(operand, 2) for operand in (dst, a, b))
    if not (c.settle() and left.settle() and right.settle()):
        return False
    first, second = a, b
    if c.strides[1] != 1:
        first, second, left, right = b, a, right, left
        for layout in (c, left, right):
            layout.transpose()
    (rows, columns), inner = c.shape, left.shape[1]
    left_flag, left_step = leading(left)
    right_flag, right_step = leading(right)
    operands.check_memory(dst, a, b)
    if watching.active:
        watching.tell_looked()  # a call that no recording sees
    steps = (left_step, right_step, c.strides[0])
    alone = rows * columns * inner < ONE_THREAD_WORK
    product = direct.DirectProduct((left_flag, right_flag), (rows, columns, inner), steps, False, alone, runner)
    direct.accumulate(product, alpha, beta, *(x.data_ptr() for x in (dst, first, second)))
    return True


def as_primitive(product: direct.DirectProduct, biased: bool) -> PrimitivePlan | None:
    """Return the primitive for a direct product that runs often, since it takes longer to make; None if nothing is gained."""
    told = described(product) if _lays_out_long(product) else None
    plan = None if told is None else (told if biased else told._replace(bias=None)).followed(())
    return plan if type(plan) is PrimitivePlan else None


def as_direct(plan: Any) -> direct.DirectProduct | None:
    """Return a direct product that computes what the plan of a float32 product does, with a table of its own, whose numbers may be changed;
    None if there is none."""
    if type(plan) is direct.DirectProduct:
        numbers = plan.table[4:13]
        letters: Any = tuple(bytes([letter]) for letter in numbers[:2])
        sizes, steps, swapped = numbers[2:5], numbers[5:8], bool(numbers[8])
    else:
        told = getattr(plan, "described", None)
        if type(told) is not Product or told.result.dtype is not dtypes.float32 or len(told.result.shape) != 2:
            return None
        rows, columns, inner = *told.result.shape, told.left.shape[1]
        left, right = _dense_side(told.left, rows, inner), _dense_side(told.right, inner, columns)
        if left is None or right is None or told.result._strides[1] != 1:
            return None
        letters, sizes, swapped = (left[0], right[0]), (rows, columns, inner), False
        steps = (left[1], right[1], told.result._strides[0])
    runner = direct.runner(False)
    if runner is None or swapped:
        return None
    return direct.DirectProduct(letters, sizes, steps, False, False, runner)
