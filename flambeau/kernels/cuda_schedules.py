"""CUDA schedules: formulas mapped over elements, and reductions of mapped formulas, as source text.

Layouts travel by value, in one struct of int64 with the order the CPU kernels use:

    map      sizes[rank], then strides[rank] of each pointer operand (outputs first)
    reduce   kept sizes, reduced sizes, out's strides over the kept dimensions, then for each pointer input its strides
             over the kept and the reduced dimensions

Scalar operands (kinds "d" and "l") are passed as double and long long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..core import dtype as dt
from ..core.dtype import dtype, opmath
from ..expr.node import Expr, arg, cast, substitute
from . import ir
from .cuda_values import PRELUDE, constant, loaded, memory_type, stored, value_type
from .emit_cuda import _Function

BLOCK = 256
UNROLL = 4  # elements a thread has in flight: memory is far away
_COMBINE = {
    "sum": "a + b",
    "prod": "a * b",
    "max": "fb_max(a, b)",
    "min": "fb_min(a, b)",
    "any": "a | b",
    "all": "a & b",
}
_ARG_COMBINE = {"argmax": ">", "argmin": "<"}


def device_function(name: str, roots: tuple[Expr, ...], in_dtypes: tuple[dtype, ...], outs: tuple[dtype, ...]) -> str:
    """`void name(a0, a1, ..., &r0, &r1, ...)`: the formulas on values that are already loaded."""
    params = [ir.Scalar(f"a{i}", opmath(d)) for i, d in enumerate(in_dtypes)]

    def named(x: Expr) -> Expr | None:
        return ir.var(f"a{x.args[0]}", opmath(in_dtypes[x.args[0]])) if x.op == "arg" else None

    writer = _Function(name, ir.Kernel(name, list(params), []))
    arguments = [writer.parameter(p) for p in params]
    results = []
    for k, (root, out) in enumerate(zip(substitute(roots, named), outs, strict=True)):
        arguments.append(f"{value_type(out)}& r{k}")
        results.append(f"  r{k} = {writer.value(root, opmath(out))};")
    header = f"static __device__ __forceinline__ void {name}({', '.join(arguments)}) {{"
    return "\n".join([*writer.helpers, header, *writer.lines, *results, "}", ""])


@dataclass
class _Operands:
    """Names and text of the operands of a schedule."""

    in_dtypes: tuple[dtype, ...]
    out_dtypes: tuple[dtype, ...]
    in_kinds: str

    def __post_init__(self) -> None:
        self.inputs = [i for i, kind in enumerate(self.in_kinds) if kind not in "dl"]
        self.pointers = [f"out{k}" for k in range(len(self.out_dtypes))] + [f"in{i}" for i in self.inputs]

    def parameters(self) -> str:
        texts = [f"{memory_type(d)}* out{k}" for k, d in enumerate(self.out_dtypes)]
        for i, (kind, d) in enumerate(zip(self.in_kinds, self.in_dtypes, strict=True)):
            if kind in "dl":
                texts.append(f"{'double' if kind == 'd' else 'long long'} in{i}")
            else:
                texts.append(f"const {memory_type(d)}* in{i}")
        return ", ".join(texts)

    def load(self, i: int, place: str) -> str:
        d = self.in_dtypes[i]
        if self.in_kinds[i] in "dl":
            return f"({value_type(d)})in{i}"
        return loaded(f"in{i}[{place}]", d)

    def store(self, k: int, place: str, value: str) -> str:
        return f"out{k}[{place}] = {stored(value, self.out_dtypes[k])};"


# --- maps ----------------------------------------------------------------------------------------------------------


def map_source(
    name: str,
    roots: tuple[Expr, ...],
    in_dtypes: tuple[dtype, ...],
    out_dtypes: tuple[dtype, ...],
    kinds: str,
    rank: int,
    narrow: bool = True,
) -> str:
    """Source of `name`, which stores roots[k] to output k for every element.

    `kinds` is as for CPU kernels: one character per operand, outputs first. Rank 1 without "s":
    name(n, outputs..., inputs...); otherwise name(geometry, n, outputs..., inputs...). `narrow`: every offset and the
    number of elements fit in 31 bits. An output may be exactly one of the inputs.
    """
    operands = _Operands(in_dtypes, out_dtypes, kinds[len(out_dtypes) :])
    element = device_function(f"{name}_element", roots, in_dtypes, out_dtypes)
    if rank == 1 and "s" not in kinds:
        return PRELUDE + element + _contiguous_map(name, operands)
    return PRELUDE + element + _strided_map(name, operands, rank, "unsigned" if narrow else "i64")


def _element_call(name: str, operands: _Operands, suffix: str = "") -> str:
    values = [f"x{i}{suffix}" for i in range(len(operands.in_dtypes))]
    return f"{name}_element({', '.join([*values, *(f'y{k}' for k in range(len(operands.out_dtypes)))])});"


def _results(operands: _Operands) -> str:
    return " ".join(f"{value_type(d)} y{k};" for k, d in enumerate(operands.out_dtypes))


def _contiguous_map(name: str, operands: _Operands) -> str:
    count = range(len(operands.in_dtypes))
    places = ["0" if operands.in_kinds[i] == "b" else "at" for i in count]
    arrays = " ".join(f"{value_type(operands.in_dtypes[i])} x{i}[{UNROLL}];" for i in count)
    loads = " ".join(f"x{i}[k] = {operands.load(i, places[i])};" for i in count)
    stores = " ".join(operands.store(k, "at", f"y{k}") for k in range(len(operands.out_dtypes)))
    return f"""
extern "C" __global__ void __launch_bounds__({BLOCK}) {name}(long long n, {operands.parameters()}) {{
  const i64 step = (i64)gridDim.x * {BLOCK * UNROLL};
  for (i64 base = (i64)blockIdx.x * {BLOCK * UNROLL} + threadIdx.x; base < n; base += step) {{
    {arrays}
    #pragma unroll
    for (int k = 0; k < {UNROLL}; ++k) {{
      i64 at = base + k * {BLOCK};
      if (at < n) {{ {loads} }}
    }}
    #pragma unroll
    for (int k = 0; k < {UNROLL}; ++k) {{
      i64 at = base + k * {BLOCK};
      if (at < n) {{ {_results(operands)} {_element_call(name, operands, "[k]")} {stores} }}
    }}
  }}
}}
"""


def _offsets(names: list[str], sizes: str, strides: dict[str, str], rank: int, linear: str, index: str) -> str:
    """Text that turns a linear position into an offset `<name>_at` for every operand."""
    lines = [f"{index} left_{sizes} = {linear};"]
    lines += [f"i64 {n}_at = 0;" for n in names]
    for d in reversed(range(rank)):
        if d:
            lines.append(f"{index} size_{sizes}{d} = ({index})g.{sizes}[{d}];")
            lines.append(f"{index} c_{sizes}{d} = left_{sizes} % size_{sizes}{d}; left_{sizes} /= size_{sizes}{d};")
        else:
            lines.append(f"{index} c_{sizes}0 = left_{sizes};")
        lines += [f"{n}_at += (i64)c_{sizes}{d} * g.{strides[n]}[{d}];" for n in names]
    return "\n    ".join(lines)


def _strided_map(name: str, operands: _Operands, rank: int, index: str) -> str:
    strides = {p: f"{p}_strides" for p in operands.pointers}
    fields = "".join(f" i64 {s}[{rank}];" for s in strides.values())
    count = range(len(operands.in_dtypes))
    loads = " ".join(f"{value_type(operands.in_dtypes[i])} x{i} = {operands.load(i, f'in{i}_at')};" for i in count)
    stores = " ".join(operands.store(k, f"out{k}_at", f"y{k}") for k in range(len(operands.out_dtypes)))
    return f"""
struct {name}_geometry {{ i64 sizes[{rank}];{fields} }};
extern "C" __global__ void __launch_bounds__({BLOCK})
{name}(const {name}_geometry g, long long n, {operands.parameters()}) {{
  for (i64 i = (i64)blockIdx.x * {BLOCK} + threadIdx.x; i < n; i += (i64)gridDim.x * {BLOCK}) {{
    {_offsets(operands.pointers, "sizes", strides, rank, f"({index})i", index)}
    {loads}
    {_results(operands)}
    {_element_call(name, operands)}
    {stores}
  }}
}}
"""


# --- reductions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReducePlan:
    """How a reduction is spread over the device. `lanes` threads share one result; `splits` blocks do."""

    lanes: int
    splits: int
    along: str  # "reduced": neighbouring threads read along the reduced dimension; "kept": along the results

    def blocks(self, results: int) -> int:
        """Blocks to launch, each of BLOCK threads; fewer work too."""
        return max(1, -(-results // (BLOCK // self.lanes)) * self.splits)


def plan_reduction(results: int, count: int, along: str, target_blocks: int = 528) -> ReducePlan:
    """`target_blocks`: about four per multiprocessor fill the device."""
    lanes = 32 if count <= 512 else BLOCK
    if along == "kept":
        lanes = 8
    tiles = max(1, -(-results // (BLOCK // lanes)))
    useful = max(1, count // (lanes * UNROLL * 4))  # every thread of a split keeps some work
    return ReducePlan(lanes, max(1, min(useful, target_blocks // tiles, 1024)), along)


def reduce_source(
    name: str,
    map_root: Expr,
    combine: str,
    final: Expr | None,
    in_dtypes: tuple[dtype, ...],
    out_dtype: dtype,
    acc_dtype: dtype,
    kept_rank: int,
    reduced_rank: int,
    kinds: str,
    plan: ReducePlan,
    narrow: bool = True,
) -> str:
    """Source of name(geometry, results, count, partial, out, inputs...) and, for splits > 1, of
    name_finish(geometry, results, count, partial, out), to be run after it. `partial` is device memory for
    results * splits accumulators of `partial_bytes(...)` bytes each. The rest is as for CPU reductions."""
    acc_dtype = dt.bool_ if combine in ("any", "all") else opmath(acc_dtype)
    operands = _Operands(in_dtypes, (out_dtype,), kinds)
    mapped = device_function(f"{name}_element", (cast(map_root, acc_dtype),), in_dtypes, (acc_dtype,))
    finish = ""
    if combine not in _ARG_COMBINE:
        floating = acc_dtype if acc_dtype.is_floating_point else dt.float64
        root = arg(0) if final is None else final
        finish = device_function(f"{name}_final", (root,), (acc_dtype, floating), (out_dtype,))
    struct = _reduce_geometry(name, operands, kept_rank, reduced_rank)
    parts = [PRELUDE, mapped, finish, struct, _accumulator(name, combine, acc_dtype)]
    index = "unsigned" if narrow else "i64"
    parts.append(_reduce_main(name, combine, operands, acc_dtype, kept_rank, reduced_rank, plan, index))
    if plan.splits > 1:
        parts.append(_reduce_finish(name, combine, operands, acc_dtype, kept_rank, plan, index))
    return "".join(parts)


def partial_bytes(combine: str, acc_dtype: dtype) -> int:
    """The size of one accumulator in `partial`."""
    if combine in _ARG_COMBINE:
        return 16
    return 1 if combine in ("any", "all") else opmath(acc_dtype).itemsize


def _reduce_geometry(name: str, operands: _Operands, kept: int, reduced: int) -> str:
    fields = [f"i64 kept[{max(kept, 1)}];" if kept else "", f"i64 reduced[{reduced}];"]
    fields.append(f"i64 out_kept[{kept}];" if kept else "")
    for i in operands.inputs:
        fields += [f"i64 in{i}_kept[{kept}];" if kept else "", f"i64 in{i}_reduced[{reduced}];"]
    return f"struct {name}_geometry {{ {' '.join(fields)} }};\n"


def _accumulator(name: str, combine: str, acc: dtype) -> str:
    t = value_type(acc)
    if combine not in _ARG_COMBINE:
        start = constant(_identity(combine, acc), acc)
        return f"""
typedef {t} {name}_acc;
static __device__ __forceinline__ {name}_acc {name}_start() {{ return {start}; }}
static __device__ __forceinline__ {name}_acc {name}_take({name}_acc a, {t} v, i64) {{
  {name}_acc b = v; return {_COMBINE[combine]};
}}
static __device__ __forceinline__ {name}_acc {name}_join({name}_acc a, {name}_acc b) {{ return {_COMBINE[combine]}; }}
static __device__ __forceinline__ {t} {name}_value({name}_acc a) {{ return a; }}
"""
    sign = _ARG_COMBINE[combine]
    # The first of equals wins whatever the order of joining; nan wins over everything; index -1 is "nothing yet".
    return f"""
struct {name}_acc {{ {t} value; i64 index; }};
static __device__ __forceinline__ {name}_acc {name}_start() {{ {name}_acc a; a.value = 0; a.index = -1; return a; }}
static __device__ __forceinline__ {name}_acc {name}_join({name}_acc a, {name}_acc b) {{
  if (b.index < 0) return a;
  if (a.index < 0) return b;
  bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  if (a_nan != b_nan) return a_nan ? a : b;
  if (a_nan || a.value == b.value) return a.index < b.index ? a : b;
  return a.value {sign} b.value ? a : b;
}}
static __device__ __forceinline__ {name}_acc {name}_take({name}_acc a, {t} v, i64 index) {{
  {name}_acc b; b.value = v; b.index = index; return {name}_join(a, b);
}}
static __device__ __forceinline__ i64 {name}_value({name}_acc a) {{ return a.index; }}
"""


def _identity(combine: str, d: dtype) -> bool | int | float:
    if combine in ("sum", "any"):
        return 0
    if combine in ("prod", "all"):
        return 1
    lowest = combine == "max"
    if d.is_floating_point:
        return -math.inf if lowest else math.inf
    bits = 8 * d.itemsize
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if d.is_signed else (0, (1 << bits) - 1)
    return (low if lowest else high) if d is not dt.bool_ else not lowest


def _store_result(name: str, combine: str, operands: _Operands, acc: dtype, kept: int, index: str) -> str:
    """Store the finished accumulator `total` of result number `result`."""
    place = "i64 out0_at = 0;"
    if kept:
        place = _offsets(["out0"], "kept", {"out0": "out_kept"}, kept, f"({index})result", index)
    if combine in _ARG_COMBINE:
        return f"{place} {operands.store(0, 'out0_at', f'{name}_value(total)')}"
    floating = value_type(acc if acc.is_floating_point else dt.float64)
    out = value_type(operands.out_dtypes[0])
    finished = f"{out} y0; {name}_final({name}_value(total), ({floating})count, y0);"
    return f"{place} {finished} {operands.store(0, 'out0_at', 'y0')}"


def _reduce_main(
    name: str,
    combine: str,
    operands: _Operands,
    acc: dtype,
    kept: int,
    reduced: int,
    plan: ReducePlan,
    index: str,
) -> str:
    lanes, per_block = plan.lanes, BLOCK // plan.lanes
    slot, lane = f"threadIdx.x / {lanes}", f"threadIdx.x % {lanes}"
    if plan.along == "kept":
        slot, lane = f"threadIdx.x % {per_block}", f"threadIdx.x / {per_block}"
    pointers = [f"in{i}" for i in operands.inputs]
    base = " ".join(f"i64 {p}_base = 0;" for p in pointers)
    if kept:
        located = _offsets(pointers, "kept", {p: f"{p}_kept" for p in pointers}, kept, f"({index})result", index)
        base += f" if (active) {{ {located} {' '.join(f'{p}_base = {p}_at;' for p in pointers)} }}"
    step = _offsets(pointers, "reduced", {p: f"{p}_reduced" for p in pointers}, reduced, f"({index})r", index)
    loads = [operands.load(i, f"in{i}_base + in{i}_at") for i in range(len(operands.in_dtypes))]
    t = value_type(acc)
    if plan.splits > 1:
        keep = f"partial[(i64)result * {plan.splits} + split] = total;"
    else:
        keep = _store_result(name, combine, operands, acc, kept, index)
    return f"""
extern "C" __global__ void __launch_bounds__({BLOCK})
{name}(const {name}_geometry g, i64 results, i64 count, {name}_acc* partial, {operands.parameters()}) {{
  __shared__ {name}_acc shared[{BLOCK}];
  const int slot = {slot}, lane = {lane};
  const i64 tiles = (results + {per_block - 1}) / {per_block};
  const i64 share = (count + {plan.splits - 1}) / {plan.splits};
  for (i64 task = blockIdx.x; task < tiles * {plan.splits}; task += gridDim.x) {{
    const i64 result = task / {plan.splits} * {per_block} + slot, split = task % {plan.splits};
    const bool active = result < results;
    const i64 first = split * share, last = active ? (first + share < count ? first + share : count) : first;
    {base}
    {name}_acc sums[{UNROLL}];
    #pragma unroll
    for (int k = 0; k < {UNROLL}; ++k) sums[k] = {name}_start();
    for (i64 row = first + lane; row < last; row += {lanes * UNROLL}) {{
      {t} mapped[{UNROLL}];
      #pragma unroll
      for (int k = 0; k < {UNROLL}; ++k) {{
        const i64 r = row + k * {lanes};
        if (r < last) {{
          {step}
          {name}_element({", ".join([*loads, "mapped[k]"])});
        }}
      }}
      #pragma unroll
      for (int k = 0; k < {UNROLL}; ++k)
        if (row + k * {lanes} < last) sums[k] = {name}_take(sums[k], mapped[k], row + k * {lanes});
    }}
    #pragma unroll
    for (int k = 1; k < {UNROLL}; ++k) sums[0] = {name}_join(sums[0], sums[k]);
    shared[slot * {lanes} + lane] = sums[0];
    __syncthreads();
    for (int width = {lanes // 2}; width > 0; width /= 2) {{
      if (lane < width)
        shared[slot * {lanes} + lane] =
            {name}_join(shared[slot * {lanes} + lane], shared[slot * {lanes} + lane + width]);
      __syncthreads();
    }}
    if (lane == 0 && active) {{
      {name}_acc total = shared[slot * {lanes}];
      {keep}
    }}
    __syncthreads();
  }}
}}
"""


def _reduce_finish(
    name: str, combine: str, operands: _Operands, acc: dtype, kept: int, plan: ReducePlan, index: str
) -> str:
    out = f"{memory_type(operands.out_dtypes[0])}* out0"
    return f"""
extern "C" __global__ void __launch_bounds__({BLOCK})
{name}_finish(const {name}_geometry g, i64 results, i64 count, const {name}_acc* partial, {out}) {{
  for (i64 result = (i64)blockIdx.x * {BLOCK} + threadIdx.x; result < results; result += (i64)gridDim.x * {BLOCK}) {{
    {name}_acc total = partial[result * {plan.splits}];
    for (int s = 1; s < {plan.splits}; ++s) total = {name}_join(total, partial[result * {plan.splits} + s]);
    {_store_result(name, combine, operands, acc, kept, index)}
  }}
}}
"""
