"""Sorting on NVIDIA GPUs, and operators on sorted lines: topk, kthvalue, medians, mode.

Short rows are sorted in shared memory by a network. Longer ones are sorted digit by digit, all rows together: eight bits of the key at a
time from the lowest on, then the number of the row. Each digit takes three kernels: how often each value occurs in each tile, where each
tile's elements of a value go, and the move, which puts a tile in order in shared memory first so that neighbours are written together.
Everything is stable; nan is larger than every number, and -0.0 equals 0.0.
"""

from __future__ import annotations

from typing import Any

from ....core import dtype as dt
from ....core.layout import wrap_dim
from ....core.tensor import Tensor, empty, numel_of
from ....kernels.library import radix as radix_kernels
from ....ops.index import sort as operators
from ....ops.index.sort import sort_along, to_rows
from ....ops.machinery.inplace import raw_copy
from ....ops.machinery.memory import dense
from ... import nvidia
from .launching import address, blocks_for, element_text, function
from .scan import scan

_SHORT = 4096  # rows up to this long are sorted in shared memory
_THREADS = 256
_ITEMS = {False: 16, True: 8}  # of a thread: keys of up to 32 bits, of 64

_KEYS = r"""
__device__ __forceinline__ K to_key(T v) {
  const K bits = (K)fb_bitcast<RAW>(v);
#if FLOATING
  return bits & SIGN ? ~bits & ALL : bits | SIGN;
#else
  return bits ^ FLIP;
#endif
}
__device__ __forceinline__ T from_key(K key) {
#if FLOATING
  const K bits = key & SIGN ? key ^ SIGN : ~key & ALL;
#else
  const K bits = key ^ FLIP;
#endif
  return fb_bitcast<T>((RAW)bits);
}
// What keys are compared by: one value for all nan, one for both zeros.
__device__ __forceinline__ K ordered(K key) {
#if FLOATING
  if (key > (K)(EXPONENT | SIGN) || key < (K)(~(EXPONENT | SIGN) & ALL)) key = ALL;
  else if (key == (K)(SIGN - 1)) key = SIGN;
#endif
  return DESCENDING ? ~key & ALL : key;
}
"""
_NETWORK = r"""
// `together` rows of `padded` (a power of two) slots each, in shared memory.
extern "C" __global__ void __launch_bounds__(1024) sort_short(T* values, i64* places, const T* x, i64 rows, int n, int padded, int together) {
  __shared__ K keys[SLOTS];
  __shared__ unsigned short from[SLOTS];
  const i64 first = (i64)blockIdx.x * together;
  const int slots = padded * together;
  for (int s = threadIdx.x; s < slots; s += blockDim.x) {
    const i64 row = first + s / padded;
    const int i = s % padded;
    const bool inside = row < rows && i < n;
    keys[s] = inside ? ordered(to_key(x[row * n + i])) : ALL;
    from[s] = inside ? i : 0xffff;
  }
  for (int size = 2; size <= padded; size *= 2)
    for (int step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int t = threadIdx.x; t < slots / 2; t += blockDim.x) {
        const int low = 2 * t - (t & (step - 1)), high = low + step;
        const K a = keys[low], b = keys[high];
        const unsigned short p = from[low], q = from[high];
        const bool after = a > b || (a == b && p > q);
        if (after == ((low & (padded - 1) & size) == 0)) {
          keys[low] = b; keys[high] = a;
          from[low] = q; from[high] = p;
        }
      }
    }
  __syncthreads();
  for (int s = threadIdx.x; s < slots; s += blockDim.x) {
    const i64 row = first + s / padded;
    const int i = s % padded;
    if (row < rows && i < n) {
      places[row * n + i] = from[s];
      values[row * n + i] = x[row * n + from[s]];
    }
  }
}
"""
_DIGITS = r"""
// The digit of an element: of its key from bit `shift` on, or (row_shift >= 0) of the number of its row.
__device__ __forceinline__ unsigned digit_of(K key, unsigned item, unsigned n, int shift, int row_shift) {
  return row_shift < 0 ? (unsigned)(ordered(key) >> shift) & 255u : (item / n) >> row_shift & 255u;
}
extern "C" __global__ void __launch_bounds__(256) count_digits(unsigned* counts, const T* x, const K* keys, const unsigned* items,
    i64 total, i64 tiles, i64 n, int shift, int row_shift) {
  __shared__ unsigned found[256];
  found[threadIdx.x] = 0;
  __syncthreads();
  const i64 first = (i64)blockIdx.x * TILE;
  _Pragma("unroll 8") for (int k = 0; k < TILE / 256; ++k) {
    const i64 i = first + k * 256 + threadIdx.x;
    if (i < total) {
      const K key = x ? to_key(x[i]) : keys[i];
      const unsigned item = row_shift < 0 ? 0u : x ? (unsigned)i : items[i];
      atomicAdd(&found[digit_of(key, item, (unsigned)n, shift, row_shift)], 1u);
    }
  }
  __syncthreads();
  counts[threadIdx.x * tiles + blockIdx.x] = found[threadIdx.x];
}
// The lanes of the warp with the same digit. (Eight votes: quicker than match.)
__device__ __forceinline__ unsigned same_digit(unsigned d) {
  unsigned same = 0xffffffffu;
  _Pragma("unroll") for (int bit = 0; bit < 8; ++bit) {
    const bool mine = d >> bit & 1u;
    const unsigned others = __ballot_sync(0xffffffffu, mine);
    same &= mine ? others : ~others;
  }
  return same;
}
// `ends` are the running sums of all counts, digit by digit.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) move_digits(const unsigned* ends, const T* x, const K* keys, const unsigned* items,
    K* new_keys, unsigned* new_items, T* values, i64* places, i64 total, i64 tiles, i64 n, int shift, int row_shift) {
  __shared__ unsigned short counts[THREADS / 32][256];
  __shared__ unsigned short starts[256];
  __shared__ unsigned goals[256], sums[THREADS / 32];
  __shared__ K staged_keys[TILE];
  __shared__ unsigned staged_items[TILE];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const i64 first = (i64)blockIdx.x * TILE;
  const int here = (int)(total - first < TILE ? total - first : TILE);
  for (int w = 0; w < THREADS / 32; ++w) counts[w][threadIdx.x] = 0;
  __syncthreads();
  K key[ITEMS];
  unsigned short rank[ITEMS];
  _Pragma("unroll") for (int k = 0; k < ITEMS; ++k) {
    const int at = warp * 32 * ITEMS + k * 32 + lane;
    key[k] = at < here ? (x ? to_key(x[first + at]) : keys[first + at]) : 0;
  }
  _Pragma("unroll") for (int k = 0; k < ITEMS; ++k) {
    const int at = warp * 32 * ITEMS + k * 32 + lane;
    const unsigned item = row_shift < 0 || at >= here ? 0u : x ? (unsigned)(first + at) : items[first + at];
    const unsigned d = at < here ? digit_of(key[k], item, (unsigned)n, shift, row_shift) : 255u;
    const unsigned same = same_digit(d);
    const int before_me = __popc(same & ((1u << lane) - 1u));
    const unsigned before = counts[warp][d];
    __syncwarp();
    if (before_me == 0) counts[warp][d] = (unsigned short)(before + __popc(same));
    __syncwarp();
    rank[k] = (unsigned short)(before + before_me);
  }
  __syncthreads();
  unsigned sum = 0;
  for (int w = 0; w < THREADS / 32; ++w) { const unsigned c = counts[w][threadIdx.x]; counts[w][threadIdx.x] = (unsigned short)sum; sum += c; }
  unsigned upto = sum;
  _Pragma("unroll") for (int d = 1; d < 32; d *= 2) {
    const unsigned other = __shfl_up_sync(0xffffffffu, upto, d);
    if (lane >= d) upto += other;
  }
  if (lane == 31) sums[warp] = upto;
  __syncthreads();
  for (int w = 0; w < warp; ++w) upto += sums[w];
  const i64 slot = threadIdx.x * tiles + blockIdx.x;
  starts[threadIdx.x] = (unsigned short)(upto - sum);
  goals[threadIdx.x] = (slot ? ends[slot - 1] : 0u) - (upto - sum);
  __syncthreads();
  _Pragma("unroll") for (int k = 0; k < ITEMS; ++k) {
    const int at = warp * 32 * ITEMS + k * 32 + lane;
    if (at < here) {
      const unsigned item = x ? (unsigned)(first + at) : items[first + at];
      const unsigned d = digit_of(key[k], item, (unsigned)n, shift, row_shift);
      const unsigned to = starts[d] + counts[warp][d] + rank[k];
      staged_keys[to] = key[k];
      staged_items[to] = item;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < here; i += THREADS) {
    const K k = staged_keys[i];
    const unsigned from = staged_items[i];
    const unsigned to = goals[digit_of(k, from, (unsigned)n, shift, row_shift)] + i;
    if (values) {
      values[to] = from_key(k);
      places[to] = n == total ? from : from % (unsigned)n;
    } else {
      new_keys[to] = k;
      new_items[to] = from;
    }
  }
}
"""


_BEST = r"""
// The k first elements (in order) of each piece of each row, by index; every piece has as many. `from` gives their indices, or nothing.
extern "C" __global__ void __launch_bounds__(512) choose_best(T* values, i64* places, const T* x, const i64* from, i64 n, i64 k,
    i64 pieces, i64 length) {
  __shared__ unsigned found[256];
  __shared__ K prefix;
  __shared__ unsigned left, sums[2][16];
  const i64 row = blockIdx.x / pieces, piece = blockIdx.x % pieces;
  const i64 first = piece * length, last = first + length < n ? first + length : n;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  x += row * n;
  if (from) from += row * n;
  values += blockIdx.x * k;
  places += blockIdx.x * k;
  const i64 wanted = k;  // there are as many in every piece
  if (threadIdx.x == 0) { prefix = 0; left = (unsigned)wanted; }
  for (int shift = BITS - 8; shift >= 0; shift -= 8) {
    if (threadIdx.x < 256) found[threadIdx.x] = 0;
    __syncthreads();
    const K seen = prefix, mask = shift + 8 < BITS ? ~(K)0 << (shift + 8) & ALL : 0;
    for (i64 i = first + threadIdx.x; i < last; i += 512) {
      const K key = ordered(to_key(x[i]));
      if ((key & mask) == seen) atomicAdd(&found[(unsigned)(key >> shift) & 255u], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned rest = left, d = 0;
      while (d < 255 && rest > found[d]) rest -= found[d++];
      prefix = seen | (K)d << shift;
      left = rest;
    }
    __syncthreads();
  }
  // Everything below the last one chosen, and as many equal to it as are left, in the order of their indices.
  const K limit = prefix;
  const unsigned equals = left;
  unsigned below_before = 0, equal_before = 0;
  const unsigned below_all = (unsigned)wanted - equals;
  for (i64 tile = first; tile < last; tile += 512) {
    const i64 i = tile + threadIdx.x;
    const K key = i < last ? ordered(to_key(x[i])) : ALL;
    const bool below = i < last && key < limit, equal = i < last && key == limit;
    const unsigned b = __ballot_sync(0xffffffffu, below), e = __ballot_sync(0xffffffffu, equal), mine = (1u << lane) - 1u;
    if (lane == 0) { sums[0][warp] = __popc(b); sums[1][warp] = __popc(e); }
    __syncthreads();
    unsigned bs = below_before + __popc(b & mine), es = equal_before + __popc(e & mine);
    for (int w = 0; w < 16; ++w) {
      if (w < warp) { bs += sums[0][w]; es += sums[1][w]; }
      below_before += sums[0][w];
      equal_before += sums[1][w];
    }
    __syncthreads();
    if (below || (equal && es < equals)) {
      const i64 at = below ? bs : below_all + es;
      values[at] = x[i];
      places[at] = from ? from[i] : i;
    }
  }
}
"""


def source(d: dt.dtype, descending: bool) -> str:
    bits = 8 * d.itemsize
    wide = bits == 64
    sign, everything = 1 << (bits - 1), (1 << bits) - 1
    raw = {8: "unsigned char", 16: "unsigned short", 32: "unsigned", 64: "unsigned long long"}[bits]
    items = _ITEMS[wide]
    precision = d.limits.precision if d.limits else bits
    exponent = ((1 << (bits - precision)) - 1) << (precision - 1)  # its bits in a floating point number
    suffix = "ULL" if wide else "U"
    numbers = {
        "RAW": raw, "FLOATING": int(d.is_floating_point), "SIGN": f"0x{sign:x}{suffix}", "ALL": f"0x{everything:x}{suffix}",
        "FLIP": f"0x{sign if d.is_signed and not d.is_floating_point and d is not dt.bool_ else 0:x}{suffix}",
        "EXPONENT": f"0x{exponent:x}{suffix}", "DESCENDING": int(descending), "SLOTS": _SHORT, "THREADS": _THREADS,
        "ITEMS": items, "TILE": _THREADS * items, "BITS": bits, "BLOCKS": 4,
    }  # fmt: skip
    head = "".join(f"#define {name} {value}\n" for name, value in numbers.items())
    kind = f"typedef {'unsigned long long' if wide else 'unsigned'} K;\n"
    return element_text(d) + kind + head + _KEYS + _NETWORK + _DIGITS + _BEST


def sort_rows(values: Tensor, index: Tensor, rows: Tensor, descending: bool) -> None:
    """Sort every row of a contiguous tensor stably; write values and their order into contiguous memory."""
    n = rows.shape[-1] if rows.shape else 1
    count = numel_of(rows.shape) // max(n, 1)
    if not n or not count:
        return
    text = source(rows.dtype, descending)
    if n <= _SHORT:
        padded = max(2, 1 << (n - 1).bit_length())
        together = max(1, min(1024 // padded, count))
        threads = max(32, min(1024, padded * together // 2))
        run = function(text, "sort_short", "qqqqiii", rows.device)
        run(-(-count // together), threads, address(values), address(index), address(rows), count, n, padded, together)
        return
    most = max(1, ((1 << 31) - 1) // n)  # rows whose elements 31 bits can number
    for first in range(0, count, most):
        _sort_together(values, index, rows, first, min(most, count - first), n, text)


def _sort_together(values: Tensor, index: Tensor, rows: Tensor, first: int, count: int, n: int, text: str) -> None:
    where, d, total = rows.device, rows.dtype, count * n
    wide = d.itemsize == 8
    tile = _THREADS * _ITEMS[wide]
    tiles = -(-total // tile)
    shifts = [(s, -1) for s in range(0, 8 * d.itemsize, 8)]
    shifts += [(0, s) for s in range(0, (count - 1).bit_length(), 8)]
    kind = dt.int64 if wide else dt.int32
    keys = [empty((total,), kind, where) for _ in range(2)]
    items = [empty((total,), dt.int32, where) for _ in range(2)]
    counts, ends = (empty((256 * tiles,), dt.int32, where) for _ in range(2))
    tally = function(text, "count_digits", "qqqqqqqii", where)
    move = function(text, "move_digits", "qqqqqqqqqqqii", where)
    start = first * n
    x = address(rows) + start * d.itemsize
    for k, (shift, row_shift) in enumerate(shifts):
        given = (x, 0, 0) if k == 0 else (0, address(keys[k % 2]), address(items[k % 2]))
        tally(tiles, 256, address(counts), *given, total, tiles, n, shift, row_shift)
        scan(ends, None, counts, 1, 256 * tiles, 1, "sum", False)
        result = (0, 0)
        if k == len(shifts) - 1:
            result = address(values) + start * d.itemsize, address(index) + start * 8
        made = (address(keys[1 - k % 2]), address(items[1 - k % 2]))
        move(tiles, _THREADS, address(ends), *given, *made, *result, total, tiles, n, shift, row_shift)


def _sort(out: list[Tensor], input: Tensor, dim: int, descending: bool) -> None:
    sort_along(out[0], out[1], input, dim, descending, sort_rows)


operators.sorted_along.on("cuda")(_sort)
operators.stably_sorted_along.on("cuda")(_sort)


def _sorted_rows(input: Tensor, dim: int, descending: bool) -> tuple[Tensor, Tensor, int]:
    """Return the lines of a dimension as sorted rows, with their order, and their length."""
    rows = to_rows(input, dim)
    ordered, order = empty(rows.shape, rows.dtype, rows.device), empty(rows.shape, dt.int64, rows.device)
    sort_rows(ordered, order, rows, descending)
    return ordered, order, rows.shape[-1] if rows.shape else 1


def _best_rows(input: Tensor, dim: int, k: int, largest: bool) -> tuple[Tensor, Tensor]:
    """Return the k best of each line of a dimension, best first, as rows, and where they were."""
    rows = to_rows(input, dim)
    n, where, text = rows.shape[-1], rows.device, source(rows.dtype, largest)
    count = numel_of(rows.shape) // n
    choose = function(text, "choose_best", "qqqqqqqq", where)
    values, places = rows, None
    pieces = max(1, min(n // max(8 * k, 8192), 4 * nvidia.processors(where) // count))
    while True:
        length = -(-n // pieces)
        pieces = -(-n // length)
        if pieces > 1 and n - (pieces - 1) * length < k:  # every piece must have k elements: none is made up
            pieces = 1
            length = n
        found = (
            empty((*rows.shape[:-1], pieces * k), rows.dtype, where),
            empty((*rows.shape[:-1], pieces * k), dt.int64, where),
        )
        given = 0 if places is None else address(places)
        choose(count * pieces, 512, address(found[0]), address(found[1]), address(values), given, n, k, pieces, length)
        values, places = found
        if pieces == 1:
            break
        n, pieces = pieces * k, 1
    best, order = empty(values.shape, values.dtype, where), empty(values.shape, dt.int64, where)
    sort_rows(best, order, values, largest)
    return best, places.gather(-1, order)


@operators.topk_along.on("cuda")
def _(out: list[Tensor], input: Tensor, k: int, dim: int, largest: bool) -> None:
    n = input.shape[dim] if input.shape else 1
    if n > _SHORT and 0 < k <= _SHORT and 4 * k <= n:
        for to, best in zip(out, _best_rows(input, dim, k, largest)):
            raw_copy(to, best.movedim(-1, dim))
        return
    ordered, order, _ = _sorted_rows(input, dim, largest)
    if not input.shape:
        raw_copy(out[0], ordered)
        raw_copy(out[1], order)
        return
    last = len(input.shape) - 1
    for to, found in zip(out, (ordered, order)):
        raw_copy(to, found.narrow(last, 0, k).movedim(last, dim))


_TAKE = r"""
// The element at position k of each sorted row; what = 1: the middle, or the first nan; 2: the middle of those that are no nan.
extern "C" __global__ void __launch_bounds__(256) take_kth(T* values, i64* places, const T* rows, const i64* order, i64 count, i64 n, i64 k, int what) {
  const i64 row = (i64)blockIdx.x * 256 + threadIdx.x;
  if (row >= count) return;
  const T* line = rows + row * n;
  i64 numbers = n;  // nan come last
  if (what) {
    i64 low = 0, high = n;
    while (low < high) { const i64 half = (low + high) / 2; const A v = get(line[half]); if (v == v) low = half + 1; else high = half; }
    numbers = low;
    k = what == 1 ? (numbers < n ? numbers : (n - 1) / 2) : numbers ? (numbers - 1) / 2 : 0;
  }
  values[row] = line[k];
  places[row] = order[row * n + k];
}
"""
_WHAT = {"kth": 0, "median": 1, "nanmedian": 2}


def _select(values: Tensor, index: Tensor, input: Tensor, dim: int, k: int, what: str) -> None:
    ordered, order, n = _sorted_rows(input, dim, False)
    count = numel_of(values.shape)
    run = function(element_text(input.dtype) + _TAKE, "take_kth", "qqqqqqqi", input.device)
    run(
        blocks_for(count, 256),
        256,
        address(values),
        address(index),
        address(ordered),
        address(order),
        count,
        n,
        k,
        _WHAT[what],
    )


@operators.kth_along.on("cuda")
def _(out: list[Tensor], input: Tensor, k: int, dim: int, keepdim: bool) -> None:
    _select(out[0], out[1], input, wrap_dim(dim, len(input.shape)), int(k) - 1, "kth")


def _declare_medians(name: str, of_all: Any, along: Any) -> None:
    everywhere = of_all.op.kernels["any"]

    @of_all.on("cuda")
    def _(out: Tensor, input: Tensor) -> None:
        if numel_of(input.shape):
            _select(out, empty((), dt.int64, out.device), dense(input).reshape(-1), 0, 0, name)
        else:
            everywhere(out, input)

    @along.on("cuda")
    def _(out: list[Tensor], input: Tensor, dim: int, keepdim: bool) -> None:
        _select(out[0], out[1], input, wrap_dim(dim, len(input.shape)), 0, name)


_declare_medians("median", operators.median_of_all, operators.median_along)
_declare_medians("nanmedian", operators.nanmedian_of_all, operators.nanmedian_along)


@operators.mode.on("cuda")
def _(out: list[Tensor], input: Tensor, dim: int = -1, keepdim: bool = False) -> None:
    ordered, order, n = _sorted_rows(input, wrap_dim(dim, len(input.shape)), False)
    radix_kernels.longest_runs(out[0], out[1], ordered, order, numel_of(out[0].shape), n)
