"""Random numbers on the GPU: PyTorch's numbers for the same seed, as far as its algorithm allows.

Every thread of a launch has a counter of its own (its number), draws four numbers at a time, and serves every elements-th element
of the tensor in the order of memory; so the numbers depend on how many threads PyTorch would start on this GPU."""

from __future__ import annotations

import functools
import math
from typing import Any

from ....core import dtype as dt
from ....core import random_integers as integers
from ....core.backend import backend_of
from ....core.device import device
from ....core.generator import Generator, default_generator
from ....core.layout import is_non_overlapping_and_dense
from ....core.raw_memory import first_address as _address
from ....core.size import make_size
from ....core.tensor import Tensor, empty, new_tensor, numel_of
from ....kernels.cuda_values import element_type
from ....ops.machinery.inplace import raw_copy
from ....ops.nn.dropout import alpha_dropout_noise
from ....ops.random.fills import _bernoulli_fill
from ....ops.random.random_fill import fill
from ....ops.random.samplers import (
    Bernoulli,
    Cauchy,
    Exponential,
    FullIntegers,
    Geometric,
    Integers,
    KeptElements,
    LogNormal,
    Normal,
    Permutation,
    Sampler,
    Uniform,
)
from ... import nvidia
from .. import driver, philox

_BLOCK = 256

ENGINE = r"""
typedef unsigned long long u64;
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
template <class T> struct As { static __device__ T of(double v) { return (T)v; } static __device__ T of(float v) { return (T)v; }
  static __device__ T of(u64 v) { return (T)v; } static __device__ T of(long long v) { return (T)v; }
  static __device__ T of(bool v) { return (T)v; } };
template <> struct As<f16> { template <class V> static __device__ f16 of(V v) {
  f16 h; float f = (float)v; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(f)); return h; } };
template <> struct As<bf16> { template <class V> static __device__ bf16 of(V v) {
  bf16 h; float f = (float)v; unsigned u = __float_as_uint(f);
  h.bits = f != f ? (unsigned short)(u >> 16 | 0x40) : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16); return h; } };
template <class T> struct Read { static __device__ T of(T v) { return v; } };
template <> struct Read<f16> { static __device__ float of(f16 h) {
  float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.bits)); return f; } };
template <> struct Read<bf16> { static __device__ float of(bf16 h) { return __uint_as_float((unsigned)h.bits << 16); } };
struct Draw { unsigned x, y, z, w; };
struct Philox {  // four 32-bit numbers at a time
  unsigned key0, key1; u64 at; u64 thread;
  __device__ Philox(u64 seed, u64 thread, u64 offset) : key0((unsigned)seed), key1((unsigned)(seed >> 32)), at(offset / 4), thread(thread) {}
  __device__ Draw next() {
    unsigned c0 = (unsigned)at, c1 = (unsigned)(at >> 32), c2 = (unsigned)thread, c3 = (unsigned)(thread >> 32), k0 = key0, k1 = key1;
    at += 1;
    #pragma unroll
    for (int round = 0; round < 10; ++round) {
      unsigned high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
      unsigned high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
      c0 = high1 ^ c1 ^ k0; c1 = low1; c2 = high0 ^ c3 ^ k1; c3 = low0;
      k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
    Draw d = {c0, c1, c2, c3}; return d;
  }
};
__device__ float unit(unsigned x) { return x * 2.3283064e-10f + (2.3283064e-10f / 2.0f); }  // on (0, 1]
__device__ double unit2(unsigned x, unsigned y) {
  u64 z = (u64)x ^ ((u64)y << 21); return z * 1.1102230246251565e-16 + (1.1102230246251565e-16 / 2.0);
}
struct Four { float v[4]; };
struct Two { double v[2]; };
struct Words { unsigned v[4]; };
struct Pairs { u64 v[2]; };
__device__ Four uniform(Philox& g, float) { Draw r = g.next(); Four f = {{unit(r.x), unit(r.y), unit(r.z), unit(r.w)}}; return f; }
__device__ Two uniform(Philox& g, double) { Draw r = g.next(); Two f = {{unit2(r.x, r.y), unit2(r.z, r.w)}}; return f; }
__device__ void box(unsigned x, unsigned y, float& a, float& b) {
  float u = x * 2.3283064e-10f + (2.3283064e-10f / 2), v = y * (2.3283064e-10f * 6.2831855f) + (2.3283064e-10f * 6.2831855f / 2);
  float s = sqrtf(-2.0f * logf(u)); __sincosf(v, &a, &b); a *= s; b *= s;
}
__device__ Four normal(Philox& g, float) {
  Draw r = g.next(); Four f; box(r.x, r.y, f.v[0], f.v[1]); box(r.z, r.w, f.v[2], f.v[3]); return f;
}
__device__ Two normal(Philox& g, double) {
  Draw r = g.next(); Two f;
  u64 zx = (u64)r.x ^ ((u64)r.y << 21), zy = (u64)r.z ^ ((u64)r.w << 21);
  double u = zx * 1.1102230246251565e-16 + (1.1102230246251565e-16 / 2.0);
  double v = zy * (1.1102230246251565e-16 * 2.0) + 1.1102230246251565e-16;
  double s = sqrt(-2.0 * log(u)); sincospi(v, &f.v[0], &f.v[1]); f.v[0] *= s; f.v[1] *= s; return f;
}
__device__ Words words(Philox& g) { Draw r = g.next(); Words w = {{r.x, r.y, r.z, r.w}}; return w; }
__device__ Pairs pairs(Philox& g) {
  Draw r = g.next(); Pairs p = {{(u64)r.x << 32 | r.y, (u64)r.z << 32 | r.w}}; return p;
}
"""

# PLACE is the index of the element, VALUE its value from `r`, one of the COUNT numbers that DRAW returns.
_LOOP = r"""
extern "C" __global__ void __launch_bounds__(256) draw({parameters}u64 seed, u64 offset, const u64* held, long long n) {{
  if (held) {{ seed = held[0]; offset += held[1]; }}
  const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x, threads = (long long)blockDim.x * gridDim.x;
  Philox engine(seed, thread, offset);
  const long long rounds = ((n - 1) / (threads * {count}) + 1) * threads * {count};
  for (long long base = thread; base < rounds; base += threads * {count}) {{
    auto drawn = {draw};
    #pragma unroll
    for (int k = 0; k < {count}; ++k) {{
      const long long i = base + threads * k;
      if (i < n) {{ auto r = drawn.v[k]; {body} }}
    }}
  }}
}}
"""

# Neighbouring elements share the four numbers of a thread, as PyTorch's dropout has it for whole vectors.
_VECTORS = r"""
extern "C" __global__ void __launch_bounds__(256) draw({parameters}u64 seed, u64 offset, const u64* held, long long n) {{
  if (held) {{ seed = held[0]; offset += held[1]; }}
  const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x, threads = (long long)blockDim.x * gridDim.x;
  Philox engine(seed, thread, offset);
  for (long long base = thread * {vector}; base < n; base += threads * {vector}) {{
    #pragma unroll
    for (int part = 0; part < {vector}; part += 4) {{
      auto drawn = {draw};
      #pragma unroll
      for (int k = 0; k < 4; ++k) {{ const long long i = base + part + k; if (i < n) {{ auto r = drawn.v[k]; {body} }} }}
    }}
  }}
}}
"""


# Equal keys are side by side: the first thread of each such island shuffles it.
_ISLANDS = r"""
extern "C" __global__ void islands(const long long* keys, long long* data, long long n, u64 seed, u64 offset, const u64* held) {
  if (held) { seed = held[0]; offset += held[1]; }
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n - 1 || (i != 0 && keys[i] == keys[i - 1]) || keys[i] != keys[i + 1]) return;
  long long size = 0;
  do { ++size; } while (i + size < n && keys[i + size] == keys[i]);
  Philox engine(seed, i, offset);
  unsigned drawn[4]; int left = 0;
  for (long long k = size - 1; k > 0; --k) {
    if (!left) { Words w = words(engine); for (int j = 0; j < 4; ++j) drawn[j] = w.v[j]; left = 4; }
    const unsigned r = drawn[4 - left--] % (unsigned)(k + 1);
    if (k != r) { long long x = data[i + k]; data[i + k] = data[i + r]; data[i + r] = x; }
  }
}
"""


@functools.cache
def _kernel(
    where: device, d: dt.dtype, draw: str, count: int, body: str, numbers: str, inputs: tuple[Any, ...], vector: int
) -> Any:
    """Return a launch function of (grid, block, out, inputs..., numbers..., seed, offset, held, n)."""
    parameters = f"{element_type(d)}* out, " + "".join(
        f"const {element_type(x)}* in{i}, " for i, x in enumerate(inputs)
    )
    kinds = {"f": "float", "d": "double", "q": "long long"}
    parameters += "".join(f"{kinds[k]} p{i}, " for i, k in enumerate(numbers))
    text = (_VECTORS if vector else _LOOP).format(
        parameters=parameters, draw=draw, count=count, body=body, vector=vector
    )
    layout = ("q",) * (1 + len(inputs)) + tuple(numbers) + ("q", "q", "q", "q")
    return nvidia.load_source(ENGINE + text, where).function("draw", layout)


@functools.cache
def _most_blocks(index: int) -> int:
    per_processor = driver.attribute("max_threads_per_multi_processor", index) // _BLOCK
    return driver.attribute("multi_processor_count", index) * per_processor


def grid_of(n: int, count: int, index: int) -> tuple[int, int]:
    """Return how many blocks PyTorch starts for n elements, and how far that advances the generator."""
    blocks = min(_most_blocks(index), -(-n // _BLOCK))
    return blocks, ((n - 1) // (_BLOCK * blocks * count) + 1) * 4


def source_of(generator: Generator, where: device) -> philox.CudaGenerator:
    """Return the generator for a device: the default one stands for each device's own."""
    if generator is default_generator:
        return backend_of(where).generator(where)
    if not isinstance(generator, philox.CudaGenerator):
        raise RuntimeError(f"Expected a 'cuda' device type for generator but found '{generator.device.type}'")
    if generator.device is not where:
        raise RuntimeError(f"Expected a '{where}' generator device but found '{generator.device}'")
    return generator


def launch(
    out: Tensor, generator: Generator, draw: str, count: int, body: str, numbers: str = "", values: tuple[Any, ...] = (),
    inputs: tuple[Tensor, ...] = (), vector: int = 0, shape: tuple[int, int] | None = None,
) -> None:  # fmt: skip
    """Fill a dense tensor, in the order of memory. With `vector`, a thread fills that many neighbours at a time; `shape` overrides the number
    of blocks and how far the generator advances."""
    n = numel_of(out.shape)
    where = out.device
    kernel = _kernel(where, out.dtype, draw, count, body, numbers, tuple(x.dtype for x in inputs), vector)
    blocks, distance = grid_of(n, count, where.index or 0) if shape is None else shape
    source = source_of(generator, where)
    source.prepare_capture()
    state = source.take(distance)
    kernel(blocks, _BLOCK, _address(out), *[_address(x) for x in inputs], *values, *state, n)


def _real(t: Tensor) -> Tensor:
    """Return a complex tensor as twice as many real numbers."""
    if not t.dtype.is_complex:
        return t
    shape, strides = (*t.shape, 2), (*(2 * s for s in t._strides), 1)
    return new_tensor(t._storage, make_size(shape), strides, 2 * t._offset, t.dtype.to_real(), t.device, False)


@fill.on("cuda")
def _(t: Tensor, generator: Generator, sample: Sampler) -> None:
    if is_non_overlapping_and_dense(t.shape, t._strides):
        _sample(_real(t), generator, sample)
        return
    # Elements take their numbers in the order of memory.
    order = sorted(range(len(t.shape)), key=lambda i: -t._strides[i])
    shape = make_size(tuple(t.shape[i] for i in order))
    flat = empty(shape, t.dtype, t.device)
    _sample(_real(flat), generator, sample)
    strides = tuple(t._strides[i] for i in order)
    raw_copy(new_tensor(t._storage, shape, strides, t._offset, t.dtype, t.device, False), flat)


def _sample(t: Tensor, generator: Generator, sample: Sampler) -> None:
    known = _SAMPLERS.get(type(sample))
    if known is not None:
        known(t, generator, sample)
        return
    for kind, run in _SAMPLERS.items():
        if isinstance(sample, kind):
            run(t, generator, sample)
            return
    raise NotImplementedError(f"random_fill: {type(sample).__name__} has no kernel on the device '{t.device}'")


def _uniform_numbers(t: Tensor) -> tuple[str, int, str, str]:
    """Return how to draw from (0, 1] for a tensor: text, how many at a time, the type of parameters and its letter."""
    if t.dtype is dt.float64:
        return "uniform(engine, 0.0)", 2, "double", "d"
    return "uniform(engine, 0.0f)", 4, "float", "f"


def _fast(letter: str, name: str) -> str:
    """Return the name of the fast single-precision function that PyTorch uses here, or of the double-precision one."""
    return name if letter == "d" else f"__{name}f"


def _as(t: Tensor, value: str) -> str:
    return f"out[i] = As<{element_type(t.dtype)}>::of({value});"


def _uniform(t: Tensor, generator: Generator, sample: Uniform) -> None:
    draw, count, kind, letter = _uniform_numbers(t)
    # PyTorch turns the interval (0, 1] around: what rounds to the upper end becomes the lower one.
    made = element_type(t.dtype)
    read, cast = f"Read<{made}>::of", f"As<{made}>::of"
    body = f"auto v = {cast}(r * p0 + p1); out[i] = {read}(v) == {read}({cast}(p2)) ? {cast}(p1) : v;"
    launch(t, generator, draw, count, body, letter * 3, (sample.high - sample.low, sample.low, sample.high))


def _normal(t: Tensor, generator: Generator, sample: Normal) -> None:
    _, count, _, letter = _uniform_numbers(t)
    draw = f"normal(engine, {'0.0' if count == 2 else '0.0f'})"
    launch(t, generator, draw, count, _as(t, "r * p1 + p0"), letter * 2, (sample.mean, sample.std))


def _log_normal(t: Tensor, generator: Generator, sample: LogNormal) -> None:
    _, count, _, letter = _uniform_numbers(t)
    draw = f"normal(engine, {'0.0' if count == 2 else '0.0f'})"
    launch(
        t, generator, draw, count, _as(t, f"{_fast(letter, 'exp')}(r * p1 + p0)"), letter * 2, (sample.mean, sample.std)
    )


def _exponential(t: Tensor, generator: Generator, sample: Exponential) -> None:
    draw, count, kind, letter = _uniform_numbers(t)
    tiny = "2.220446049250313e-16" if letter == "d" else "1.1920929e-07f"
    body = f"{kind} l = r >= 1 - {tiny} / 2 ? -{tiny} / 2 : {_fast(letter, 'log')}(r); " + _as(
        t, f"({kind})-1 / p0 * l"
    )
    launch(t, generator, draw, count, body, letter, (sample.rate,))


def _cauchy(t: Tensor, generator: Generator, sample: Cauchy) -> None:
    draw, count, kind, letter = _uniform_numbers(t)
    tiny = "2.220446049250313e-16" if letter == "d" else "1.1920929e-07f"
    body = f"{kind} u = r > 1 - {tiny} ? 1 - {tiny} : r; u = u < {tiny} ? {tiny} : u; " + _as(
        t, f"p0 + p1 * {_fast(letter, 'tan')}(({kind})3.141592653589793 * (u - ({kind})0.5))"
    )
    launch(t, generator, draw, count, body, letter * 2, (sample.median, sample.sigma))


def _geometric(t: Tensor, generator: Generator, sample: Geometric) -> None:
    draw, count, kind, letter = _uniform_numbers(t)
    launch(
        t, generator, draw, count, _as(t, f"({kind})ceil({_fast(letter, 'log')}(r) / log1p(-p0))"), letter, (sample.p,)
    )


def _bernoulli(t: Tensor, generator: Generator, sample: Bernoulli) -> None:
    if not 0 <= sample.p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={sample.p}")
    draw, count, _, letter = _uniform_numbers(t)
    plain = isinstance(sample, KeptElements)
    vector = (
        next((v for v in ((8, 4) if t.dtype.itemsize <= 2 else (4,)) if numel_of(t.shape) % v == 0), 0) if plain else 0
    )
    if plain:
        draw, count, letter = "uniform(engine, 0.0f)", 4, "f"
    launch(t, generator, draw, count, _as(t, "r < p0 ? p1 : 0"), letter * 2, (sample.p, sample.one), vector=vector)


def _integers(t: Tensor, generator: Generator, sample: Integers) -> None:
    if sample.high is None:
        _whole_range(t, generator, sample.low)
        return
    low, span = integers.bounds(t.dtype, sample.low, sample.high)
    if span >= 1 << 28:
        launch(t, generator, "pairs(engine)", 2, _as(t, "(long long)(r % (u64)p0) + p1"), "qq", (span, low))
    else:
        launch(t, generator, "words(engine)", 4, _as(t, "(long long)(r % (unsigned)p0) + p1"), "qq", (span, low))


def _count(d: dt.dtype) -> int:
    """Return how many consecutive integers from 0 on a dtype represents exactly."""
    if d.limits is not None:
        return 2**d.limits.precision + 1
    return 2 if d is dt.bool_ else 2 ** (8 * d.itemsize - d.is_signed)


def _whole_range(t: Tensor, generator: Generator, low: int) -> None:
    """Fill by random_(from, None): up to the largest number of the dtype."""
    if t.dtype in (dt.int64, dt.uint64) and low == -(2**63):
        launch(t, generator, "pairs(engine)", 2, _as(t, "(long long)r"))
        return
    _integers(t, generator, Integers(low, min(_count(t.dtype) - 1, 2**63 - 2) + 1))


def _full_integers(t: Tensor, generator: Generator, sample: FullIntegers) -> None:
    """Fill by random_(): any number that is not negative."""
    d = t.dtype
    if d is dt.float64 or d is dt.int64:
        launch(t, generator, "pairs(engine)", 2, _as(t, "(long long)(r % (u64)p0)"), "q", (_count(d),))
        return
    launch(t, generator, "words(engine)", 4, _as(t, "(long long)(r % (u64)p0)"), "q", (_count(d),))


def _permutation(t: Tensor, generator: Generator, sample: Permutation) -> None:
    """Draw a permutation: positions sorted by random keys, with enough bits to make equal keys rare; those are shuffled after."""
    n = numel_of(t.shape)
    integers.check_permutation(n, t.dtype)
    bits = min(64, math.ceil(math.log2(n - (6.0 * n * n + 1) / (12 * math.log(0.9)))))
    kind, low, high = (dt.int32, -(2**31), 2**31 - 1) if bits <= 32 else (dt.int64, -(2**63), 2**63 - 1)
    keys = empty(make_size((n,)), kind, t.device)
    body = f"out[i] = ({element_type(kind)})((long long)(r % (u64)p0) + p1);"
    launch(keys, generator, "pairs(engine)", 2, body, "qq", (high - low, low))
    wide = keys.to(dt.int64)
    ordered, positions = (wide & ((1 << bits) - 1) if bits < 64 else wide).sort(stable=True)
    source = source_of(generator, t.device)
    seed, offset, held = source.take(n)
    run = nvidia.load_source(ENGINE + _ISLANDS, t.device).function("islands", ("q",) * 6)
    run(-(-n // 512), 512, _address(ordered), _address(positions), n, seed, offset, held)
    raw_copy(t, positions)


_SAMPLERS: dict[type, Any] = {
    Uniform: _uniform, Normal: _normal, LogNormal: _log_normal, Exponential: _exponential, Cauchy: _cauchy,
    Geometric: _geometric, Bernoulli: _bernoulli, Integers: _integers, FullIntegers: _full_integers, Permutation: _permutation,
}  # fmt: skip


@_bernoulli_fill.on("cuda")
def _(t: Tensor, p: Tensor, generator: Generator) -> None:
    dense = is_non_overlapping_and_dense(t.shape, t._strides)
    out = t if dense and t._contig else empty(t.shape, t.dtype, t.device)
    chances = p.contiguous()
    body = _as(out, f"r <= (float)Read<{element_type(chances.dtype)}>::of(in0[i])")
    n = numel_of(out.shape)  # four neighbours to a thread, and ten numbers set aside, whatever the size
    launch(
        out, generator, "uniform(engine, 0.0f)", 4, body, inputs=(chances,), vector=4, shape=(-(-n // (4 * _BLOCK)), 12)
    )
    if out is not t:
        raw_copy(t, out)


@alpha_dropout_noise.on("cuda")
def _(out: list[Tensor], input: Tensor, p: float, features: bool, generator: Generator) -> None:
    scale, shift = out
    kept = 1.0 - p
    alpha = 1.7580993408473766
    a = 1.0 / math.sqrt((alpha * alpha * p + 1) * kept)
    _sample(scale, generator, Bernoulli(kept))
    raw_copy(shift, scale.sub(1).mul_(alpha * a).add_(alpha * a * p))
    scale.mul_(a)
