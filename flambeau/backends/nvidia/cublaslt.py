"""Matrix products by cuBLASLt.

A product is described once: for operands of the same shapes, strides, dtypes and alignment the descriptors, the algorithm that the
library's heuristic recommends and the argument list are kept by thread, and the next call only puts addresses in place."""

from __future__ import annotations

import ctypes
import functools
import threading
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from ...core import dtype as dt
from ...core.settings import matmul_switches
from .. import nvidia

_E4M3, _E5M2 = dt.BY_NAME["float8_e4m3fn"], dt.BY_NAME["float8_e5m2"]

# cudaDataType, cublasComputeType and the type of alpha and beta, by dtype.
DATA_TYPES = {
    dt.float32: 0, dt.float64: 1, dt.float16: 2, dt.bfloat16: 14, dt.complex64: 4, dt.complex128: 5,
    _E4M3: 28, _E5M2: 29,
}  # fmt: skip
_F32, _F32_TF32, _F64 = 68, 77, 70
_ROUTES = {
    dt.float32: (_F32, 0), dt.float64: (_F64, 1), dt.float16: (_F32, 0), dt.bfloat16: (_F32, 0), dt.complex64: (_F32, 4),
    dt.complex128: (_F64, 5), _E4M3: (_F32, 0), _E5M2: (_F32, 0),
}  # fmt: skip
BIASED = frozenset((dt.float32, dt.float16, dt.bfloat16))  # dtypes whose products take a bias along
_TRANSA, _TRANSB, _EPILOGUE, _BIAS_POINTER, _A_SCALE, _B_SCALE = 3, 4, 7, 8, 17, 18
_FAST_ACCUMULATION, _BIAS_TYPE, _POINTER_MODE = 25, 26, 2
_BATCH_COUNT, _BATCH_OFFSET = 5, 6
_MAX_WORKSPACE, _REDUCTIONS, _ALIGNMENT = 1, 3, 5
_NO_SPLIT_ROUNDING = 0 | 2  # in the compute type only: partial sums are not rounded to the result's type
_WORKSPACE = 32 << 20
_LIMIT = 4096  # plans kept by a thread

EPILOGUES = {"": 1, "relu": 2, "bias": 4, "relubias": 6, "gelu": 32, "gelubias": 36}


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""

    _fields_ = [
        ("algorithm", c_uint64 * 8), ("workspace", c_size_t), ("status", c_int), ("waves", c_float), ("reserved", c_int * 4),
    ]  # fmt: skip


class _Local(threading.local):
    """What belongs to one thread: plans, and the workspaces of streams."""

    def __init__(self) -> None:
        self.plans: dict[tuple, Any] = {}
        self.workspaces: dict[tuple, Any] = {}


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


def _workspace(where: Any, stream: int) -> int:
    """The address of memory that products in one stream of one device may use, one after the other."""
    key = (where, stream)
    found = _local.workspaces.get(key)
    if found is None:
        found = _local.workspaces[key] = nvidia.workspace(_WORKSPACE, where)
    return found.ptr


def matrix_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[bool, int] | None:
    """How the last two dimensions lie in memory: (whether rows are contiguous, distance of one row or column from the next). None if
    the library cannot take them as they are."""
    (rows, columns), (down, right) = shape[-2:], strides[-2:]
    if (right == 1 or columns == 1) and (down >= columns or rows == 1):
        return True, max(columns, down if rows > 1 else columns)
    if (down == 1 or rows == 1) and (right >= rows or columns == 1):
        return False, max(rows, right if columns > 1 else rows)
    return None


class _Plan:
    """One product, ready to be called with addresses."""

    __slots__ = (
        "call",
        "descriptor",
        "pointers",
        "arguments",
        "stream",
        "workspace",
        "bias",
        "where",
        "kept",
        "factors",
    )

    def __init__(self, out: Any, a: Any, b: Any, epilogue: str, factors: tuple, alignment: int, scales: bool) -> None:
        library = _library()
        self.call = library.cublasLtMatmul
        self.where = out.device
        compute, scale = _ROUTES[a.dtype]
        if a.dtype is dt.float32 and matmul_switches.allow_tf32:
            compute = _F32_TF32
        self.descriptor = c_void_p()
        _check(library.cublasLtMatmulDescCreate(byref(self.descriptor), c_int(compute), c_int(scale)), "cublasLtMatmul")
        row_major, ld = _required(out)
        # The library thinks in columns: rows of the result are columns of its transpose, which is the product of the
        # transposed operands in the other order.
        first, second = (b, a) if row_major else (a, b)
        layouts = []
        for t, attribute in ((first, _TRANSA), (second, _TRANSB)):
            order, step = _required(t)
            self._set(attribute, c_int32(int(order != row_major)))
            layouts.append(_layout(t, order, step))
        result = _layout(out, row_major, ld)
        self._set(_EPILOGUE, c_uint32(EPILOGUES[epilogue]))
        if scales:
            self._set(_FAST_ACCUMULATION, ctypes.c_int8(1))
        if epilogue.endswith("bias"):
            self._set(_BIAS_TYPE, c_int32(DATA_TYPES[out.dtype]))
        algorithm = self._choose(layouts, result, alignment, a.dtype)
        self.factors = tuple(_number(f, scale) for f in factors)
        self.pointers = one, two, three, space, stream = tuple(c_void_p() for _ in range(5))
        if not row_major:
            one, two = two, one
            self.pointers = (two, one, three, space, stream)
        self.kept = (*layouts, result, algorithm)
        self.stream = self.bias = -1
        alpha, beta = self.factors
        self.arguments = (
            _handle(self.where), self.descriptor, byref(alpha), one, layouts[0], two, layouts[1], byref(beta), three, result,
            three, result, byref(algorithm.algorithm), space, c_size_t(_WORKSPACE), stream,
        )  # fmt: skip

    def _set(self, attribute: int, value: Any) -> None:
        status = _library().cublasLtMatmulDescSetAttribute(
            self.descriptor, c_int(attribute), byref(value), c_size_t(ctypes.sizeof(value))
        )
        _check(status, "cublasLtMatmulDescSetAttribute")

    def _choose(self, layouts: list, result: c_void_p, alignment: int, d: Any) -> _Heuristic:
        library = _library()
        wishes = c_void_p()
        _check(library.cublasLtMatmulPreferenceCreate(byref(wishes)), "cublasLtMatmulPreferenceCreate")
        settings: list[tuple[int, Any]] = [(_MAX_WORKSPACE, c_uint64(_WORKSPACE))]
        settings += [(_ALIGNMENT + i, c_uint32(alignment)) for i in range(4)]
        if (d is dt.float16 and not matmul_switches.allow_fp16_reduced_precision_reduction) or (
            d is dt.bfloat16 and not matmul_switches.allow_bf16_reduced_precision_reduction
        ):
            settings.append((_REDUCTIONS, c_uint32(_NO_SPLIT_ROUNDING)))
        try:
            for attribute, value in settings:
                size = c_size_t(ctypes.sizeof(value))
                _check(library.cublasLtMatmulPreferenceSetAttribute(wishes, c_int(attribute), byref(value), size), "")
            found, count = _Heuristic(), c_int()
            status = library.cublasLtMatmulAlgoGetHeuristic(
                _handle(self.where),
                self.descriptor,
                *layouts,
                result,
                result,
                wishes,
                c_int(1),
                byref(found),
                byref(count),
            )
            if not status and (not count.value or found.status):
                status = 15  # not supported
            _check(status, "cublasLtMatmulAlgoGetHeuristic")
            return found
        finally:
            library.cublasLtMatmulPreferenceDestroy(wishes)

    def run(self, out: int, a: int, b: int, bias: int, scales: tuple[int, int] | None = None) -> None:
        stream = nvidia.current_stream(self.where)
        one, two, three, space, queue = self.pointers
        # (one, two) are where the right and the left factor's addresses go.
        one.value, two.value, three.value = b, a, out
        if stream != self.stream:
            queue.value, space.value = stream, _workspace(self.where, stream)
            self.stream = stream
        if bias != self.bias:
            if bias:
                self._set(_BIAS_POINTER, c_void_p(bias))
            self.bias = bias
        if scales is not None:
            self._set(_A_SCALE, c_void_p(scales[1]))
            self._set(_B_SCALE, c_void_p(scales[0]))
        status = self.call(*self.arguments)
        if status:
            _check(status, "cublasLtMatmul")

    def __del__(self) -> None:
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
    """The matrix as it lies, seen in columns."""
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


def _address(t: Any) -> int:
    return t._storage.ptr + t._offset * t.dtype.itemsize


def run_known(out: Any, a: Any, b: Any, bias: Any, epilogue: str, alpha: complex, beta: complex) -> tuple | None:
    """`matmul`, if there is a plan for operands like these; else what it will be kept under, and nothing is computed."""
    size = a.dtype.itemsize
    left, right = a._storage.ptr + a._offset * size, b._storage.ptr + b._offset * size
    result = out._storage.ptr + out._offset * out.dtype.itemsize
    together = (left | right | result) & 255
    if bias is not None:
        epilogue += "bias"
    key = (
        a.shape, b.shape, a._strides, b._strides, out._strides, a.dtype, b.dtype, out.dtype, out.device, epilogue, alpha, beta,
        together and together & -together, matmul_switches.state,
    )  # fmt: skip
    plan = _local.plans.get(key)
    if plan is None:
        return key
    plan.run(result, left, right, 0 if bias is None else bias._storage.ptr + bias._offset * bias.dtype.itemsize)
    return None


def matmul(
    out: Any, a: Any, b: Any, bias: Any = None, epilogue: str = "", alpha: complex = 1, beta: complex = 0, scales: Any = None
) -> None:
    """out = alpha * a @ b + beta * out, then the row `bias` is added to every row and the epilogue's function applied. Matrices, or
    batches of them (three dimensions) with any distance from one to the next; each lies by rows or by columns (`matrix_order`).
    float8 factors come with `scales`, tensors of one float32 for each."""
    if scales is not None:
        key: Any = (a.shape, b.shape, a._strides, b._strides, out._strides, a.dtype, b.dtype, out.dtype, out.device)
        plan = _local.plans.get(key)
        if plan is None:
            nvidia.activate(out.device)
            plan = _local.plans[key] = _Plan(out, a, b, epilogue, (alpha, beta), 16, True)
        plan.run(_address(out), _address(a), _address(b), 0, (_address(scales[0]), _address(scales[1])))
        return
    key = run_known(out, a, b, bias, epilogue, alpha, beta)
    if key is None:
        return
    nvidia.activate(out.device)
    if len(_local.plans) >= _LIMIT:
        _local.plans.clear()
    _local.plans[key] = _Plan(out, a, b, key[9], (alpha, beta), key[12] or 256, False)
    run_known(out, a, b, bias, epilogue, alpha, beta)
