"""A matrix that is the right operand of many products, converted once to oneDNN's preferred layout.

A product converts its right operand each time; with few rows, that takes longer than multiplying."""

from __future__ import annotations

from typing import Any, NamedTuple

from flambeau.backends.cpu.onednn import library as dnnl
from flambeau.backends.cpu.onednn.plan import Builder, Descriptor, Owned, PrimitivePlan, ThreadPlans, query, same_layout
from flambeau.core import dtype as dtypes
from flambeau.core.device import cpu
from flambeau.core.tensor import Tensor, empty

_ways = ThreadPlans(16 << 20)
_FEWEST_TIMES, _SMALLEST = 3, 1 << 12  # products, elements
_MOST_ROWS = 256  # where multiplying takes much longer than laying out


class Packed:
    """Matrix packed for products with a left operand of `rows` rows. It is passed to products in place of a tensor; its strides identify its
    layout."""

    __slots__ = ("shape", "_strides", "dtype", "memory", "way")

    def __init__(self, shape: Any, rows: int, memory: Tensor, way: _Way):
        self.shape, self._strides, self.dtype = shape, ("packed", rows), dtypes.float32
        self.memory, self.way = memory, way

    def data_ptr(self) -> int:
        return self.memory.data_ptr()


class _Way:
    """Packing of matrices of one layout for products with a given number of rows."""

    def __init__(self, created: Owned, layout: int, plan: PrimitivePlan):
        self.created, self.layout, self.plan = created, layout, plan  # the first owns the second
        self.elements = -(-dnnl.library().functions["memory_desc_get_size"](layout) // 4)
        self.size = plan.size


def packed(b: Any, rows: int, times: int) -> Any:
    """Return the matrix b packed, for `times` products with `rows` rows each; b itself if nothing is gained."""
    small = b.shape[0] * b.shape[1] < _SMALLEST
    if b.dtype is not dtypes.float32 or times < _FEWEST_TIMES or not 1 < rows <= _MOST_ROWS or small:
        return b
    key = (b.shape, b._strides, rows)
    cache = _ways.cache
    way = cache.young[key] if key in cache.young else cache.find(key, lambda: _way(b, rows))
    if way is None:
        return b
    memory = empty((way.elements,), dtypes.float32, cpu)
    way.plan.run(memory.data_ptr(), b.data_ptr())
    return Packed(b.shape, rows, memory, way)


def _way(b: Any, rows: int) -> _Way | None:
    inner, columns = b.shape
    if min(b._strides) != 1 or max(b._strides) < (columns if b._strides[1] == 1 else inner):
        return None
    build = Builder(lambda: f"packing of {(inner, columns)}", rows * inner * columns)
    kind = dnnl.DATA_TYPES[dtypes.float32]
    lib = dnnl.library()
    source, target = (Descriptor.strided((rows, n), (n, 1), kind) for n in (inner, columns))
    wanted = Descriptor.any_layout((inner, columns), kind)
    created = build.owned_desc("matmul_primitive_desc_create", lib.engine, source, wanted, None, target, lib.attributes)
    if created is None:
        return None
    layout = query(created.address, dnnl.QUERY_WEIGHTS)
    given = Descriptor.strided((inner, columns), tuple(b._strides), kind)
    if same_layout(layout, given.address):
        return None
    to = build.user_memory(layout)
    build.reorder(build.user_memory(given), to)
    # In the order of the pointers: the packed matrix first.
    return _Way(created, layout, PrimitivePlan(build))


class PackedRows(NamedTuple):
    """Description of a plan: rows times a packed matrix (+ bias); `steps` are from row to row of the left matrix and of the result."""

    rows: int
    shape: tuple[int, int]
    steps: tuple[int, int]
    way: _Way
    biased: bool

    def plan(self, alone: bool = False) -> PrimitivePlan | None:
        """Return the plan; one that runs `alone`, on one thread, may run while others do. None if oneDNN has no code for it."""
        inner, columns = self.shape
        work = 0 if alone else self.rows * inner * columns
        build = Builder(lambda: f"matmul of {(self.rows, inner)} @ packed {self.shape}", work)
        kind = dnnl.DATA_TYPES[dtypes.float32]
        lib = dnnl.library()
        left = Descriptor.strided((self.rows, inner), (self.steps[0], 1), kind)
        result = Descriptor.strided((self.rows, columns), (self.steps[1], 1), kind)
        row = Descriptor.strided((1, columns), (columns, 1), kind) if self.biased else None
        created = build.primitive_desc(
            "matmul_primitive_desc_create", lib.engine, left, self.way.layout, row, result, lib.attributes
        )
        if created is None:
            return None
        arguments = {
            argument: build.user_memory(layout)
            for argument, layout in (
                (dnnl.ARG_DST, result), (dnnl.ARG_SRC, left), (dnnl.ARG_WEIGHTS, self.way.layout), (dnnl.ARG_BIAS, row)
            )
            if layout is not None
        }  # fmt: skip
        build.described = self
        build.step(created, arguments)
        made = PrimitivePlan(build)
        if alone:
            made.keep_scratch()
        return made


def packed_product(dst: Any, a: Any, b: Packed, bias: Any) -> PrimitivePlan:
    """Return the plan of dst = a @ b (+ bias)."""
    told = PackedRows(a.shape[0], tuple(b.shape), (a._strides[0], dst._strides[0]), b.way, bias is not None)
    plan = told.plan()
    if plan is None:
        raise RuntimeError(f"oneDNN: no matmul of {tuple(a.shape)} @ packed {tuple(b.shape)}")
    return plan
