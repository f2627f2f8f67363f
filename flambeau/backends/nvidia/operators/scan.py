"""Running sums, products, logarithms of sums of exponentials and extremes on NVIDIA GPUs.

Lines are divided into chunks if there are too few to fill the device: one kernel reduces each chunk, a second one scans these results, a
third one writes the final ones. Lines along the last dimension are scanned by blocks, others by neighbouring threads.
"""

from __future__ import annotations

from typing import Any

from ....core import dtype as dt
from ....core.tensor import Tensor, empty
from ....ops.machinery.along import split_at
from ....ops.machinery.memory import dense
from ....ops.reduce.scan import _RUNNING, cummax, cummin, running_logsumexp, running_product, running_sum
from ... import nvidia
from .launching import address, element_text, function

_THREADS, _ITEMS = 256, 8
_TILE = _THREADS * _ITEMS

_JOINS = {
    "sum": ("A", "return a + b;", "0"),
    "prod": ("A", "return a * b;", "1"),
    "logsumexp": (
        "A",
        """if (a != a || b != b) return a + b;
  const A low = a < b ? a : b, high = a < b ? b : a;
  if (low == high && high - high != 0) return high;
  return high + (A)log1p(exp(low - high));""",
        "-(A)INFINITY",
    ),
}
# The later of equals wins; nan wins and stays.
_EXTREME = """
struct S { A value; i64 place; };
__device__ __forceinline__ S start() { S s; s.value = 0; s.place = -1; return s; }
__device__ __forceinline__ S join(S a, S b) {
  if (b.place < 0) return a;
  if (a.place < 0) return b;
  if (!(b.value %s a.value) && (b.value != b.value || a.value == a.value)) return b;
  return a;
}
__device__ __forceinline__ S made(T v, i64 place) { S s; s.value = get(v); s.place = place; return s; }
#define KEEP(s, at) { out[at] = put((s).value); places[at] = (s).place; }
"""
_PLAIN = """
#define INFINITY __int_as_float(0x7f800000)
typedef A S;
__device__ __forceinline__ S start() { return (S)%s; }
__device__ __forceinline__ S join(S a, S b) { %s }
__device__ __forceinline__ S made(T v, i64) { return get(v); }
#define KEEP(s, at) out[at] = put(s);
"""
_BODY = r"""
#define PLACE(p) (REVERSE ? n - 1 - (p) : (p))
// The join of what the threads before this one hold; `all` becomes that of the whole block.
__device__ __forceinline__ S before_me(S mine, S& all, S* shared) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  S upto = mine;
  _Pragma("unroll") for (int d = 1; d < 32; d *= 2) {
    const S other = fb_from_lane(upto, lane >= d ? lane - d : lane);
    if (lane >= d) upto = join(other, upto);
  }
  const S previous = fb_from_lane(upto, lane ? lane - 1 : 0);
  if (lane == 31) shared[warp] = upto;
  __syncthreads();
  S result = start();
  all = start();
  _Pragma("unroll") for (int w = 0; w < THREADS / 32; ++w) {
    if (w == warp) result = all;
    all = join(all, shared[w]);
  }
  return lane ? join(result, previous) : result;
}
__device__ __forceinline__ void take(T* items, const T* x, i64 p, i64 end, i64 n) {
  if (!REVERSE && p + ITEMS <= end && ((unsigned long long)(x + p) & (alignof(fb_vec<T, VECTOR>) - 1)) == 0) {
    _Pragma("unroll") for (int k = 0; k < ITEMS; k += VECTOR) {
      const fb_vec<T, VECTOR> v = *(const fb_vec<T, VECTOR>*)(x + p + k);
      _Pragma("unroll") for (int j = 0; j < VECTOR; ++j) items[k + j] = v.at[j];
    }
    return;
  }
  _Pragma("unroll") for (int k = 0; k < ITEMS; ++k) if (p + k < end) items[k] = x[PLACE(p + k)];
}
// mode 0: what each chunk amounts to; 1: the result, `partial` holding what lies before each chunk (or nothing)
template <int MODE> __device__ __forceinline__ void rows(T* out, i64* places, const T* x, S* partial, i64 n, i64 chunks, i64 length) {
  __shared__ S shared[2][THREADS / 32];
  const i64 row = blockIdx.x / chunks, chunk = blockIdx.x % chunks;
  const i64 first = chunk * length, end = first + length < n ? first + length : n;
  x += row * n;
  if (MODE) { out += row * n; if (places) places += row * n; }
  S carry = MODE && partial ? partial[blockIdx.x] : start();
  int turn = 0;
  for (i64 tile = first; tile < end; tile += TILE, turn ^= 1) {
    const i64 p = tile + threadIdx.x * ITEMS;
    T items[ITEMS];
    take(items, x, p, end, n);
    S mine = start();
    _Pragma("unroll") for (int k = 0; k < ITEMS; ++k) if (p + k < end) mine = join(mine, made(items[k], PLACE(p + k)));
    S all;
    const S lead = before_me(mine, all, shared[turn]);
    if (MODE) {
      S running = join(carry, lead);
      fb_vec<T, VECTOR> results[ITEMS / VECTOR];
      const bool whole = EXTREME == 0 && !REVERSE && p + ITEMS <= end && ((unsigned long long)(out + p) & (alignof(fb_vec<T, VECTOR>) - 1)) == 0;
      _Pragma("unroll") for (int k = 0; k < ITEMS; ++k) if (p + k < end) {
        running = join(running, made(items[k], PLACE(p + k)));
        if (whole) STASH(results[k / VECTOR].at[k % VECTOR], running) else { const i64 at = PLACE(p + k); KEEP(running, at) }
      }
      if (whole) _Pragma("unroll") for (int k = 0; k < ITEMS / VECTOR; ++k) *(fb_vec<T, VECTOR>*)(out + p + k * VECTOR) = results[k];
    }
    carry = join(carry, all);
  }
  if (!MODE && threadIdx.x == 0) partial[blockIdx.x] = carry;
}
extern "C" __global__ void __launch_bounds__(THREADS) rows_amount(const T* x, S* partial, i64 n, i64 chunks, i64 length) {
  rows<0>((T*)0, (i64*)0, x, partial, n, chunks, length);
}
extern "C" __global__ void __launch_bounds__(THREADS) rows_result(T* out, i64* places, const T* x, S* partial, i64 n, i64 chunks, i64 length) {
  rows<1>(out, places, x, partial, n, chunks, length);
}
// What lies before each chunk, in place: a thread takes a line. Chunks of line l are `step` apart, from l * lead on.
extern "C" __global__ void __launch_bounds__(THREADS) chunks_before(S* partial, i64 lines, i64 chunks, i64 lead, i64 step) {
  const i64 line = (i64)blockIdx.x * THREADS + threadIdx.x;
  if (line >= lines) return;
  S carry = start();
  for (i64 c = 0; c < chunks; ++c) {
    S* at = partial + line * lead + c * step;
    const S here = *at;
    *at = carry;
    carry = join(carry, here);
  }
}
// The same for few lines with many chunks: a block takes a line.
extern "C" __global__ void __launch_bounds__(THREADS) chunks_before_wide(S* partial, i64 chunks) {
  __shared__ S shared[2][THREADS / 32];
  S carry = start();
  int turn = 0;
  for (i64 first = 0; first < chunks; first += THREADS, turn ^= 1) {
    const i64 c = first + threadIdx.x;
    S* at = partial + blockIdx.x * chunks + c;
    S all;
    const S lead = before_me(c < chunks ? *at : start(), all, shared[turn]);
    if (c < chunks) *at = join(carry, lead);
    carry = join(carry, all);
  }
}
template <int MODE> __device__ __forceinline__ void columns(T* out, i64* places, const T* x, S* partial, i64 lines, i64 n, i64 inner, i64 chunks, i64 length) {
  const i64 task = (i64)blockIdx.x * THREADS + threadIdx.x, line = task % lines, chunk = task / lines;
  if (chunk >= chunks) return;
  const i64 base = line / inner * n * inner + line % inner;
  const i64 first = chunk * length, end = first + length < n ? first + length : n;
  S carry = MODE && partial ? partial[chunk * lines + line] : start();
  _Pragma("unroll 4") for (i64 p = first; p < end; ++p) {
    const i64 at = base + PLACE(p) * inner;
    carry = join(carry, made(x[at], PLACE(p)));
    if (MODE) KEEP(carry, at)
  }
  if (!MODE) partial[chunk * lines + line] = carry;
}
extern "C" __global__ void __launch_bounds__(THREADS) columns_amount(const T* x, S* partial, i64 lines, i64 n, i64 inner, i64 chunks, i64 length) {
  columns<0>((T*)0, (i64*)0, x, partial, lines, n, inner, chunks, length);
}
extern "C" __global__ void __launch_bounds__(THREADS) columns_result(T* out, i64* places, const T* x, S* partial, i64 lines, i64 n, i64 inner, i64 chunks, i64 length) {
  columns<1>(out, places, x, partial, lines, n, inner, chunks, length);
}
"""


def source(d: dt.dtype, op: str, reverse: bool) -> str:
    """Return the text for elements of a dtype; op is "sum", "prod", "logsumexp", "max" or "min"."""
    extreme = op in ("max", "min")
    if extreme:
        join = _EXTREME % ("<" if op == "max" else ">")
        stash = "#define STASH(to, s) { to = put((s).value); }\n"
    else:
        _, body, first = _JOINS[op]
        join = _PLAIN % (first, body)
        stash = "#define STASH(to, s) { to = put(s); }\n"
    vector = max(1, min(16 // d.itemsize, _ITEMS))
    numbers = (
        f"#define THREADS {_THREADS}\n#define ITEMS {_ITEMS}\n#define TILE {_TILE}\n#define VECTOR {vector}\n"
        f"#define REVERSE {int(reverse)}\n#define EXTREME {int(extreme)}\n"
    )
    return element_text(d) + join + stash + numbers + _BODY


def scan(out: Tensor, places: Tensor | None, x: Tensor, outer: int, n: int, inner: int, op: str, reverse: bool) -> None:
    """Scan the lines of contiguous memory."""
    where, text = out.device, source(x.dtype, op, reverse)
    width = 16 if places is not None else max(4, x.dtype.itemsize)
    positions = 0 if places is None else address(places)
    processors = nvidia.processors(where)
    if inner == 1:
        chunks = max(1, min(n // (2 * _TILE), 16 * processors // outer))
        length = -(-n // (chunks * _TILE)) * _TILE
        chunks = -(-n // length)
        partial = _partial(outer * chunks * width, chunks, where)
        spot = address(partial) if partial is not None else 0
        if chunks > 1:
            function(text, "rows_amount", "qqqqq", where)(outer * chunks, _THREADS, address(x), spot, n, chunks, length)
            function(text, "chunks_before_wide", "qq", where)(outer, _THREADS, spot, chunks)
        run = function(text, "rows_result", "qqqqqqq", where)
        run(outer * chunks, _THREADS, address(out), positions, address(x), spot, n, chunks, length)
        return
    lines = outer * inner
    chunks = max(1, min(n // 32, 1024 * processors // lines))
    length = -(-n // chunks)
    chunks = -(-n // length)
    partial = _partial(lines * chunks * width, chunks, where)
    spot = address(partial) if partial is not None else 0
    grid = -(-lines * chunks // _THREADS)
    if chunks > 1:
        amount = function(text, "columns_amount", "qqqqqqq", where)
        amount(grid, _THREADS, address(x), spot, lines, n, inner, chunks, length)
        before = function(text, "chunks_before", "qqqqq", where)
        before(-(-lines // _THREADS), _THREADS, spot, lines, chunks, 1, lines)
    run = function(text, "columns_result", "qqqqqqqqq", where)
    run(grid, _THREADS, address(out), positions, address(x), spot, lines, n, inner, chunks, length)


def _partial(nbytes: int, chunks: int, where: Any) -> Tensor | None:
    return empty((nbytes,), dt.uint8, where) if chunks > 1 else None


def _simple(out: Tensor, input: Tensor, dim: int, op: str, reverse: bool) -> None:
    scan(out, None, dense(input), *split_at(input.shape, dim), op, reverse)


@running_sum.on("cuda")
def _(out: Tensor, input: Tensor, dim: int, reverse: bool) -> None:
    _simple(out, input, dim, "sum", reverse)


@running_product.on("cuda")
def _(out: Tensor, input: Tensor, dim: int) -> None:
    _simple(out, input, dim, "prod", False)


@running_logsumexp.on("cuda")
def _(out: Tensor, input: Tensor, dim: int, reverse: bool) -> None:
    if input.dtype.is_complex:
        _RUNNING["complex logsumexp", reverse].fill(out, dim, input)
    else:
        _simple(out, input, dim, "logsumexp", reverse)


@cummax.on("cuda")
def _(out: list[Tensor], input: Tensor, dim: int) -> None:
    scan(out[0], out[1], dense(input), *split_at(input.shape, dim), "max", False)


@cummin.on("cuda")
def _(out: list[Tensor], input: Tensor, dim: int) -> None:
    scan(out[0], out[1], dense(input), *split_at(input.shape, dim), "min", False)
