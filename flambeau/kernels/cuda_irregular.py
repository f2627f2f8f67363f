"""Loop kernels whose iterations update the same memory, written for NVIDIA GPUs by hand: one thread per element, and atomic updates where
several elements may go to one place. Each has the parameters of the loop kernel of that name.

Where the loop kernels apply repeated indices in order, these do not: as in PyTorch, sums of floats may differ in the last digits from run to
run, and of several values stored to one place any may remain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core import dtype as dt
from ..core.caching import remember
from ..core.dtype import dtype
from . import ir
from .cuda_operands import Device
from .cuda_values import PRELUDE, loaded, memory_type, stored, value_type

THREADS = 256
ROWS = 1024  # as in library.advanced_index: elements whose true ones are counted together


# A change of one element that no other change comes between. Elements of 1 and 2 bytes are changed with their neighbours.
ATOMIC = r"""
template <class T, class F> __device__ __forceinline__ void fb_change(T* at, F f) {
  if (sizeof(T) == 8) {
    unsigned long long* p = (unsigned long long*)at;
    unsigned long long seen = *p, old;
    do { old = seen; T v; fb_copy(v, old); T r = f(v); unsigned long long w; fb_copy(w, r); seen = atomicCAS(p, old, w); } while (seen != old);
  } else if (sizeof(T) == 4) {
    unsigned* p = (unsigned*)at;
    unsigned seen = *p, old;
    do { old = seen; T v; fb_copy(v, old); T r = f(v); unsigned w; fb_copy(w, r); seen = atomicCAS(p, old, w); } while (seen != old);
  } else {
    const unsigned long long place = (unsigned long long)at;
    unsigned* p = (unsigned*)(place & ~3ull);
    const int shift = (int)(place & 3ull) * 8;
    const unsigned mask = (sizeof(T) == 2 ? 0xffffu : 0xffu) << shift;
    unsigned seen = *p, old;
    do {
      old = seen;
      const unsigned part = (old & mask) >> shift;
      T v; fb_copy(v, part);
      T r = f(v);
      unsigned w = 0; fb_copy(w, r);
      seen = atomicCAS(p, old, (old & ~mask) | (w << shift & mask));
    } while (seen != old);
  }
}
"""
_COPY = r"""
template <class To, class From> __device__ __forceinline__ void fb_copy(To& to, const From& from) {
  constexpr int size = sizeof(To) < sizeof(From) ? sizeof(To) : sizeof(From);
  _Pragma("unroll") for (int i = 0; i < size; ++i) ((unsigned char*)&to)[i] = ((const unsigned char*)&from)[i];
}
"""


def _update(d: dtype, reduce: str, place: str, value: str) -> str:
    """Return text that combines a value (in the type of arithmetic) with the element at an address."""
    if reduce in ("none", ""):
        return f"*({place}) = {stored(value, d)};"
    if reduce == "add" and d in (dt.float32, dt.float64, dt.int32):
        return f"atomicAdd({place}, {value});"
    if reduce == "add" and d is dt.int64:
        return f"atomicAdd((unsigned long long*)({place}), (unsigned long long)({value}));"
    if d.is_complex:
        part = value_type(d.to_real())
        if reduce == "add":
            return f"{{ {part}* z = ({part}*)({place}); atomicAdd(z, ({value}).re); atomicAdd(z + 1, ({value}).im); }}"
        if d is dt.complex128:
            raise NotImplementedError("products of complex128 that meet at one place have no CUDA kernel")
    t = value_type(d)
    old = loaded("old", d)
    both = {
        "add": f"({t})({old} + v)", "multiply": f"({t})({old} * v)", "amax": f"fb_max<{t}>({old}, v)", "amin": f"fb_min<{t}>({old}, v)",
    }[reduce]  # fmt: skip
    m = memory_type(d)
    return f"{{ const {t} v = {value}; fb_change({place}, [v]({m} old) -> {m} {{ return {stored(both, d)}; }}); }}"


class TextProgram:
    """A program of one or more entry points with the parameters of the loop kernel."""

    def __init__(self, params: list[ir.Buffer | ir.Scalar], body: str, grid: Callable[..., list[tuple[Any, ...]]]):
        self.params, self.grid = params, grid
        head = PRELUDE + _COPY + ATOMIC
        listed = ", ".join(self._parameter(p) for p in params)
        self.source = head + body.replace("PARAMETERS", listed)
        self.kinds = tuple("d" if isinstance(p, ir.Scalar) and p.dtype is dt.float64 else "q" for p in params)

    @staticmethod
    def _parameter(p: ir.Buffer | ir.Scalar) -> str:
        return f"{value_type(p.dtype)} {p.name}" if isinstance(p, ir.Scalar) else f"{memory_type(p.dtype)}* {p.name}"

    def bind(self, device: Device) -> Callable[..., None]:
        names = [p.name for p in self.params]
        numbers = [k for k, p in enumerate(self.params) if isinstance(p, ir.Scalar)]
        functions: dict[str, Any] = {}
        plans: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}

        def prepare(key: tuple[Any, ...], values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
            plan = []
            for name, grid in self.grid(dict(zip(names, values))):
                if grid > 0:
                    if name not in functions:
                        functions[name] = device.load(self.source).function(name, self.kinds)
                    plan.append((functions[name], grid))
            return remember(plans, key, plan, 4096)

        def run(*values: Any) -> None:
            key = tuple([values[k] for k in numbers])
            plan = plans.get(key)
            if plan is None:
                plan = prepare(key, values)
            for function, grid in plan:
                function(grid, THREADS, *values)

        return run


def _per_element(name: str, count: str, body: str) -> str:
    """Return the text of an entry point that runs `body` for every i below `count`."""
    return f"""
extern "C" __global__ void __launch_bounds__({THREADS}) {name}(PARAMETERS) {{
  const i64 i = (i64)blockIdx.x * {THREADS} + threadIdx.x;
  if (i >= {count}) return;
  {body}
}}
"""


def _blocks(count: int) -> int:
    return -(-count // THREADS)


def _scatter(r: ir.LoopCall) -> tuple[str, Callable[..., Any]]:
    b: Any = r.bindings
    d = b["out"].dtype
    value = loaded("src[i]", d) if b["src"] is not None else f"({value_type(d)})value"
    update = _update(d, b["reduce"], "out + at", value)
    body = f"""
  const i64 column = i % inner, o = i / (inner * picked);
  const i64 j = index[i];
  if (j < 0 || j >= n) {{ error[0] = 1; error[1] = j; return; }}
  const i64 at = (o * n + j) * inner + column;
  {update}"""
    return _per_element("scatter", "outer * picked * inner", body), lambda v: [
        ("scatter", _blocks(v["outer"] * v["picked"] * v["inner"]))
    ]


def _scatter_slices(r: ir.LoopCall) -> tuple[str, Callable[..., Any]]:
    b: Any = r.bindings
    d = b["out"].dtype
    update = _update(d, b["reduce"], "out + at", loaded("src[i]", d))
    body = f"""
  const i64 column = i % inner, row = i / inner, o = row / picked, j = index[row % picked];
  if (j < 0 || j >= n) {{ error[0] = 1; error[1] = j; return; }}
  const i64 at = (o * n + j) * inner + column;
  {update}"""
    return _per_element("scatter_slices", "outer * picked * inner", body), lambda v: [
        ("scatter_slices", _blocks(v["outer"] * v["picked"] * v["inner"]))
    ]


def _select_slices(r: ir.LoopCall) -> tuple[str, Callable[..., Any]]:
    body = """
  const i64 column = i % inner, row = i / inner, o = row / picked, j = index[row % picked];
  if (j >= 0 && j < n) out[i] = x[(o * n + j) * inner + column];"""
    return _per_element("select_slices", "outer * picked * inner", body), lambda v: [
        ("select_slices", _blocks(v["outer"] * v["picked"] * v["inner"]))
    ]


def _put_positions(r: ir.LoopCall) -> tuple[str, Callable[..., Any]]:
    c: Any = r.bindings
    d = c["x"].dtype
    value = loaded("values[0]" if c["single"] else "values[i]", d)
    update = _update(d, "add" if c["accumulate"] else "none", "x + at", value)
    body = f"""
  const i64 a = i % inner, p = i / inner % count, b = i / inner / count;
  const i64 at = before[b] + picked[p] + {"a" if c["dense"] else "after[a]"};
  if (at < 0) return;  // an index out of bounds, which has been reported
  {update}"""
    return _per_element("put_positions", "blocks * count * inner", body), lambda v: [
        ("put_positions", _blocks(v["blocks"] * v["count"] * v["inner"]))
    ]


def _gather(r: ir.LoopCall) -> tuple[str, Callable[..., Any]]:
    body = """
  const i64 column = i % inner, o = i / inner / picked, j = index[i];
  if (j < 0 || j >= n) { error[0] = 1; error[1] = j; return; }
  out[i] = x[(o * n + j) * inner + column];"""
    return _per_element("gather", "outer * picked * inner", body), lambda v: [
        ("gather", _blocks(v["outer"] * v["picked"] * v["inner"]))
    ]


def _take(r: ir.LoopCall) -> tuple[str, Callable[..., Any]]:
    """Emit take_positions, or take_indexed, which has an index of one dimension instead of offsets."""
    c: Any = r.bindings
    start = "picked[p]"
    if r.name == "take_indexed":
        start = "(j < 0 ? j + size : j) * stride"
        check = "const i64 j = index[p]; if (j < -size || j >= size) { error[0] = 1; error[1] = j; return; }"
    else:
        check = "if (picked[p] < 0) return;"
    body = f"""
  const i64 a = i % inner, p = i / inner % count, b = i / inner / count;
  {check}
  out[i] = x[before[b] + {start} + {"a" if c["dense"] else "after[a]"}];"""
    return _per_element(r.name, "blocks * count * inner", body), lambda v: [
        (r.name, _blocks(v["blocks"] * v["count"] * v["inner"]))
    ]


def _list_true(r: ir.LoopCall) -> tuple[str, Callable[..., Any]]:
    """Emit the kernel in which a block lists the true ones among ROWS elements; ends[b] is where its list ends."""
    steps = ROWS // THREADS
    body = f"""
extern "C" __global__ void __launch_bounds__({THREADS}) list_true(PARAMETERS) {{
  __shared__ int sums[{THREADS // 32}];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const i64 first = (i64)blockIdx.x * {ROWS} + threadIdx.x * {steps};
  int mine = 0;
  bool found[{steps}];
  _Pragma("unroll") for (int k = 0; k < {steps}; ++k) {{
    found[k] = first + k < n && mask[first + k] != 0;
    mine += found[k];
  }}
  int upto = mine;
  _Pragma("unroll") for (int d = 1; d < 32; d *= 2) {{
    const int other = __shfl_up_sync(0xffffffffu, upto, d);
    if (lane >= d) upto += other;
  }}
  if (lane == 31) sums[warp] = upto;
  __syncthreads();
  int before = 0, all = 0;
  _Pragma("unroll") for (int w = 0; w < {THREADS // 32}; ++w) {{ if (w == warp) before = all; all += sums[w]; }}
  i64 at = ends[blockIdx.x] - all + before + upto - mine;
  _Pragma("unroll") for (int k = 0; k < {steps}; ++k) if (found[k]) positions[at++] = first + k;
}}
"""
    return body, lambda v: [("list_true", -(-v["n"] // ROWS))]


def _count_numbers(r: ir.LoopCall) -> tuple[str, Callable[..., Any]]:
    body = "atomicAdd((unsigned long long*)counts + x[i], 1ull);"
    return _per_element("count_numbers", "n", body), lambda v: [("count_numbers", _blocks(v["n"]))]


def _count_between(r: ir.LoopCall) -> tuple[str, Callable[..., Any]]:
    b: Any = r.bindings
    d = b["x"].dtype
    t = value_type(d)
    place = f"(v - start) * ({t})bins / (end - start)"
    if b["places"] is not None:
        place = loaded("places[i]", b["places"].dtype)
    body = f"""
  const {t} v = {loaded("x[i]", d)}, start = ({t})low, end = ({t})high;
  i64 at = bins;
  if (v >= start && v <= end) {{
    at = (i64)({place});
    if (at > bins - 1) at = bins - 1;
  }}
  atomicAdd((unsigned long long*)counts + at, 1ull);"""
    return _per_element("count_between", "n", body), lambda v: [("count_between", _blocks(v["n"]))]


def _max_pool_rows(r: ir.LoopCall) -> tuple[str, Callable[..., Any]]:
    """Emit the max-pooling kernel with one thread per window."""
    b: Any = r.bindings
    d = b["x"].dtype
    keep = "" if b["codes"] is None else f"codes[i] = ({memory_type(b['codes'].dtype)})place;"
    body = f"""
  const i64 j = i % ow, row = i / ow, top = row % oh * {b["sh"]} - ph, left = j * {b["sw"]} - pw;
  const {memory_type(d)}* plane = x + row / oh * h * w;
  const int low = top < 0 ? (int)-top : 0, high = (int)(h - top < {b["kh"]} ? h - top : {b["kh"]});
  const int start = left < 0 ? (int)-left : 0, end = (int)(w - left < {b["kw"]} ? w - left : {b["kw"]});
  {value_type(d)} best = {loaded("plane[(top + low) * w + left + start]", d)};
  int place = low * {b["kw"]} + start;
  for (int ky = low; ky < high; ++ky)
    for (int kx = start; kx < end; ++kx) {{
      const {value_type(d)} v = {loaded("plane[(top + ky) * w + left + kx]", d)};
      if (v > best || v != v) {{ best = v; place = ky * {b["kw"]} + kx; }}
    }}
  out[i] = {stored("best", d)};
  {keep}"""
    return _per_element("max_pool_rows", "planes * oh * ow", body), lambda v: [
        ("max_pool_rows", _blocks(v["planes"] * v["oh"] * v["ow"]))
    ]


def _max_pool_rows_backward(r: ir.LoopCall) -> tuple[str, Callable[..., Any]]:
    """Emit the kernel with a thread for each input element, which adds up the gradients of the windows whose largest element it is."""
    b: Any = r.bindings
    d = b["grad"].dtype
    kh, kw, sh, sw = (b[n] for n in ("kh", "kw", "sh", "sw"))
    body = f"""
  const i64 column = i % w, line = i / w, y = line % h + ph, z = column + pw, plane = line / h * oh;
  const i64 first = y < {kh} ? 0 : (y - {kh}) / {sh} + 1, left = z < {kw} ? 0 : (z - {kw}) / {sw} + 1;
  {value_type(d)} total = 0;
  for (i64 a = first; a < oh && a * {sh} <= y; ++a)
    for (i64 c = left; c < ow && c * {sw} <= z; ++c) {{
      const i64 at = (plane + a) * ow + c;
      if (codes[at] == (y - a * {sh}) * {kw} + z - c * {sw}) total += {loaded("grad[at]", d)};
    }}
  grad_in[i] = {stored("total", d)};"""
    return _per_element("max_pool_rows_backward", "planes * h * w", body), lambda v: [
        ("max_pool_rows_backward", _blocks(v["planes"] * v["h"] * v["w"]))
    ]


WRITTEN: dict[str, Callable[[ir.LoopCall], tuple[str, Callable[..., Any]]]] = {
    "scatter": _scatter,
    "scatter_slices": _scatter_slices,
    "select_slices": _select_slices,
    "put_positions": _put_positions,
    "gather": _gather,
    "take_positions": _take,
    "take_indexed": _take,
    "list_true": _list_true,
    "count_numbers": _count_numbers,
    "count_between": _count_between,
    "max_pool_rows": _max_pool_rows,
    "max_pool_rows_backward": _max_pool_rows_backward,
}


def program(recipe: ir.LoopCall, kernel: ir.Kernel) -> TextProgram | None:
    """Return the hand-written form of a loop kernel, or None."""
    write = WRITTEN.get(recipe.name)
    if write is None:
        return None
    body, grid = write(recipe)
    return TextProgram(kernel.params, body, grid)
