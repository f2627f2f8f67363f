"""Max pooling of small windows on NVIDIA GPUs for channels-last activations: a thread has a few neighbouring channels of one place."""

from __future__ import annotations

from typing import Any

from ....core.layout import channels_last
from ....core.tensor import Tensor
from ....ops.machinery.memory import without_gaps
from ....ops.nn.max_pool import (
    Window,
    _channels_geometry,
    _is_small,
    is_last,
    max_pool2d_coded,
    max_pool2d_codes_backward,
    max_pooled,
)
from .launching import address, blocks_for, element_text, function

_THREADS = 256

# Both kernels: `count` groups of V channels. A window has the code of the first of its largest elements, or of its last nan.
_TEXT = """
typedef unsigned char C;
struct alignas(sizeof(T) * V) Group { T v[V]; };
struct alignas(V) Codes { C v[V]; };

extern "C" __global__ void __launch_bounds__(256) pool(Group* out, Codes* codes, const Group* x, unsigned count, int groups,
    int h, int w, int oh, int ow, int ph, int pw, int kh, int kw, int sh, int sw) {
  const unsigned i = blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  const unsigned place = i / groups, row = place / ow, image = row / oh;
  const int c = i - place * groups, top = (int)(row - image * oh) * sh - ph, left = (int)(place - row * ow) * sw - pw;
  const int y0 = top < 0 ? -top : 0, x0 = left < 0 ? -left : 0;
  const int y1 = kh < h - top ? kh : h - top, x1 = kw < w - left ? kw : w - left;
  const i64 corner = ((i64)image * h + top) * w + left;
  A best[V];
  int code[V];
  for (int k = 0; k < V; ++k) code[k] = -1;
  for (int ky = y0; ky < y1; ++ky)
    for (int kx = x0; kx < x1; ++kx) {
      const Group g = x[(corner + ky * w + kx) * groups + c];
      _Pragma("unroll") for (int k = 0; k < V; ++k) {
        const A v = get(g.v[k]);
        if (code[k] < 0 || v > best[k] || v != v) { best[k] = v; code[k] = ky * kw + kx; }
      }
    }
  Group r;
  Codes s;
  _Pragma("unroll") for (int k = 0; k < V; ++k) { r.v[k] = put(best[k]); s.v[k] = (C)code[k]; }
  out[i] = r;
  if (codes) codes[i] = s;
}

extern "C" __global__ void __launch_bounds__(256) spread(Group* out, const Group* grad, const Codes* codes, unsigned count, int groups,
    int h, int w, int oh, int ow, int ph, int pw, int kh, int kw, int sh, int sw) {
  const unsigned i = blockIdx.x * 256 + threadIdx.x;
  if (i >= count) return;
  const unsigned place = i / groups, row = place / w, image = row / h;
  const int c = i - place * groups, y = (int)(row - image * h) + ph, x = (int)(place - row * w) + pw;
  const int above = y < kh ? 0 : (y - kh) / sh + 1, left = x < kw ? 0 : (x - kw) / sw + 1;
  const int below = y / sh < oh - 1 ? y / sh : oh - 1, right = x / sw < ow - 1 ? x / sw : ow - 1;
  A total[V];
  for (int k = 0; k < V; ++k) total[k] = 0;
  for (int i0 = above; i0 <= below; ++i0)
    for (int j = left; j <= right; ++j) {
      const i64 at = (((i64)image * oh + i0) * ow + j) * groups + c;
      const int code = (y - i0 * sh) * kw + x - j * sw;
      const Codes s = codes[at];
      const Group g = grad[at];
      _Pragma("unroll") for (int k = 0; k < V; ++k) if (s.v[k] == code) total[k] += get(g.v[k]);
    }
  Group r;
  _Pragma("unroll") for (int k = 0; k < V; ++k) r.v[k] = put(total[k]);
  out[i] = r;
}
"""


def _launch(name: str, tensors: tuple[Tensor | None, ...], written: Tensor, geometry: tuple[int, ...]) -> bool:
    """Run one of the kernels over the elements of `written`; return False if it has too many."""
    _, h, w, channels, *rest = geometry
    first = written.dtype
    vector = 16 // first.itemsize
    places = [(address(t), t.dtype.itemsize) for t in tensors if t is not None]
    while vector > 1 and (channels % vector or any(at % (vector * size) for at, size in places)):
        vector //= 2
    count = written.numel() // vector
    if not 0 < count < 1 << 31:
        return count == 0
    text = element_text(first) + f"constexpr int V = {vector};\n" + _TEXT
    run = function(text, name, "qqq" + "i" * 12, written.device)
    given = (0 if t is None else address(t) for t in tensors)
    run(blocks_for(count, _THREADS), _THREADS, *given, count, channels // vector, h, w, *rest)
    return True


def _pooled(out: Tensor, codes: Tensor | None, input: Tensor, window: Window) -> bool:
    """Pool an input whose channels are adjacent in memory."""
    x = without_gaps(input)
    if len(x.shape) != 4 or not is_last(x) or not _is_small(x, window):
        return False
    return _launch("pool", (out, codes, x), out, _channels_geometry(x.shape, out.shape[-2:], window))


_pooled_anywhere, _coded_anywhere, _backward_anywhere = (
    operator.op.kernels["any"] for operator in (max_pooled, max_pool2d_coded, max_pool2d_codes_backward)
)


@max_pooled.on("cuda")
def _(out: Tensor, plan: Any, input: Tensor, window: Window, sizes: tuple[int, ...]) -> None:
    if plan is not None or not _pooled(out, None, input, window):
        _pooled_anywhere(out, plan, input, window, sizes)


@max_pool2d_coded.on("cuda")
def _(out: list[Tensor], input: Tensor, window: Window, sizes: tuple[int, ...]) -> None:
    if not _pooled(out[0], out[1], input, window):
        _coded_anywhere(out, input, window, sizes)


@max_pool2d_codes_backward.on("cuda")
def _(out: Tensor, g: Tensor, codes: Tensor, shape: tuple[int, ...], window: Window) -> None:
    if len(shape) == 4 and is_last(codes):
        grad = g._bare_alias().contiguous(memory_format=channels_last)
        if _launch("spread", (out, grad, codes), out, _channels_geometry(tuple(shape), codes.shape[-2:], window)):
            return
    _backward_anywhere(out, g, codes, shape, window)
