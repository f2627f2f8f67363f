"""Reductions on NVIDIA GPUs.

Along rows, `lanes` threads (part of a warp, a warp or a block) share one result and combine by shuffles; down columns, neighbouring threads
hold neighbouring results while they loop over rows. If there are too few results to fill the device, each is divided into `splits` whose
partial results a second kernel combines: always in one order, so that a result does not depend on scheduling.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from ..core import dtype as dt
from ..core.caching import remember
from ..core.dtype import dtype
from ..expr.functions import cast
from ..expr.node import arg
from .cuda_operands import BLOCK, Device, Layout, Operands, device_function, fits
from .cuda_reduction_plans import UNROLL, ReductionLaunch, Shape, plan_columns, plan_rows
from .cuda_values import PRELUDE, constant, loaded, memory_type, value_type
from .elementwise import PASSED
from .reduction_parts import Reduction

_JOIN = {"sum": "a + b", "prod": "a * b", "max": "fb_max(a, b)", "min": "fb_min(a, b)", "any": "a | b", "all": "a & b"}
_ARG_SIGN = {"argmax": ">", "argmin": "<"}


class ReduceProgram:
    """The kernels of one reduction with its dtypes and kinds."""

    def __init__(self, reduction: Reduction, inner: str):
        self.r, self.columns = reduction, inner == "kept"
        self.is_arg = reduction.is_arg
        self.acc: dtype = reduction.acc_dtype
        self.operands = Operands(reduction.in_dtypes, (reduction.out_dtype,), reduction.kinds)
        self.inputs = [f"in{i}" for i in self.operands.inputs]
        self.kept_rank = reduction.kept_rank - self.columns  # dimensions of results without the row they lie in
        dense = [self.operands.in_dtypes[i].itemsize for i in self.operands.inputs if reduction.kinds[i] == "c"]
        loads = [k for k in reduction.kinds if k not in PASSED]
        ready = all(k in "cb" for k in loads) and dense
        self.vector = max(1, min(16 // max(dense), 8)) if ready else 1
        if self.columns and (self.is_arg or self.acc.itemsize > 8):
            self.vector = min(self.vector, 2)

    @property
    def source(self) -> str:
        return self.text(Shape(0 if self.columns else BLOCK, self.vector, True, True))

    # --- text

    def layouts(self, narrow: bool) -> tuple[Layout, Layout, Layout]:
        """Return the layouts of the results (without their rows), of a row of results, and of the reduced dimensions."""
        names = ["out0", *self.inputs]
        return (
            Layout("kept", names, self.kept_rank, narrow),
            Layout("row", names, int(self.columns), narrow),
            Layout("reduced", self.inputs, self.r.reduced_rank, narrow),
        )

    def text(self, shape: Shape) -> str:
        layouts = self.layouts(shape.narrow)
        r = self.r
        mapped = device_function("element", (cast(r.map_root, self.acc),), r.in_dtypes, (self.acc,))
        parts = [PRELUDE, mapped, self._final(), self._accumulator()]
        parts.append(f"struct geometry {{ {' '.join(layout.fields() for layout in layouts)} }};\n")
        parts.append(self._columns(shape, *layouts) if self.columns else self._rows(shape, *layouts))
        if shape.split:
            parts.append(self._finish(layouts[0], layouts[1]))
        return "".join(parts)

    def _final(self) -> str:
        if self.is_arg:
            return ""
        floating = dt.float64 if self.acc.category < 2 else self.acc.to_real()
        root = arg(0) if self.r.final is None else self.r.final
        return device_function("final", (root,), (self.acc, floating), (self.r.out_dtype,))

    def _accumulator(self) -> str:
        t = value_type(self.acc)
        if not self.is_arg:
            start = self._start()
            return f"""
typedef {t} acc_t;
static __device__ __forceinline__ acc_t start() {{ return {start}; }}
static __device__ __forceinline__ acc_t join(acc_t a, acc_t b) {{ return {_JOIN[self.r.combine]}; }}
static __device__ __forceinline__ acc_t take(acc_t a, {t} b, i64) {{ return join(a, b); }}
"""
        # The first of equals wins whatever the order of joining; nan wins over everything; index -1 is "nothing yet".
        return f"""
struct acc_t {{ {t} value; i64 index; }};
static __device__ __forceinline__ acc_t start() {{ acc_t a; a.value = 0; a.index = -1; return a; }}
static __device__ __forceinline__ acc_t join(acc_t a, acc_t b) {{
  if (b.index < 0) return a;
  if (a.index < 0) return b;
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  if (a_nan != b_nan) return a_nan ? a : b;
  if (a_nan || a.value == b.value) return a.index < b.index ? a : b;
  return a.value {_ARG_SIGN[self.r.combine]} b.value ? a : b;
}}
static __device__ __forceinline__ acc_t take(acc_t a, {t} v, i64 index) {{  // index is larger than those before
  if (a.index < 0 || v {_ARG_SIGN[self.r.combine]} a.value || (v != v && a.value == a.value)) {{ a.value = v; a.index = index; }}
  return a;
}}
"""

    def _start(self) -> str:
        identity = self.r.identity().args[0]
        if self.acc.is_complex:
            return f"acc_t({identity})"
        return constant(identity, self.acc)

    def _loads(self, shape: Shape, base: str, place: Layout, position: str, shift: str) -> tuple[str, str, str]:
        """Return the declarations for the results of UNROLL loads, the loads of `position` (number u), and the call on element (u, v)."""
        o, v = self.operands, shape.vector
        declared, loads, values = [], [], []
        for i, d in enumerate(o.in_dtypes):
            kind, name = self.r.kinds[i], f"in{i}"
            if kind in PASSED:
                declared.append(f"const {value_type(d)} x{i} = {o.passed(i)};")
                values.append(f"x{i}")
                continue
            wide = v if kind == "c" else 1
            declared.append(f"fb_vec<{memory_type(d)}, {wide}> x{i}[{UNROLL}];")
            along = shift if kind == "c" else f"{shift} * g.row_{name}[0]" if kind == "s" and self.columns else "0"
            source = f"{name} + ({base.format(name)} + {name}_at + {along})"
            if wide > 1:
                loads.append(f"x{i}[u] = *(const fb_vec<{memory_type(d)}, {wide}>*)({source});")
            else:
                loads.append(f"x{i}[u].at[0] = *({source});")
            values.append(loaded(f"x{i}[u].at[{'v' if wide > 1 else '0'}]", d))
        call = f"{value_type(self.acc)} value; element({', '.join([*values, 'value'])});"
        return " ".join(declared), f"{place.locate(position, self.inputs)} {' '.join(loads)}", call

    def _rows(self, shape: Shape, kept: Layout, row: Layout, reduced: Layout) -> str:
        lanes, v, o = shape.lanes, shape.vector, self.operands
        per_block, index = BLOCK // lanes, "int" if shape.narrow else "i64"
        direct = self.r.reduced_rank == 1 and all(k in "cb" or k in PASSED for k in self.r.kinds)
        if direct:  # the position is the offset
            nothing = Layout("none", self.inputs, 0, shape.narrow)
            declared, load, call = self._loads(shape, "{}_base", nothing, "", "at")
        else:
            declared, load, call = self._loads(shape, "{}_base", reduced, "at" if v == 1 else f"at / {v}", "0")
        base = kept.locate("result", self.inputs) + " " + " ".join(f"{n}_base = {n}_at;" for n in self.inputs)
        step, chains = lanes * v, min(4, UNROLL * v)
        width = min(lanes, 32)
        take = f"sums[(u * {v} + v) % {chains}] = take(sums[(u * {v} + v) % {chains}], value, at + v);"
        return f"""
extern "C" __global__ void __launch_bounds__({BLOCK}) reduce({
            ", ".join(
                [
                    "const geometry g",
                    "i64 results",
                    "i64 count",
                    "i64 splits",
                    "i64 share",
                    "acc_t* partial",
                    *o.parameters(),
                ]
            )
        }) {{
  const int lane = threadIdx.x % {lanes};
  const i64 task = (i64)blockIdx.x * {per_block} + threadIdx.x / {lanes};
  const i64 result = {"task / splits" if shape.split else "task"}, piece = {"task % splits" if shape.split else "0"};
  const bool active = result < results;
  const {index} first = ({index})(piece * share), end = first + ({index})share;
  const {index} last = !active ? first : end < ({index})count ? end : ({index})count;
  {" ".join(f"{kept.offset} {n}_base = 0;" for n in self.inputs)}
  if (active) {{ {base} }}
  acc_t sums[{chains}];
  #pragma unroll
  for (int k = 0; k < {chains}; ++k) sums[k] = start();
  {declared}
  {index} r = first + lane * {v};
  const bool aligned = {self._aligned(v, "first")};
  for (; aligned && r + {step * (UNROLL - 1) + v} <= last; r += {step * UNROLL}) {{
    #pragma unroll
    for (int u = 0; u < {UNROLL}; ++u) {{ const {index} at = r + u * {step}; {load} }}
    #pragma unroll
    for (int u = 0; u < {UNROLL}; ++u) {{
      const {index} at = r + u * {step};
      #pragma unroll
      for (int v = 0; v < {v}; ++v) {{ {call} {take} }}
    }}
  }}
  for (; r < last; r += {step}) {{
    constexpr int u = 0;
    const {index} begin = r, stop = r + {v} < last ? r + {v} : last;
    if (aligned && stop - begin == {v}) {{
      const {index} at = r; {load}
      #pragma unroll
      for (int v = 0; v < {v}; ++v) {{ {call} {take} }}
    }} {self._single(index, direct, reduced, v) if v > 1 else ""}
  }}
  acc_t total = sums[0];
  #pragma unroll
  for (int k = 1; k < {chains}; ++k) total = join(total, sums[k]);
  #pragma unroll
  for (int d = {width // 2}; d > 0; d /= 2) total = join(total, fb_from_other(total, d, {max(width, 1)}));
  {self._across_warps(lanes)}
  if (lane == 0 && active) {{
    {"partial[result * splits + piece] = total;" if shape.split else self._store(kept, row)}
  }}
}}
"""

    def _aligned(self, v: int, shift: str) -> str:
        """Return the text of a test that the elements loaded at once begin at a multiple of their size."""
        if v == 1:
            return "true"
        tests = []
        for i in self.operands.inputs:
            if self.r.kinds[i] == "c":
                width = min(16, v * self.operands.in_dtypes[i].itemsize)
                tests.append(f"((unsigned long long)(in{i} + (in{i}_base + {shift})) & {width - 1}) == 0")
        return " && ".join(tests)

    def _single(self, index: str, direct: bool, reduced: Layout, v: int) -> str:
        """Return the text for the last elements of a row, fewer than one vector, one by one."""
        values = []
        for i, d in enumerate(self.operands.in_dtypes):
            kind = self.r.kinds[i]
            if kind in PASSED:
                values.append(f"x{i}")
            else:
                along = "" if kind != "c" else " + at" if direct else f" + in{i}_at + at % {v}"
                if kind == "b" and not direct:
                    along = f" + in{i}_at"
                values.append(loaded(f"in{i}[in{i}_base{along}]", d))
        call = f"{value_type(self.acc)} value; element({', '.join([*values, 'value'])});"
        place = "" if direct else reduced.locate(f"at / {v}", self.inputs)
        return f"""else {{
      for ({index} at = begin; at < stop; ++at) {{ {place} {call} sums[0] = take(sums[0], value, at); }}
    }}"""

    def _across_warps(self, lanes: int) -> str:
        if lanes <= 32:
            return ""
        warps = lanes // 32
        return f"""__shared__ acc_t shared[{warps}];
  if (lane % 32 == 0) shared[lane / 32] = total;
  __syncthreads();
  if (lane < 32) {{
    total = lane < {warps} ? shared[lane] : start();
    #pragma unroll
    for (int d = {warps // 2}; d > 0; d /= 2) total = join(total, fb_from_other(total, d, 32));
  }}"""

    def _store(self, kept: Layout, row: Layout, result: str = "result", column: str = "") -> str:
        """Return the text that stores the finished accumulator `total`."""
        place = kept.locate(result, ["out0"])
        if self.columns:
            place += f" out0_at += ({kept.offset})({column}) * g.row_out0[0];"
        if self.is_arg:
            return f"{place} out0[out0_at] = total.index;"
        floating = value_type(dt.float64 if self.acc.category < 2 else self.acc.to_real())
        out = value_type(self.r.out_dtype)
        return f"{place} {out} y0; final(total, ({floating})count, y0); out0[out0_at] = {self.operands.store(0, 'y0')};"

    def _columns(self, shape: Shape, kept: Layout, row: Layout, reduced: Layout) -> str:
        v, o, index = shape.vector, self.operands, "int" if shape.narrow else "i64"
        declared, load, call = self._loads(shape, "{}_base", reduced, "at", "column")
        base = kept.locate("outer", self.inputs) + " " + " ".join(f"{n}_base = {n}_at;" for n in self.inputs)
        if shape.split:
            keep = "partial[(outer * width + column + v) * splits + piece] = total;"
        else:
            keep = self._store(kept, row, "outer", "column + v")
        return f"""
extern "C" __global__ void __launch_bounds__({BLOCK}) reduce({
            ", ".join(
                [
                    "const geometry g",
                    "i64 width",
                    "i64 count",
                    "i64 splits",
                    "i64 share",
                    "i64 bits",
                    "acc_t* partial",
                    *o.parameters(),
                ]
            )
        }) {{
  __shared__ acc_t shared[{BLOCK * v}];
  const int tx = threadIdx.x & ((1 << bits) - 1), ty = threadIdx.x >> bits, rows = {BLOCK} >> bits;
  const i64 tiles = (width + ((i64){v} << bits) - 1) / ((i64){v} << bits);
  const i64 piece = blockIdx.x % splits, task = blockIdx.x / splits, outer = task / tiles;
  const {kept.offset} column = ({kept.offset})((task % tiles << bits) + tx) * {v};
  const bool active = column < ({kept.offset})width;
  const {index} first = ({index})(piece * share), end = first + ({index})share;
  const {index} last = !active ? first : end < ({index})count ? end : ({index})count;
  {" ".join(f"{kept.offset} {n}_base = 0;" for n in self.inputs)}
  if (active) {{ {base} }}
  acc_t sums[{v}];
  #pragma unroll
  for (int k = 0; k < {v}; ++k) sums[k] = start();
  {declared}
  {index} r = first + ty;
  {self._unaligned_columns(shape, index, reduced) if v > 1 else ""}
  for (; r + rows * {UNROLL - 1} < last; r += rows * {UNROLL}) {{
    #pragma unroll
    for (int u = 0; u < {UNROLL}; ++u) {{ const {index} at = r + u * rows; {load} }}
    #pragma unroll
    for (int u = 0; u < {UNROLL}; ++u) {{
      #pragma unroll
      for (int v = 0; v < {v}; ++v) {{ {call} sums[v] = take(sums[v], value, r + u * rows); }}
    }}
  }}
  for (; r < last; r += rows) {{
    constexpr int u = 0;
    const {index} at = r; {load}
    #pragma unroll
    for (int v = 0; v < {v}; ++v) {{ {call} sums[v] = take(sums[v], value, r); }}
  }}
  #pragma unroll
  for (int v = 0; v < {v}; ++v) shared[v * {BLOCK} + threadIdx.x] = sums[v];
  for (int half = rows / 2; half > 0; half /= 2) {{
    __syncthreads();
    if (ty < half) {{
      #pragma unroll
      for (int v = 0; v < {v}; ++v) {{
        acc_t* mine = shared + v * {BLOCK} + threadIdx.x;
        *mine = join(*mine, mine[half << bits]);
      }}
    }}
  }}
  if (ty == 0 && active) {{
    #pragma unroll
    for (int v = 0; v < {v}; ++v) {{ acc_t total = shared[v * {BLOCK} + threadIdx.x]; {keep} }}
  }}
}}
"""

    def _unaligned_columns(self, shape: Shape, index: str, reduced: Layout) -> str:
        """Return the text that reads element by element, for pointers that are not aligned to a vector."""
        v, values = shape.vector, []
        for i, d in enumerate(self.operands.in_dtypes):
            kind = self.r.kinds[i]
            if kind in PASSED:
                values.append(f"x{i}")
            else:
                values.append(loaded(f"in{i}[in{i}_base + in{i}_at{' + column + v' if kind == 'c' else ''}]", d))
        call = f"{value_type(self.acc)} value; element({', '.join([*values, 'value'])});"
        return f"""if (!({self._aligned(v, "0")})) {{
    for (; r < last; r += rows) {{
      const {index} at = r; {reduced.locate("at", self.inputs)}
      #pragma unroll
      for (int v = 0; v < {v}; ++v) {{ {call} sums[v] = take(sums[v], value, r); }}
    }}
  }}"""

    def _finish(self, kept: Layout, row: Layout) -> str:
        """Return the kernels that combine the pieces of each result: a warp or a block takes one."""
        where = ("result / width", "result % width") if self.columns else ("result", "")
        parameters = "const geometry g, i64 results, i64 width, i64 count, i64 splits, const acc_t* partial, "
        out = f"{memory_type(self.r.out_dtype)}* out0"
        texts = []
        for lanes in (32, BLOCK):
            texts.append(f"""
extern "C" __global__ void __launch_bounds__({BLOCK}) finish_{lanes}({parameters}{out}) {{
  const int lane = threadIdx.x % {lanes};
  const i64 result = (i64)blockIdx.x * {BLOCK // lanes} + threadIdx.x / {lanes};
  acc_t total = start();
  if (result < results) {{
    #pragma unroll 4
    for (int s = lane; s < (int)splits; s += {lanes}) total = join(total, partial[result * splits + s]);
  }}
  #pragma unroll
  for (int d = 16; d > 0; d /= 2) total = join(total, fb_from_other(total, d, 32));
  {self._across_warps(lanes)}
  if (lane == 0 && result < results) {{ {self._store(kept, row, *where)} }}
}}
""")
        return "".join(texts)

    # --- launches

    def plan(self, geometry: bytes, processors: int) -> ReductionLaunch:
        kept, reduced = self.r.kept_rank, self.r.reduced_rank
        numbers = struct.unpack(f"<{len(geometry) // 8}q", geometry)
        sizes, shrunk = numbers[:kept], numbers[kept : kept + reduced]
        at = kept + reduced
        kept_strides, reduced_strides = [numbers[at : at + kept]], []
        at += kept
        for _ in self.inputs:
            kept_strides.append(numbers[at : at + kept])
            reduced_strides.append(numbers[at + kept : at + kept + reduced])
            at += kept + reduced
        whole = [(*k, *s) for k, s in zip(kept_strides[1:], reduced_strides)]
        narrow = fits((*sizes, *shrunk), whole) and fits(sizes, kept_strides[:1])
        layouts = self.layouts(narrow)
        packed = b""
        if self.kept_rank:
            packed += layouts[0].pack(sizes[: self.kept_rank], [s[: self.kept_rank] for s in kept_strides])
        if self.columns:
            packed += layouts[1].pack(sizes[-1:], [s[-1:] for s in kept_strides])
        results, count = math.prod(sizes), math.prod(shrunk)
        v = 1 if self.columns else self._row_vector(sizes, shrunk, kept_strides[1:], reduced_strides, count)
        if v > 1 and reduced > 1:  # positions count groups of neighbours
            packed += layouts[2].pack((*shrunk[:-1], shrunk[-1] // v), [(*s[:-1], s[-1] * v) for s in reduced_strides])
        else:
            packed += layouts[2].pack(shrunk, reduced_strides)
        if self.columns:
            steps = [s for k, r in zip(kept_strides[1:], reduced_strides) for s in (*k[:-1], *r)]
            return plan_columns(self.vector, narrow, packed, results, sizes[-1], count, steps, processors)
        return plan_rows(narrow, packed, results, count, v, processors)

    def _row_vector(
        self, sizes: tuple[Any, ...], shrunk: tuple[Any, ...], kept: list[Any], reduced: list[Any], count: int
    ) -> int:
        """Return the number of neighbours that one load takes. Rows in several pieces must all begin on whole vectors."""
        if self.r.reduced_rank == 1:
            return self.vector if count >= 2 * self.vector else 1
        v = self.vector
        dense = [(k, r) for k, r, i in zip(kept, reduced, self.operands.inputs) if self.r.kinds[i] == "c"]
        while v > 1 and (shrunk[-1] % v or any(s % v for k, r in dense for s in (*k, *r[:-1]))):
            v //= 2
        return v

    def bind(self, device: Device) -> Callable[..., None]:
        functions: dict[Shape, tuple[Any, ...]] = {}
        plans: dict[bytes, tuple[ReductionLaunch, tuple[Any, ...]]] = {}
        width = 16 if self.is_arg else self.acc.itemsize

        def prepare(geometry: bytes) -> tuple[ReductionLaunch, tuple[Any, ...]]:
            plan = self.plan(geometry, device.processors)
            if plan.shape not in functions:
                functions[plan.shape] = self._functions(device, plan)
            return remember(plans, geometry, (plan, functions[plan.shape]), 4096)

        def run(geometry: bytes, out: int, *inputs: Any) -> None:
            plan, (main, finish_warp, finish_block) = plans.get(geometry) or prepare(geometry)
            p = plan
            partial = device.scratch(p.results * p.splits * width) if p.splits > 1 else 0
            if self.columns:
                main(p.blocks, BLOCK, p.packed, p.width, p.count, p.splits, p.share, p.bits, partial, out, *inputs)
            else:
                main(p.blocks, BLOCK, p.packed, p.results, p.count, p.splits, p.share, partial, out, *inputs)
            if p.splits > 64:
                finish_block(p.results, BLOCK, p.packed, p.results, p.width, p.count, p.splits, partial, out)
            elif p.splits > 1:
                finish_warp(-(-p.results // 8), BLOCK, p.packed, p.results, p.width, p.count, p.splits, partial, out)

        return run

    def _functions(self, device: Device, plan: ReductionLaunch) -> tuple[Any, ...]:
        module = device.load(self.text(plan.shape))
        numbers = ("q",) * (6 if self.columns else 5)
        main = module.function("reduce", (len(plan.packed), *numbers, *self.operands.kinds()))
        if not plan.shape.split:
            return main, None, None
        kinds = (len(plan.packed), "q", "q", "q", "q", "q", "q")
        return main, module.function("finish_32", kinds), module.function(f"finish_{BLOCK}", kinds)
