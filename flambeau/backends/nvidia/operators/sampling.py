"""Distributions whose parameters are in tensors, on the GPU: multinomial, Poisson, binomial, gamma, Dirichlet; and rrelu's slopes.

Drawing indices gives PyTorch's numbers where it sorts random keys. The others follow the same distributions with the same engine, by
textbook algorithms of their own."""

from __future__ import annotations

from typing import Any

from ....core import dtype as dt
from ....core.generator import Generator
from ....core.tensor import Tensor, empty, numel_of
from ....kernels.cuda_values import element_type
from ....ops.index.unique import searchsorted
from ....ops.machinery.inplace import raw_copy
from ....ops.machinery.memory import dense
from ....ops.nn.random_activation import random_slopes
from ....ops.random.random_fill import fill
from ....ops.random.samplers import Exponential, Uniform
from ....ops.random.sampling import _binomial, _dirichlet, _drawn, _gamma, _poisson
from . import random


@_drawn.on("cuda")
def _(out: Tensor, input: Tensor, num_samples: int, replacement: bool, generator: Generator) -> None:
    weights = dense(input)
    if not replacement or num_samples == 1:  # the first to come in a race of exponential arrivals
        scores = weights / fill(empty(weights.shape, weights.dtype, weights.device), generator, Exponential(1.0))
        winners = scores.argmax(-1, keepdim=True) if num_samples == 1 else scores.topk(num_samples, -1)[1]
        raw_copy(out, winners)
        return
    steps = weights.float().cumsum(-1)
    chosen = fill(empty(out.shape, dt.float32, out.device), generator, Uniform())
    places: Any = searchsorted(steps, chosen * steps[..., -1:], right=True)
    raw_copy(out, places.clamp_(max=weights.shape[-1] - 1))


# A thread draws as many numbers as it needs: it has its own sequence, of which `Stream` hands out one number at a time.
_STREAM = r"""
struct Stream {
  Philox engine; unsigned held[4]; int left;
  __device__ Stream(u64 seed, u64 thread, u64 offset) : engine(seed, thread, offset), left(0) {}
  __device__ unsigned word() {
    if (!left) { Words w = words(engine); for (int j = 0; j < 4; ++j) held[j] = w.v[j]; left = 4; }
    return held[4 - left--];
  }
  __device__ double uniform() { return (word() + 0.5) * 2.3283064365386963e-10; }  // inside (0, 1)
  __device__ double normal() { return sqrt(-2.0 * log(uniform())) * cospi(2.0 * uniform()); }
};
static __device__ double poisson(Stream& s, double rate) {
  if (!(rate > 0)) return 0;
  if (rate < 10) {
    const double limit = exp(-rate); double product = 1; int k = 0;
    do { ++k; product *= s.uniform(); } while (product > limit);
    return k - 1;
  }
  // Hoermann's transformed rejection
  const double slam = sqrt(rate), log_rate = log(rate), b = 0.931 + 2.53 * slam, a = -0.059 + 0.02483 * b;
  const double inverse = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = s.uniform() - 0.5, v = s.uniform(), us = 0.5 - fabs(u), k = floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= v_r) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (log(v) + log(inverse) - log(a / (us * us) + b) <= -rate + k * log_rate - lgamma(k + 1)) return k;
  }
}
static __device__ double binomial(Stream& s, double count, double p) {
  if (count <= 0 || p <= 0) return 0;
  if (p >= 1) return count;
  if (p > 0.5) return count - binomial(s, count, 1 - p);
  if (count * p < 10) {  // the gaps between successes are geometric
    const double log_q = log1p(-p); double sum = 0; int k = 0;
    while (true) { sum += ceil(log(s.uniform()) / log_q); if (sum > count) return k; ++k; }
  }
  const double spread = sqrt(count * p * (1 - p)), b = 1.15 + 2.53 * spread, a = -0.0873 + 0.0248 * b + 0.01 * p, c = count * p + 0.5;
  const double v_r = 0.92 - 4.2 / b, alpha = (2.83 + 5.1 / b) * spread, r = p / (1 - p), m = floor((count + 1) * p);
  while (true) {
    const double u = s.uniform() - 0.5, us = 0.5 - fabs(u), k = floor((2 * a / us + b) * u + c); double v = s.uniform();
    if (us >= 0.07 && v <= v_r) return k;
    if (k < 0 || k > count) continue;
    v = log(v * alpha / (a / (us * us) + b));
    const double bound = lgamma(m + 1) + lgamma(count - m + 1) - lgamma(k + 1) - lgamma(count - k + 1) + (k - m) * log(r);
    if (v <= bound) return k;
  }
}
static __device__ double gamma_sample(Stream& s, double alpha) {  // Marsaglia and Tsang
  double scale = 1;
  if (alpha < 1) { scale = pow(s.uniform(), 1 / alpha); alpha += 1; }
  const double d = alpha - 1.0 / 3, c = 1 / sqrt(9 * d);
  while (true) {
    double x, v;
    do { x = s.normal(); v = 1 + c * x; } while (v <= 0);
    v = v * v * v;
    const double u = s.uniform();
    if (u < 1 - 0.0331 * x * x * x * x || log(u) < 0.5 * x * x + d * (1 - v + log(v))) return scale * d * v;
  }
}
"""
_KERNEL = r"""
extern "C" __global__ void sample({type}* out, {inputs}u64 seed, u64 offset, const u64* held, long long n) {{
  if (held) {{ seed = held[0]; offset += held[1]; }}
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Stream s(seed, i, offset);
  out[i] = As<{type}>::of({value});
}}
"""
_RESERVED = 1024  # numbers set aside for each thread: no sample needs nearly as many


def _sampled(out: Tensor, generator: Generator, function: str, *inputs: Tensor) -> None:
    """Set each element of `out` to function(stream, elements of the inputs)."""
    kind = element_type(out.dtype)
    names = [f"(double)Read<{element_type(x.dtype)}>::of(in{i}[i])" for i, x in enumerate(inputs)]
    value = f"{function}(s, {', '.join(names)})"
    parameters = "".join(f"const {element_type(x.dtype)}* in{i}, " for i, x in enumerate(inputs))
    source = random.ENGINE + _STREAM + _KERNEL.format(type=kind, inputs=parameters, value=value)
    run = random.nvidia.load_source(source, out.device).function("sample", ("q",) * (len(inputs) + 5))
    held = [dense(x) for x in inputs]
    n = numel_of(out.shape)
    taken = random.source_of(generator, out.device).take(_RESERVED)
    run(-(-n // 256), 256, random._address(out), *[random._address(x) for x in held], *taken, n)


@_poisson.on("cuda")
def _(out: Tensor, input: Tensor, generator: Generator) -> None:
    _sampled(out, generator, "poisson", input)


@_binomial.on("cuda")
def _(out: Tensor, count: Tensor, prob: Tensor, generator: Generator) -> None:
    spread: Any = [t.expand(out.shape) for t in (count, prob)]
    _sampled(out, generator, "binomial", *spread)


@_gamma.on("cuda")
def _(out: Tensor, input: Tensor, generator: Generator) -> None:
    _sampled(out, generator, "gamma_sample", input)


@_dirichlet.on("cuda")
def _(out: Tensor, input: Tensor, generator: Generator) -> None:
    drawn = empty(out.shape, out.dtype, out.device)
    _sampled(drawn, generator, "gamma_sample", input)
    raw_copy(out, drawn / drawn.sum(-1, keepdim=True))


@random_slopes.on("cuda")
def _(out: list[Tensor], input: Tensor, lower: float, upper: float, generator: Generator) -> None:
    result, noise = out
    slopes = fill(empty(input.shape, input.dtype, input.device), generator, Uniform(lower, upper))
    raw_copy(noise, slopes.where(input <= 0, slopes.new_ones(())))
    raw_copy(result, input * noise)
