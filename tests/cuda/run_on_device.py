"""Compile generated CUDA kernels with NVRTC, run them on a GPU and compare with NumPy.

    python tests/cuda/run_on_device.py            all checks, then timings
    python tests/cuda/run_on_device.py --compile  only compile, for sm_90 (no GPU needed)

Needs NumPy and cuda.bindings. Exits with 1 if anything differs.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cuda.bindings import driver, nvrtc  # noqa: E402

from flambeau.core import dtype as dt  # noqa: E402
from flambeau.core.dtype import bfloat16, dtype, float16, float32, float64, int32, int64, uint8  # noqa: E402
from flambeau.expr import functions as F  # noqa: E402
from flambeau.expr.node import Expr, arg  # noqa: E402
from flambeau.kernels import emit_cuda, emit_numpy  # noqa: E402
from flambeau.kernels.cuda_schedules import (  # noqa: E402
    BLOCK,
    UNROLL,
    map_source,
    partial_bytes,
    plan_reduction,
    reduce_source,
)
from flambeau.kernels.library import index, layer_norm, scan, softmax, sort  # noqa: E402

TOLERANCE = {float16: 2e-3, bfloat16: 1.6e-2, float32: 2e-5, float64: 1e-12}
X, Y, Z = arg(0), arg(1), arg(2)
rng = np.random.default_rng(0)


def check(result: tuple) -> Any:
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(f"{status!r}")
    return values[0] if len(values) == 1 else values


class Device:
    """The few driver calls a test needs."""

    def __init__(self, compile_only: bool):
        self.compile_only = compile_only
        self.compiled, self.compile_seconds = 0, 0.0
        self.architecture = b"--gpu-architecture=sm_90"
        self.processors = 132
        if compile_only:
            return
        check(driver.cuInit(0))
        self.device = check(driver.cuDeviceGet(0))
        check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(self.device))))
        attribute = driver.CUdevice_attribute
        major, minor, self.processors = (
            check(driver.cuDeviceGetAttribute(a, self.device))
            for a in (
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            )
        )
        self.architecture = f"--gpu-architecture=sm_{major}{minor}".encode()

    def compile(self, source: str) -> Any:
        started = time.perf_counter()
        program = check(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
        options = [self.architecture, b"--std=c++17"]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if int(status) != 0:
            log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
            nvrtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(f"NVRTC: {log.decode()}\n{source}")
        binary = b" " * check(nvrtc.nvrtcGetCUBINSize(program))
        check(nvrtc.nvrtcGetCUBIN(program, binary))
        self.compiled += 1
        self.compile_seconds += time.perf_counter() - started
        return None if self.compile_only else check(driver.cuModuleLoadData(binary))

    def launch(self, module: Any, name: str, blocks: int, threads: int, *arguments: Any) -> None:
        """Arrays are device pointers (int from upload), bytes a struct by value, int int64, float float64."""
        function = check(driver.cuModuleGetFunction(module, name.encode()))
        held = [_argument(a) for a in arguments]
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(h) for h in held))
        check(driver.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, 0, ctypes.addressof(pointers), 0))

    def upload(self, array: np.ndarray) -> Pointer:
        pointer = Pointer(int(check(driver.cuMemAlloc(max(array.nbytes, 1)))))
        if array.nbytes:
            check(driver.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes))
        return pointer

    def download(self, pointer: int, into: np.ndarray) -> np.ndarray:
        check(driver.cuCtxSynchronize())
        if into.nbytes:
            check(driver.cuMemcpyDtoH(into.ctypes.data, pointer, into.nbytes))
        return into

    def milliseconds(self, run: Callable[[], None], repeat: int = 20) -> float:
        first, last = check(driver.cuEventCreate(0)), check(driver.cuEventCreate(0))
        run()
        best = float("inf")
        for _ in range(repeat):
            check(driver.cuEventRecord(first, 0))
            run()
            check(driver.cuEventRecord(last, 0))
            check(driver.cuEventSynchronize(last))
            best = min(best, check(driver.cuEventElapsedTime(first, last)))
        return best


class Pointer(int):
    """A device address."""


def _argument(a: Any) -> Any:
    if isinstance(a, bytes):
        return (ctypes.c_char * len(a)).from_buffer_copy(a)
    if isinstance(a, float):
        return ctypes.c_double(a)
    return ctypes.c_uint64(a) if isinstance(a, Pointer) else ctypes.c_int64(a)


# --- numbers -------------------------------------------------------------------------------------------------------


def sample(shape: tuple, kind: dtype, positive: bool = False) -> np.ndarray:
    """Random memory of a dtype (bfloat16 as its bits), with a few special values in front."""
    if kind is dt.bool_:
        return rng.random(shape) < 0.5
    if not kind.is_floating_point:
        return rng.integers(0 if not kind.is_signed or positive else -50, 50, shape).astype(kind.numpy)
    values = rng.normal(size=shape).astype("f4") * 2
    if positive:
        values = np.abs(values) + np.float32(0.01)
    else:
        values.reshape(-1)[:4] = [0.0, -0.0, np.inf, np.nan]
    if kind is bfloat16:
        return (values.view("u4") >> 16).astype("u2")
    return values.astype(kind.numpy)


def numbers(memory: np.ndarray, kind: dtype) -> np.ndarray:
    if kind is bfloat16:
        return (memory.astype("u4") << 16).view("f4")
    return memory


class Report:
    def __init__(self, active: bool) -> None:
        self.active, self.passed, self.failed = active, 0, 0

    def compare(self, name: str, got: np.ndarray, expected: np.ndarray, kind: dtype, scale: float = 1.0) -> None:
        if not self.active:
            return
        tolerance = TOLERANCE.get(kind, 0) * scale
        got, expected = numbers(got, kind), numbers(expected, kind)
        try:
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
            self.passed += 1
        except AssertionError as error:
            self.failed += 1
            print(f"FAILED {name}: {str(error).strip()[:600]}")


# --- checks --------------------------------------------------------------------------------------------------------

UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf"
    " erfc erfinv lgamma digamma floor ceil trunc round_ abs_ sign isnan isinf isfinite signbit logical_not sigmoid"
)
UNARY_NAMES = UNARY.split()  # noqa: SIM905
BINARY_NAMES = ["minimum", "maximum", "fmin", "fmax", "fmod", "floordiv", "atan2", "copysign", "pow_"]


def check_maps(device: Device, report: Report) -> None:
    cases: list[tuple[str, Expr, tuple[dtype, ...], dtype]] = []
    for kind in (float32, float64):
        for name in UNARY_NAMES:
            root = getattr(F, name)(X)
            predicate = name in ("isnan", "isinf", "isfinite", "signbit", "logical_not")
            cases.append((name, root, (kind,), dt.bool_ if predicate else kind))
        cases += [(name, getattr(F, name)(X, Y), (kind, kind), kind) for name in BINARY_NAMES]
    for kind in (float16, bfloat16):
        cases.append(("gelu", X * F.gelu_gate(X), (kind,), kind))
        cases.append(("mixed", F.where(X > Y, X * 2.5, Y - 1), (kind, float32), kind))
    for kind in (int32, int64, uint8):
        cases += [
            ("arithmetic", X * 3 + Y // 7 - X % 5, (kind, kind), kind),
            ("bits", (X & Y) | (X ^ 5), (kind, kind), kind),
            ("division", F.floordiv(X, Y), (kind, kind), kind),
            ("to float", X / 4, (kind,), float32),
        ]
    cases.append(("bool", X | (Y > 0), (dt.bool_, float32), dt.bool_))
    cases.append(("three", F.fma(X, Y, Z), (float32, float32, float32), float32))
    for name, root, kinds, out in cases:
        label = f"map {name} {[k.name for k in kinds]}"
        inputs = [sample((5000,), k) for k in kinds]
        source = map_source("m", (root,), kinds, (out,), "c" * (len(kinds) + 1), 1)
        module = device.compile(source)
        if device.compile_only:
            continue
        (expected,) = emit_numpy.evaluate((root,), inputs, kinds, (out,))
        got = _run_map(device, module, inputs, np.empty_like(expected))
        report.compare(label, got, expected, out, scale=8 if name in ("digamma", "lgamma", "pow_", "erfinv") else 1)


def _run_map(device: Device, module: Any, inputs: list[np.ndarray], out: np.ndarray, *extra: Any) -> np.ndarray:
    pointers = [device.upload(a) for a in inputs]
    target = device.upload(out)
    device.launch(module, "m", -(-out.size // (BLOCK * UNROLL)), BLOCK, *extra, out.size, target, *pointers)
    return device.download(target, out)


def check_strided(device: Device, report: Report) -> None:
    for narrow in (True, False):
        kinds = (float32, float16)
        source = map_source("m", (X * Y + 1,), kinds, (float32,), "csb", 3, narrow)
        module = device.compile(source)
        if device.compile_only:
            continue
        x, y = sample((6, 7, 8), float32), sample((7, 1), float16)
        transposed = x.transpose(2, 1, 0)  # (8, 7, 6)
        geometry = np.array([8, 7, 6, 42, 6, 1, 1, 8, 56, 0, 1, 0], "i8").tobytes()
        got = _run_map(device, module, [x, y], np.empty((8, 7, 6), "f4"), geometry)
        report.compare("map strided", got, transposed * y.astype("f4") + 1, float32)


REDUCTIONS: dict[str, Callable] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "any": np.any,
    "all": np.all,
    "argmax": np.argmax,
    "argmin": np.argmin,
}


def check_reductions(device: Device, report: Report) -> None:
    for combine, reference in REDUCTIONS.items():
        for rows, columns in ((1, 100000), (300, 40), (7, 5000), (5000, 3)):
            for along in ("reduced", "kept"):
                _check_reduction(device, report, combine, reference, rows, columns, along)


def _check_reduction(device: Device, report: Report, combine: str, reference: Callable, rows: int, columns: int,
                     along: str) -> None:  # fmt: skip
    """Reduce a (rows, columns) matrix to its rows; stored column by column if the results are to be read in order."""
    plan = plan_reduction(rows, columns, along, 4 * device.processors)
    out_kind = int64 if combine.startswith("arg") else dt.bool_ if combine in ("any", "all") else float32
    source = reduce_source("r", X, combine, None, (float32,), out_kind, float32, 1, 1, "c", plan)
    module = device.compile(source)
    if device.compile_only:
        return
    x = rng.normal(size=(rows, columns)).astype("f4")
    if combine == "prod":
        x = 1 + x / columns
    elif combine == "any":
        x = (rng.random(x.shape) < 1 / columns).astype("f4")
    elif combine == "all":
        x = (rng.random(x.shape) > 1 / columns).astype("f4")
    elif columns > 2:
        x[rows // 2, columns // 2] = np.nan
    held = np.ascontiguousarray(x.T) if along == "kept" else x
    strides = (1, rows) if along == "kept" else (columns, 1)
    geometry = np.array([rows, columns, 1, *strides], "i8").tobytes()
    out = np.empty(rows, out_kind.numpy)
    partial = device.upload(np.zeros(rows * plan.splits * partial_bytes(combine, float32), "u1"))
    target = device.upload(out)
    blocks = min(plan.blocks(rows), 8 * device.processors)
    device.launch(module, "r", blocks, BLOCK, geometry, rows, columns, partial, target, device.upload(held))
    if plan.splits > 1:
        device.launch(module, "r_finish", -(-rows // BLOCK), BLOCK, geometry, rows, columns, partial, target)
    expected = reference(x.astype("f8") if combine in ("sum", "prod") else x, axis=1).astype(out.dtype)
    # Rounding a running product just above one by factors just below it always falls on the same side: errors add up.
    slack = 100 if combine == "prod" else 5
    report.compare(
        f"{combine} {rows}x{columns} {along} {plan}", device.download(target, out), expected, out_kind, slack
    )


def run_loop_kernel(device: Device, kernel: Any, arrays: list, scalars: list, **constants: Any) -> list[np.ndarray]:
    """Run a loop kernel on copies of `arrays` (None allowed); returns the arrays afterwards."""
    kinds = [None if a is None else dt.FROM_NUMPY[a.dtype] for a in arrays]
    lowered = kernel.lower(*kinds, *map(type, scalars), **constants)
    module = device.compile(emit_cuda.emit(lowered))
    given = [a for a in arrays if a is not None]
    if device.compile_only:
        return given
    pointers = [device.upload(a) for a in given]
    names = [p.name for p in lowered.params if not hasattr(p, "local_size")]
    for part in emit_cuda.launches(lowered):
        count = part.iterations(dict(zip(names, scalars)))
        blocks = 1 if count == 1 else 4 * device.processors if count is None else max(1, -(-count // 128))
        threads = 1 if not part.parallel else 128
        device.launch(module, part.name, blocks, threads, *pointers, *scalars)
    return [device.download(p, np.empty_like(a)) for p, a in zip(pointers, given)]


def check_loop_kernels(device: Device, report: Report) -> None:
    x = rng.normal(size=(33, 200)).astype("f4")
    blank = np.zeros_like(x)
    y, _ = run_loop_kernel(device, softmax.softmax_rows, [blank, x], [33, 200])
    e = np.exp(x - x.max(1, keepdims=True))
    report.compare("softmax", y, e / e.sum(1, keepdims=True), float32)
    y, _ = run_loop_kernel(device, softmax.softmax_columns, [blank, x], [33, 20, 10], log_result=True)
    cube = x.reshape(33, 20, 10)
    expected = cube - cube.max(1, keepdims=True)
    expected = expected - np.log(np.exp(expected).sum(1, keepdims=True))
    report.compare("log_softmax along the middle", y, expected.reshape(33, 200), float32)
    w, b, stat = rng.normal(size=(3, 200)).astype("f4")
    y, *_ = run_loop_kernel(device, layer_norm.layer_norm, [blank, stat, stat, x, w, b], [33, 200, 1e-5])
    hat = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    report.compare("layer_norm", y, hat * w + b, float32, 5)
    y, _ = run_loop_kernel(device, scan.cumulate, [blank, x], [33, 200, 1], op="sum")
    report.compare("cumsum", y, np.cumsum(x, 1), float32, 5)
    places, error = rng.integers(0, 200, x.shape), np.zeros(2, "i8")
    y, *_ = run_loop_kernel(device, index.gather, [blank, x, places, error], [33, 200, 200, 1])
    report.compare("gather", y, np.take_along_axis(x, places, 1), float32)
    order = np.zeros(x.shape, "i8")
    y, o, *_ = run_loop_kernel(device, sort.sort_rows, [x, order, blank, order], [33, 200], descending=False)
    report.compare("sort", y, np.sort(x, 1), float32)
    report.compare("sort order", o, np.argsort(x, 1, kind="stable"), int64)


# --- timings -------------------------------------------------------------------------------------------------------


def timings(device: Device) -> None:
    n = 1 << 28
    a, b, c = (check(driver.cuMemAlloc(4 * n)) for _ in range(3))
    for pointer in (a, b):
        check(driver.cuMemsetD32(pointer, 0x3F800000, n))
    pointers = [Pointer(int(p)) for p in (c, a, b)]
    module = device.compile(map_source("m", (X + Y,), (float32, float32), (float32,), "ccc", 1))
    blocks = -(-n // (BLOCK * UNROLL))
    elapsed = device.milliseconds(lambda: device.launch(module, "m", blocks, BLOCK, n, *pointers))
    print(f"add of 2^28 float32: {elapsed:.3f} ms, {12 * n / elapsed / 1e9:.2f} TB/s")
    for rows, columns, along in ((1, n, "reduced"), (1 << 18, 1 << 10, "reduced"), (1 << 10, 1 << 18, "kept")):
        plan = plan_reduction(rows, columns, along, 4 * device.processors)
        module = device.compile(reduce_source("r", X, "sum", None, (float32,), float32, float32, 1, 1, "c", plan))
        strides = (1, rows) if along == "kept" else (columns, 1)
        geometry = np.array([rows, columns, 1, *strides], "i8").tobytes()
        partial = Pointer(int(check(driver.cuMemAlloc(4 * rows * plan.splits))))
        grid = min(plan.blocks(rows), 8 * device.processors)

        def run(module: Any = module, plan: Any = plan, grid: int = grid, partial: Pointer = partial,
                geometry: bytes = geometry, rows: int = rows, columns: int = columns) -> None:  # fmt: skip
            device.launch(module, "r", grid, BLOCK, geometry, rows, columns, partial, pointers[0], pointers[1])
            if plan.splits > 1:
                device.launch(
                    module, "r_finish", -(-rows // BLOCK), BLOCK, geometry, rows, columns, partial, pointers[0]
                )

        elapsed = device.milliseconds(run)
        print(f"sum {rows} x {columns} along {along}, {plan}: {elapsed:.3f} ms, {4 * n / elapsed / 1e9:.2f} TB/s")


def main() -> int:
    device = Device("--compile" in sys.argv)
    report = Report(not device.compile_only)
    for group in (check_maps, check_strided, check_reductions, check_loop_kernels):
        before = report.passed
        group(device, report)
        print(f"{group.__name__}: {report.passed - before} passed", flush=True)
    print(
        f"{report.passed} passed, {report.failed} failed; {device.compiled} compiled in {device.compile_seconds:.1f} s"
    )
    if not device.compile_only:
        timings(device)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
