"""Matrix products by cuBLASLt.

A product is described once: for operands of the same shapes, strides, dtypes and alignment the descriptors, the algorithm that the library's
heuristic recommends and the argument list are cached by thread, and the next call only fills in addresses. Graphs use the algorithm that was
measured to be the fastest, if that was done (`product_tuning`)."""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from ...core import dtype as dt
from ...core.aliases import Values
from ...core.raw_memory import first_address as _address
from ...core.settings import matmul_switches
from ...core.storage import UntypedStorage
from ...core.tensor import new_tensor
from ...kernels.llvm_text import Function
from .. import nvidia
from ..cpu import jit, native_call
from . import graphs, products32
from .counters import SIZE

_E4M3, _E5M2 = dt.BY_NAME["float8_e4m3fn"], dt.BY_NAME["float8_e5m2"]

# cudaDataType, cublasComputeType and the type of alpha and beta, by dtype.
DATA_TYPES = {d: d.cuda for d in dt.RECORDS if d.cuda is not None}
_F32, _F32_TF32, _F64 = 68, 77, 70
_ROUTES = {d: (_F64 if d.to_real() is dt.float64 else _F32, dt.opmath(d).cuda) for d in DATA_TYPES}
BIASED = frozenset((dt.float32, dt.float16, dt.bfloat16))  # dtypes whose products take a bias along
_TRANSA, _TRANSB, _EPILOGUE, _BIAS_POINTER, _A_SCALE, _B_SCALE = 3, 4, 7, 8, 17, 18
_FAST_ACCUMULATION, _BIAS_TYPE, _POINTER_MODE = 25, 26, 2
_BATCH_COUNT, _BATCH_OFFSET = 5, 6
_MAX_WORKSPACE, _REDUCTIONS, _ALIGNMENT = 1, 3, 5
_NO_SPLIT_ROUNDING = 0 | 2  # in the compute type only: partial sums are not rounded to the result's type
WORKSPACE = 32 << 20  # bytes that an algorithm may ask for
_LEAST_WORKSPACE = 1 << 20
_LIMIT = 4096  # plans kept by a thread
_CANDIDATES = 8  # algorithms of large products that may be measured
_LARGE = 1e9  # operations of a large product

EPILOGUES = {"": 1, "relu": 2, "bias": 4, "relubias": 6, "gelu": 32, "gelubias": 36}
# Instead of adding a bias, compute sums of the library's first or second factor.
_SUM_FIRST, _SUM_SECOND = 256, 512


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""

    _fields_ = [
        ("algorithm", c_uint64 * 8), ("workspace", c_size_t), ("status", c_int), ("waves", c_float), ("reserved", c_int * 4),
    ]  # fmt: skip


class _Local(threading.local):
    """State of one thread: plans, and the workspaces of streams."""

    def __init__(self) -> None:
        self.plans: dict[tuple[Any, ...], Any] = {}
        self.products: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.workspaces: dict[tuple[Any, ...], list[Any]] = {}  # the one in use last


_local = _Local()


@functools.cache
def _library() -> Any:
    found = nvidia.library("cublasLt")
    found.cublasLtGetStatusString.restype = ctypes.c_char_p
    return found


@functools.cache
def _handle(where: Any) -> c_void_p:
    nvidia.activate(where)
    handle = c_void_p()
    _check(_library().cublasLtCreate(byref(handle)), "cublasLtCreate")
    return handle


def _check(status: int, what: str) -> None:
    if status:
        text = _library().cublasLtGetStatusString(c_int(status)).decode()
        raise nvidia.CudaError(f"CUDA error: {text} when calling `{what}`")


def _workspace(where: Any, stream: int, need: int) -> int:
    """Return the address of memory that products in one stream of one device may use, one after the other. Memory that was too small for one
    is kept: plans and captured graphs have its address."""
    if not need:
        return 0
    found = _local.workspaces.setdefault((where, stream), [])
    if not found or found[-1].size_bytes < need:
        found.append(nvidia.workspace(max(1 << (need - 1).bit_length(), _LEAST_WORKSPACE), where))
    return found[-1].ptr


def forget_workspace(where: Any, stream: int) -> None:
    """Free the workspaces of this thread's products in one stream; plans ask for other memory when they run there again."""
    if _local.workspaces.pop((where, stream), None) is not None:
        for plan in _local.plans.values():
            if plan is not None and plan.stream == stream:
                plan.stream = -1


def matrix_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[bool, int] | None:
    """Return the layout of the last two dimensions: (whether rows are contiguous, distance of one row or column from the next). None if the
    library cannot take it."""
    (rows, columns), (down, right) = shape[-2:], strides[-2:]
    if (right == 1 or columns == 1) and (down >= columns or rows == 1):
        return True, max(columns, down if rows > 1 else columns)
    if (down == 1 or rows == 1) and (right >= rows or columns == 1):
        return False, max(rows, right if columns > 1 else rows)
    return None


# The words of a plan: the arguments that machine code passes to the library, and the place of the result.
_CALL, _HANDLE, _DESCRIPTOR, _ALPHA, _FIRST, _SECOND, _BETA, _RESULT, _ALGORITHM, _SPACE, _SIZE, _STREAM = range(12)
_STATUS, _SETTER, _BIAS = 12, 13, 14


@functools.cache
def _runner() -> Any:
    """Return a function (address of a plan's words, result, first factor, second factor, bias) that calls the library, after setting the
    bias's address if that has changed."""
    if not jit.available() or not native_call.supported():
        return _through_ctypes
    f = Function("define void @lt_run(ptr %table, ptr %out, ptr %first, ptr %second, ptr %bias)")
    w = [f.item("%table", i, "ptr") for i in range(_STATUS)]
    known = f.item("%table", _BIAS, "ptr")
    with f.when(f.compare("ne", "ptr", "%bias", "null")), f.when(f.compare("ne", "ptr", "%bias", known)):
        place = f.place("%table", _BIAS)
        f.write("ptr", "%bias", place)
        setter = f.item("%table", _SETTER, "ptr")
        refused = f.call("i32", setter, f"ptr {w[_DESCRIPTOR]}", f"i32 {_BIAS_POINTER}", f"ptr {place}", "i64 8")
        with f.when(f.compare("ne", "i32", refused, 0)):
            f.write("i64", f.new(f"zext i32 {refused} to i64"), f.place("%table", _STATUS))
            f.ret()
    given = (*w[1:4], "%first", w[4], "%second", w[5], w[6], "%out", w[7], "%out", w[7], *w[8:12])
    status = f.call("i32", w[0], *(f"ptr {value}" for value in given))
    f.write("i64", f.new(f"zext i32 {status} to i64"), f.place("%table", _STATUS))
    return jit.support_function(f, signature="ppppp", brief=True)


def _through_ctypes(table: int, out: int, first: int, second: int, bias: int) -> None:
    words = (c_uint64 * (_BIAS + 1)).from_address(table)
    w = [c_void_p(word) for word in words]
    if bias and bias != words[_BIAS]:
        words[_BIAS] = bias
        given = w[_DESCRIPTOR], c_int(_BIAS_POINTER), c_void_p(table + 8 * _BIAS), c_size_t(8)
        _check(_library().cublasLtMatmulDescSetAttribute(*given), "cublasLtMatmulDescSetAttribute")
    x, y, result = c_void_p(first), c_void_p(second), c_void_p(out)
    words[_STATUS] = _library().cublasLtMatmul(
        w[1], w[2], w[3], x, w[4], y, w[5], w[6], result, w[7], result, w[7], w[8], w[9], w[10], w[11]
    )


class _Plan:
    """Product, ready to be called with addresses."""

    __slots__ = ("words", "table", "descriptor", "flipped", "stream", "where", "kept", "call", "candidates", "quickest",
                 "spans")  # fmt: skip

    def __init__(self, out: Any, a: Any, b: Any, epilogue: str, factors: Values, alignment: int, scales: bool) -> None:
        library = _library()
        self.where = out.device
        compute, scale = _ROUTES[a.dtype]
        if a.dtype is dt.float32 and matmul_switches.allow_tf32:
            compute = _F32_TF32
        self.descriptor = c_void_p()
        _check(library.cublasLtMatmulDescCreate(byref(self.descriptor), c_int(compute), c_int(scale)), "cublasLtMatmul")
        self.kept: tuple[Any, ...] = ()
        row_major, ld = _required(out)
        # The library thinks in columns: rows of the result are columns of its transpose, which is the product of the
        # transposed operands in the other order.
        self.flipped = row_major
        first, second = (b, a) if row_major else (a, b)
        layouts = []
        for t, attribute in ((first, _TRANSA), (second, _TRANSB)):
            order, step = _required(t)
            self._set(attribute, c_int32(int(order != row_major)))
            layouts.append(_layout(t, order, step))
        layouts.append(_layout(out, row_major, ld))
        self.kept = tuple(layouts)
        if epilogue == "sumsbias":
            self._set(_EPILOGUE, c_uint32(_SUM_SECOND if self.flipped else _SUM_FIRST))
        else:
            self._set(_EPILOGUE, c_uint32(EPILOGUES[epilogue]))
        if scales:
            self._set(_FAST_ACCUMULATION, ctypes.c_int8(1))
        if epilogue.endswith("bias"):
            self._set(_BIAS_TYPE, c_int32(DATA_TYPES[out.dtype]))
        large = 2 * out.numel() * a.shape[-1] >= _LARGE and a.dtype in BIASED
        self.candidates = self._choose(layouts, alignment, a.dtype, _CANDIDATES if large else 1)
        algorithm = self.quickest = self.candidates[0]
        self.spans = tuple(1 + sum((n - 1) * s for n, s in zip(t.shape, t._strides)) for t in (out, a, b))
        alpha, beta = (_number(f, scale) for f in factors)
        self.kept += (algorithm, alpha, beta)
        self.stream = -1
        called = (library.cublasLtMatmul, library.cublasLtMatmulDescSetAttribute)
        matmul, setter = (ctypes.cast(f, c_void_p).value or 0 for f in called)
        self.words = (c_uint64 * (_BIAS + 1))(
            matmul, _handle(self.where).value or 0, self.descriptor.value or 0,
            ctypes.addressof(alpha), layouts[0].value or 0, layouts[1].value or 0, ctypes.addressof(beta), layouts[2].value or 0,
            ctypes.addressof(algorithm), 0, algorithm.workspace, 0, 0, setter,
        )  # fmt: skip
        self.table = ctypes.addressof(self.words)
        self.call = _runner()

    def _set(self, attribute: int, value: Any) -> None:
        status = _library().cublasLtMatmulDescSetAttribute(
            self.descriptor, c_int(attribute), byref(value), c_size_t(ctypes.sizeof(value))
        )
        _check(status, "cublasLtMatmulDescSetAttribute")

    def _choose(self, layouts: list[Any], alignment: int, d: Any, most: int) -> list[_Heuristic]:
        """Return the algorithms that the library recommends, the best by its heuristic first."""
        library = _library()
        wishes = c_void_p()
        _check(library.cublasLtMatmulPreferenceCreate(byref(wishes)), "cublasLtMatmulPreferenceCreate")
        settings: list[tuple[int, Any]] = [(_MAX_WORKSPACE, c_uint64(WORKSPACE))]
        settings += [(_ALIGNMENT + i, c_uint32(alignment)) for i in range(4)]
        if (d is dt.float16 and not matmul_switches.allow_fp16_reduced_precision_reduction) or (
            d is dt.bfloat16 and not matmul_switches.allow_bf16_reduced_precision_reduction
        ):
            settings.append((_REDUCTIONS, c_uint32(_NO_SPLIT_ROUNDING)))
        try:
            for attribute, value in settings:
                size = c_size_t(ctypes.sizeof(value))
                _check(library.cublasLtMatmulPreferenceSetAttribute(wishes, c_int(attribute), byref(value), size), "")
            found, count = (_Heuristic * most)(), c_int()
            status = library.cublasLtMatmulAlgoGetHeuristic(
                _handle(self.where),
                self.descriptor,
                *layouts,
                layouts[2],
                wishes,
                c_int(most),
                byref(found),
                byref(count),
            )
            if not status and (not count.value or found[0].status):
                status = 15  # not supported
            _check(status, "cublasLtMatmulAlgoGetHeuristic")
            return [one for one in found[: count.value] if not one.status]
        finally:
            library.cublasLtMatmulPreferenceDestroy(wishes)

    def run(self, out: int, a: int, b: int, bias: int, scales: tuple[int, int] | None = None) -> None:
        stream = nvidia.current_stream(self.where)
        held = None if stream == self.stream else self._enter(stream)
        if scales is not None:
            self._set(_A_SCALE, c_void_p(scales[1] if self.flipped else scales[0]))
            self._set(_B_SCALE, c_void_p(scales[0] if self.flipped else scales[1]))
        if self.flipped:
            self.call(self.table, out, b, a, bias)
        else:
            self.call(self.table, out, a, b, bias)
        del held
        if self.words[_STATUS]:
            _check(self.words[_STATUS], "cublasLtMatmul")

    @property
    def bias(self) -> int:
        """Return the address of the bias that was added last; 0 if there was none."""
        return self.words[_BIAS]

    def use(self, algorithm: _Heuristic) -> None:
        """Set the algorithm that is used from now on."""
        self.words[_ALGORITHM], self.words[_SIZE] = ctypes.addressof(algorithm), algorithm.workspace
        self.stream = -1

    def _enter(self, stream: int) -> UntypedStorage | None:
        """Run on another stream than before. A graph has a workspace for this product only, which is returned to be held until it is
        captured, and the fastest algorithm known; eager calls always use the same one, whatever was measured meanwhile."""
        captured = self.where.memory.is_captured(stream)
        self.use(self.quickest if captured else self.candidates[0])
        self.words[_STREAM], need = stream, self.words[_SIZE]
        if not captured:
            self.words[_SPACE], self.stream = _workspace(self.where, stream, need), stream
            return None
        self.stream = -1
        graph = graphs.captured_on(self.where.index or 0)
        if graph is not None and graph.counters is not None and 0 < need <= SIZE:
            self.words[_SPACE] = graph.counters.take()
            if self.words[_SPACE]:
                return None
        space = nvidia.workspace(need, self.where) if need else None
        self.words[_SPACE] = 0 if space is None else space.ptr
        return space

    def __del__(self, finalizing: Any = sys.is_finalizing) -> None:
        if finalizing():  # the driver may be gone
            return
        library = _library()
        for layout in self.kept[:3]:
            library.cublasLtMatrixLayoutDestroy(layout)
        library.cublasLtMatmulDescDestroy(self.descriptor)


def _required(t: Any) -> tuple[bool, int]:
    found = matrix_order(t.shape, t._strides)
    if found is None:
        raise RuntimeError("cublasLt: a matrix whose rows and columns both have gaps must be copied first")
    return found


def _layout(t: Any, row_major: bool, step: int) -> c_void_p:
    """Return the library's description of a matrix, by columns."""
    rows, columns = t.shape[-2:]
    tall, wide = (columns, rows) if row_major else (rows, columns)
    layout = c_void_p()
    library = _library()
    kind = c_int(DATA_TYPES[t.dtype])
    _check(
        library.cublasLtMatrixLayoutCreate(byref(layout), kind, c_uint64(tall), c_uint64(wide), c_int64(step)),
        "cublasLtMatrixLayoutCreate",
    )
    if len(t.shape) == 3:
        for attribute, value in ((_BATCH_COUNT, c_int32(t.shape[0])), (_BATCH_OFFSET, c_int64(t._strides[0]))):
            size = c_size_t(ctypes.sizeof(value))
            _check(
                library.cublasLtMatrixLayoutSetAttribute(layout, c_int(attribute), byref(value), size), "cublasLtMatmul"
            )
    return layout


def _number(value: complex, scale_type: int) -> Any:
    kind = ctypes.c_double if scale_type in (1, 5) else c_float
    if scale_type < 4:
        return kind(value.real)
    return (kind * 2)(value.real, value.imag)


def plan_key(out: Any, a: Any, b: Any, bias: Any, epilogue: str, alpha: complex, beta: complex) -> tuple[Any, ...]:
    """Return the key of a plan: everything but addresses, of which only the alignment counts."""
    together = (_address(a) | _address(b) | _address(out)) & 255
    return (
        a.shape, b.shape, a._strides, b._strides, out._strides, a.dtype, b.dtype, out.dtype, out.device,
        epilogue if bias is None else f"{epilogue}bias", alpha, beta, together and together & -together, matmul_switches.state,
    )  # fmt: skip


def plans(where: Any) -> list[tuple[tuple[Any, ...], _Plan]]:
    """Return the library's products that this thread has computed on a device, with their keys."""
    return [(k, p) for k, p in _local.plans.items() if isinstance(p, _Plan) and p.where is where]


def version() -> int:
    """Return the version of cuBLASLt."""
    _library().cublasLtGetVersion.restype = c_size_t
    return _library().cublasLtGetVersion()


def known_plan(out: Any, a: Any, b: Any, bias: Any, alpha: complex, beta: complex) -> Any:
    """Return the plan for operands like these, or None."""
    return _local.plans.get(plan_key(out, a, b, bias, "", alpha, beta))


def run(plan: Any, out: Any, a: Any, b: Any, bias: Any) -> None:
    plan.run(_address(out), _address(a), _address(b), 0 if bias is None else _address(bias))


def matmul(
    out: Any,
    a: Any,
    b: Any,
    bias: Any = None,
    epilogue: str = "",
    alpha: complex = 1,
    beta: complex = 0,
    scales: Any = None,
) -> None:
    """Compute out = alpha * a @ b + beta * out, then add the row `bias` to every row and apply the epilogue's function. Matrices, or batches
    of them (three dimensions) with any distance from one to the next; each is stored by rows or by columns (`matrix_order`). float8 factors
    come with `scales`, tensors of one float32 for each."""
    if scales is not None:
        kind = (a.shape, b.shape, a._strides, b._strides, out._strides, a.dtype, b.dtype, out.dtype, out.device)
        plan = _local.plans.get(kind)
        if plan is None:
            nvidia.activate(out.device)
            plan = _local.plans[kind] = _Plan(out, a, b, epilogue, (alpha, beta), 16, True)
        plan.run(_address(out), _address(a), _address(b), 0, (_address(scales[0]), _address(scales[1])))
        return
    key = plan_key(out, a, b, bias, epilogue, alpha, beta)
    plan = _local.plans.get(key)
    if plan is None:
        nvidia.activate(out.device)
        if len(_local.plans) >= _LIMIT:
            _local.plans.clear()
            _local.products.clear()
        plan = _own_plan(out, a, b, key, alpha, beta) or _Plan(out, a, b, key[9], (alpha, beta), key[12] or 256, False)
        _local.plans[key] = plan
    run(plan, out, a, b, bias)


def sum_columns(out: Any, a: Any, b: Any, sums: Any) -> bool:
    """Compute out = a @ b, and sums = those of the rows of a. Return False, having done nothing, if the library does not do both at once."""
    sizes = (*out.shape, *a.shape)
    if a.dtype not in BIASED or 0 in sizes or 1 in sizes:
        return False
    if a.dtype is not dt.float32 and any(n % 8 for n in sizes):
        return False  # measured: the library has only a slow way for odd sizes of these
    if any(matrix_order(t.shape, t._strides) is None for t in (out, a, b)):
        return False
    key = plan_key(out, a, b, sums, "sums", 1, 0)
    plan = _local.plans.get(key, _MISSING)
    if plan is _MISSING:
        plan = _local.plans[key] = _summing_plan(out, a, b, key)
    if plan is not None:
        run(plan, out, a, b, sums)
    return plan is not None


def _summing_plan(out: Any, a: Any, b: Any, key: Values) -> Any:
    nvidia.activate(out.device)
    try:
        return _own_plan(out, a, b, key, 1, 0) or _Plan(out, a, b, "sumsbias", (1, 0), key[12] or 256, False)
    except nvidia.CudaError:  # the heuristic knows no such algorithm
        return None


_MISSING = object()


def _own_plan(out: Any, a: Any, b: Any, key: Values, alpha: complex, beta: complex) -> Any:
    """Return the plan of a small float32 product for our own kernels, which are faster than the library's; else None."""
    plain = (
        alpha == 1
        and beta == 0
        and key[9] in ("", "bias", "sumsbias")
        and len(out.shape) == len(a.shape) == len(b.shape) == 2
    )
    if not plain or a.dtype is not dt.float32 or matmul_switches.allow_tf32:
        return None
    sizes = (out.shape[0], out.shape[1], a.shape[1])
    return products32.plan(
        out.device, sizes, _required(out), _required(a), _required(b), key[12] or 256, key[9] == "sumsbias"
    )


# -- products that were computed before ---------------------------------------------------------------------------------------


def _product_key(form: str, a: Any, b: Any, bias: Any) -> tuple[Any, ...]:
    size = a.dtype.itemsize
    together = (a._storage.ptr + a._offset * size | b._storage.ptr + b._offset * size) & 255
    return (
        form, a.shape, b.shape, a._strides, b._strides, a.dtype, b.dtype, a.device, b.device,
        bias if bias is None else (bias.shape, bias._strides, bias.dtype, bias.device), together and together & -together,
        matmul_switches.state,
    )  # fmt: skip


def keep_product(form: str, a: Any, b: Any, bias: Any, out: Any, plan: Any) -> None:
    """Cache the plan of the operator `form` for operands like a, b and bias, at their addresses."""
    if plan is not None and out._contig:
        size = out.dtype.itemsize
        numel = out._storage.size_bytes // size
        _local.products[_product_key(form, a, b, bias)] = (plan, numel * size, out.shape, out._strides, out.dtype)


def known_product(form: str, a: Any, b: Any, bias: Any = None) -> Any:
    """Return the product in a new tensor, if one of operands like these was cached under `form`; else None."""
    found = _local.products.get(_product_key(form, a, b, bias))
    if found is None:
        return None
    plan, nbytes, shape, strides, d = found
    where = plan.where
    storage = UntypedStorage(nbytes, where)
    size = a.dtype.itemsize
    plan.run(
        storage.ptr, a._storage.ptr + a._offset * size, b._storage.ptr + b._offset * size,
        0 if bias is None else bias._storage.ptr + bias._offset * size,
    )  # fmt: skip
    return new_tensor(storage, shape, strides, 0, d, where, True)
