"""CUDA text of convolutions of float32 with 3 x 3 taps and stride 1, and of their gradients.

Pixels come in tiles of 64, 8 x 8 of one picture or 4 x 4 of four. Patches of the source come into shared memory as they are; a thread
reads rows of six neighbours, from which it has the windows of four pixels.

A block of `convolve_patches` has 64 channels of the result and one tile, and two groups of 64 threads that share the channels of the
source: each takes four at a time. A block of `weigh_patches` has 16 channels of the source and 64 of the result, all taps, and takes one
tile after the other."""

from __future__ import annotations

from ...kernels.cuda_copies import COPIES

_HEAD = (
    COPIES
    + r"""
struct shape { int channels, results, high, wide, source_high, source_wide, down, right; };
// TILE is 8 or 4.
#define EDGE (TILE + 2)
#define PICTURES (64 / (TILE * TILE))
"""
)

CONVOLVE = (
    _HEAD
    + r"""
// Rows of a patch are STEP floats apart, so that eight threads with neighbouring quads meet different banks.
#define STEP (TILE == 8 ? 24 : 8)
#define PICTURE (TILE == 8 ? 240 : 52)
#define PATCH (PICTURES * PICTURE)
#define WEIGHTS 2304  // of 64 x 4 channels
#define STAGE (WEIGHTS + 4 * PATCH)
#define ELEMENTS (4 * PICTURES * EDGE * EDGE)
#define MINE ((ELEMENTS + 63) / 64)

extern "C" __global__ void __launch_bounds__(128, EACH) convolve_patches(float* out, const float* x, const float* w, shape s, int batch,
    int splits) {
  extern __shared__ quad space[];
  const int t = threadIdx.x & 63, group = threadIdx.x >> 6, tx = t & 7, ty = t >> 3;
  const int tiles_wide = (s.wide + TILE - 1) / TILE, tiles = (s.high + TILE - 1) / TILE * tiles_wide, rows = s.results / 64;
  int which = blockIdx.x;
  const int first_row = which % rows * 64;
  which /= rows;
  const int row0 = which % tiles / tiles_wide * TILE, column0 = which % tiles % tiles_wide * TILE;
  which /= tiles;
  const int together = (batch + PICTURES - 1) / PICTURES, picture0 = which % together * PICTURES, split = which / together;
  const int plane = s.source_high * s.source_wide, all = s.channels / 8, per = (all + splits - 1) / splits;
  const int begin = split * per, end = begin + per < all ? begin + per : all;
  float* mine = space[0].v + group * (2 * STAGE);
  const place start = place_of(mine);
  // What this thread brings of patches: where from, where to, and whether it is inside.
  int from[MINE], to[MINE];
  unsigned inside = 0;
  _Pragma("unroll") for (int i = 0; i < MINE; ++i) {
    const int e = t + 64 * i, c = e % EDGE, r = e / EDGE % EDGE, n = e / (EDGE * EDGE) % PICTURES, m = e / (EDGE * EDGE * PICTURES);
    const int row = row0 + s.down + r, column = column0 + s.right + c;
    const bool there = row >= 0 && row < s.source_high && column >= 0 && column < s.source_wide && picture0 + n < batch && e < ELEMENTS;
    from[i] = there ? (n * s.channels + m) * plane + row * s.source_wide + column : 0;
    to[i] = WEIGHTS + m * PATCH + n * PICTURE + r * STEP + c;
    inside |= (there ? 1u : 0u) << i;
  }
  int weights_from[BACK ? 1 : 9];
  if (!BACK) _Pragma("unroll") for (int j = 0; j < 9; ++j)
    weights_from[BACK ? 0 : j] = (first_row + (t + 64 * j) / 9) * (s.channels * 9) + (t + 64 * j) % 9 * 4;
  const float* source = x + ((i64)picture0 * s.channels + 8 * begin + 4 * group) * plane;
  const float* weights = w + (BACK ? (i64)(8 * begin + 4 * group) * s.results * 9 + first_row * 9 : (i64)(8 * begin + 4 * group) * 9);
  auto fetch = [&](int stage) {
    const place here = ahead(start, stage * STAGE);
    _Pragma("unroll") for (int j = 0; j < 9; ++j) {
      const int e = t + 64 * j;
      if (BACK) bring<16>(ahead(here, 4 * e), weights + (e / 144 * (s.results * 9) + e % 144 * 4), true);
      else bring<16>(ahead(here, 4 * e), weights + weights_from[BACK ? 0 : j], true);
    }
    _Pragma("unroll") for (int i = 0; i < MINE; ++i)
      if (ELEMENTS % 64 == 0 || i < MINE - 1 || t + 64 * i < ELEMENTS) bring<4>(ahead(here, to[i]), source + from[i], inside >> i & 1);
    source += (i64)8 * plane;
    weights += BACK ? (i64)8 * s.results * 9 : 72;
  };
  float sums[8][8];
  _Pragma("unroll") for (int i = 0; i < 8; ++i) _Pragma("unroll") for (int j = 0; j < 8; ++j) sums[i][j] = 0.f;
  const int quad0 = TILE == 8 ? (tx >> 1) * STEP + (tx & 1) * 4 : (tx >> 2) * PICTURE + (tx & 3) * STEP;
  const int quad1 = TILE == 8 ? quad0 + 4 * STEP : quad0 + 2 * PICTURE;
  if (begin < end) fetch(0);
  brought();
  _Pragma("unroll 1") for (int step = begin; step < end; ++step) {
    const int stage = step - begin & 1;
    wait_for_all_but<0>();
    __syncthreads();
    if (step + 1 < end) fetch(stage ^ 1);
    brought();
    const float* here = mine + stage * STAGE;
#if QUADS
    // Four taps of a weight at once: 36 of a row are those of four channels.
    float window[2][6];
    _Pragma("unroll") for (int g = 0; g < 9; ++g) {
      quad a[8];
      _Pragma("unroll") for (int i = 0; i < 8; ++i) a[i] = *(const quad*)(here + (ty + 8 * i) * 36 + 4 * g);
      _Pragma("unroll") for (int k = 4 * g; k < 4 * g + 4; ++k) {
        const int m = k / 9, tap = k % 9;
        if (tap % 3 == 0)
          _Pragma("unroll") for (int q = 0; q < 2; ++q) {
            const float* at = here + WEIGHTS + m * PATCH + (q ? quad1 : quad0) + tap / 3 * STEP;
            const quad head = *(const quad*)at;
            const two tail = *(const two*)(at + 4);
            _Pragma("unroll") for (int c = 0; c < 4; ++c) window[q][c] = head.v[c];
            window[q][4] = tail.v[0];
            window[q][5] = tail.v[1];
          }
        _Pragma("unroll") for (int i = 0; i < 8; ++i)
          _Pragma("unroll") for (int j = 0; j < 8; ++j) sums[i][j] += a[i].v[k % 4] * window[j / 4][j % 4 + tap % 3];
      }
    }
#else
    _Pragma("unroll 1") for (int m = 0; m < 4; ++m) {
      const float *patch = here + WEIGHTS + m * PATCH, *taps = here + ty * (BACK ? 9 : 36) + m * (BACK ? 576 : 9);
      _Pragma("unroll") for (int kh = 0; kh < 3; ++kh) {
        float window[2][6];
        _Pragma("unroll") for (int q = 0; q < 2; ++q) {
          const float* at = patch + (q ? quad1 : quad0) + kh * STEP;
          const quad head = *(const quad*)at;
          const two tail = *(const two*)(at + 4);
          _Pragma("unroll") for (int c = 0; c < 4; ++c) window[q][c] = head.v[c];
          window[q][4] = tail.v[0];
          window[q][5] = tail.v[1];
        }
        _Pragma("unroll") for (int kw = 0; kw < 3; ++kw) {
          const int tap = BACK ? 8 - 3 * kh - kw : 3 * kh + kw;
          float a[8];
          _Pragma("unroll") for (int i = 0; i < 8; ++i) a[i] = taps[i * 8 * (BACK ? 9 : 36) + tap];
          _Pragma("unroll") for (int i = 0; i < 8; ++i)
            _Pragma("unroll") for (int j = 0; j < 8; ++j) sums[i][j] += a[i] * window[j / 4][j % 4 + kw];
        }
      }
    }
#endif
  }
  // The second group hands its sums to the first.
  wait_for_all_but<0>();
  float* exchange = space[0].v;
  __syncthreads();
  if (group == 1)
    _Pragma("unroll") for (int i = 0; i < 8; ++i) _Pragma("unroll") for (int j = 0; j < 8; ++j) exchange[(i * 8 + j) * 64 + t] = sums[i][j];
  __syncthreads();
  if (group == 1) return;
  out += (i64)split * batch * s.results * s.high * s.wide;
  _Pragma("unroll") for (int q = 0; q < 2; ++q) {
    const int n = picture0 + (TILE == 8 ? 0 : (tx >> 2) + 2 * q), row = row0 + (TILE == 8 ? (tx >> 1) + 4 * q : tx & 3);
    const int column = column0 + (TILE == 8 ? (tx & 1) * 4 : 0);
    if (n >= batch || row >= s.high) continue;
    _Pragma("unroll") for (int i = 0; i < 8; ++i) {
      quad r;
      _Pragma("unroll") for (int j = 0; j < 4; ++j) r.v[j] = sums[i][4 * q + j] + exchange[(i * 8 + 4 * q + j) * 64 + t];
      float* to_row = out + (((i64)n * s.results + first_row + ty + 8 * i) * s.high + row) * s.wide + column;
      if (s.wide % 4 == 0) {
        if (column < s.wide) *(quad*)to_row = r;
      } else {
        _Pragma("unroll") for (int j = 0; j < 4; ++j)
          if (column + j < s.wide) to_row[j] = r.v[j];
      }
    }
  }
}
"""
)

WEIGH = (
    _HEAD
    + r"""
#define STEP (TILE == 8 ? 12 : 8)  // from one row of a patch to the next
#define PICTURE (EDGE * STEP)
#define PATCH (TILE == 8 ? 132 : 196)  // of one channel: eight of them begin at different banks
#define GRADS (16 * PATCH)
#define STAGE (GRADS + 64 * 68)
#define ELEMENTS (16 * PICTURES * EDGE * EDGE)
#define MINE ((ELEMENTS + 127) / 128)

extern "C" __global__ void __launch_bounds__(128, 3) weigh_patches(float* out, const float* x, const float* g, shape s, int batch, int splits) {
  extern __shared__ quad space[];
  const int t = threadIdx.x, tx = t & 15, ty = t >> 4;
  const int plane = s.source_high * s.source_wide, result_plane = s.high * s.wide;
  const int tiles_wide = (s.wide + TILE - 1) / TILE, tiles = (s.high + TILE - 1) / TILE * tiles_wide;
  const int together = (batch + PICTURES - 1) / PICTURES, all = tiles * together, per = (all + splits - 1) / splits;
  int which = blockIdx.x;
  const int first_in = which % (s.channels / 16) * 16;
  which /= s.channels / 16;
  const int first_out = which % (s.results / 64) * 64, split = which / (s.results / 64);
  const int begin = split * per, end = begin + per < all ? begin + per : all;
  const place start = place_of(space[0].v);
  // The quad of pixels whose gradients this thread brings, of every eighth channel.
  const int quad_n = TILE == 8 ? 0 : tx >> 2, quad_row = TILE == 8 ? tx >> 1 : tx & 3, quad_column = TILE == 8 ? (tx & 1) * 4 : 0;
  int known = -1, row0 = 0, column0 = 0;
  unsigned inside = 0;
  bool there = false;
  auto fetch = [&](int step, int stage) {
    const int tile = step / together, picture0 = (step - tile * together) * PICTURES;
    if (tile != known) {
      known = tile;
      row0 = tile / tiles_wide * TILE;
      column0 = tile % tiles_wide * TILE;
      inside = 0;
      _Pragma("unroll") for (int i = 0; i < MINE; ++i) {
        const int e = t + 128 * i, row = row0 + s.down + e / EDGE % EDGE, column = column0 + s.right + e % EDGE;
        inside |= (row >= 0 && row < s.source_high && column >= 0 && column < s.source_wide ? 1u : 0u) << i;
      }
      there = row0 + quad_row < s.high && column0 + quad_column < s.wide;
    }
    const place here = ahead(start, stage * STAGE);
    const float* from = x + ((i64)picture0 * s.channels + first_in) * plane + (row0 + s.down) * s.source_wide + column0 + s.right;
    _Pragma("unroll") for (int i = 0; i < MINE; ++i) {
      const int e = t + 128 * i, c = e % EDGE, r = e / EDGE % EDGE, n = e / (EDGE * EDGE) % PICTURES, m = e / (EDGE * EDGE * PICTURES);
      if (ELEMENTS % 128 == 0 || i < MINE - 1 || e < ELEMENTS)
        bring<4>(ahead(here, m * PATCH + n * PICTURE + r * STEP + c), from + ((n * s.channels + m) * plane + r * s.source_wide + c),
            (inside >> i & 1) && (PICTURES == 1 || picture0 + n < batch));
    }
    const float* grads = g + ((i64)(picture0 + quad_n) * s.results + first_out + ty) * result_plane + (row0 + quad_row) * s.wide + column0 + quad_column;
    const bool live = there && picture0 + quad_n < batch;
    _Pragma("unroll") for (int j = 0; j < 8; ++j)
      bring<16>(ahead(here, GRADS + (ty + 8 * j) * 68 + 4 * tx), grads + j * 8 * result_plane, live);
  };
  float sums[8][9];
  _Pragma("unroll") for (int i = 0; i < 8; ++i) _Pragma("unroll") for (int k = 0; k < 9; ++k) sums[i][k] = 0.f;
  if (begin < end) fetch(begin, 0);
  brought();
  _Pragma("unroll 1") for (int step = begin; step < end; ++step) {
    const int stage = step - begin & 1;
    wait_for_all_but<0>();
    __syncthreads();
    if (step + 1 < end) fetch(step + 1, stage ^ 1);
    brought();
    const float *xs = space[0].v + stage * STAGE + tx * PATCH, *gs = space[0].v + stage * STAGE + GRADS + ty * 68;
    _Pragma("unroll 1") for (int q = 0; q < 16; ++q) {
      const float* at = xs + (TILE == 8 ? (q >> 1) * STEP + (q & 1) * 4 : (q >> 2) * PICTURE + (q & 3) * STEP);
      float window[3][6];
      _Pragma("unroll") for (int r = 0; r < 3; ++r) {
        const quad head = *(const quad*)(at + r * STEP);
        const two tail = *(const two*)(at + r * STEP + 4);
        _Pragma("unroll") for (int c = 0; c < 4; ++c) window[r][c] = head.v[c];
        window[r][4] = tail.v[0];
        window[r][5] = tail.v[1];
      }
      _Pragma("unroll") for (int i = 0; i < 8; ++i) {
        const quad d = *(const quad*)(gs + i * (8 * 68) + 4 * q);
        _Pragma("unroll") for (int p = 0; p < 4; ++p)
          _Pragma("unroll") for (int k = 0; k < 9; ++k) sums[i][k] += d.v[p] * window[k / 3][p + k % 3];
      }
    }
  }
  out += ((i64)split * s.results * s.channels + (i64)(first_out + ty) * s.channels + first_in + tx) * 9;
  _Pragma("unroll") for (int i = 0; i < 8; ++i)
    _Pragma("unroll") for (int k = 0; k < 9; ++k) out[(i64)i * 8 * s.channels * 9 + k] = sums[i][k];
}
"""
)


def shared_bytes(tile: int, weights: bool) -> int:
    """How much dynamic shared memory a block needs: two stages (of each of two groups)."""
    if weights:
        return 4 * 2 * (16 * (132 if tile == 8 else 196) + 64 * 68)
    return 4 * 4 * (2304 + 4 * (240 if tile == 8 else 208))


__all__ = ["CONVOLVE", "WEIGH", "shared_bytes"]
