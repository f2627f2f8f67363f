"""CUDA text of float32 attention with 32 features: tiles of scores are products of operands in a thread's registers.

A block of 128 threads has OWN rows (queries, or keys for their gradients); 64 rows of the other side are read at a time. Matrices are stored
in shared memory by features, `[feature][row]`, so that four rows are read at once; which four is shifted from feature to feature, so that
threads that write or read different features use different banks. One launch does the whole backward pass: blocks for queries and blocks for
keys are independent."""

from __future__ import annotations

TEXT = r"""
#define D 32
#define PASS 64
#define A (OWN / 8)  // rows of a thread's scores; it has four columns
#define E (OWN / 16)  // rows of a thread's results; it has four features
#define MINUS (-__int_as_float(0x7f800000))
struct alignas(16) quad { float v[4]; };
struct view { const float* at; i64 batch, head, row; };
struct target { float* at; i64 batch, head, row; };
struct sizes { i64 heads, group, rows, source; float scale; int causal; };
__device__ __forceinline__ const float* rows_of(const view& t, i64 b, i64 h) { return t.at + b * t.batch + h * t.head; }

// A thread's quads of N rows from `first` on, of `rows`: all are asked for before one is waited for.
template <int N> __device__ __forceinline__ void look(quad* q, const float* from, i64 first, i64 step, i64 rows) {
  _Pragma("unroll") for (int i = 0; i < N / 16; ++i) {
    const i64 r = first + threadIdx.x / 8 + 16 * i;
    q[i] = quad{};
    if (r < rows) q[i] = *(const quad*)(from + r * step + 4 * (threadIdx.x % 8));
  }
}
// They go to [feature][row].
template <int N> __device__ __forceinline__ void put(float* to, const quad* q) {
  const int l = threadIdx.x % 8;
  _Pragma("unroll") for (int i = 0; i < N / 16; ++i) {
    const int r = threadIdx.x / 8 + 16 * i;
    _Pragma("unroll") for (int j = 0; j < 4; ++j) to[(4 * l + j) * N + (r ^ 4 * l)] = q[i].v[j];
  }
}
// In shares[row], the products of gradients and results, added up.
template <int N> __device__ __forceinline__ void share_out(float* shares, const quad* g, const quad* out) {
  _Pragma("unroll") for (int i = 0; i < N / 16; ++i) {
    float share = 0.f;
    _Pragma("unroll") for (int j = 0; j < 4; ++j) share += g[i].v[j] * out[i].v[j];
    _Pragma("unroll") for (int d = 1; d < 8; d *= 2) share += __shfl_xor_sync(0xffffffffu, share, d);
    if (threadIdx.x % 8 == 0) shares[threadIdx.x / 8 + 16 * i] = share;
  }
}
// sums[a][b] += products of own and passing rows over the features
__device__ __forceinline__ void scores(float (*sums)[4], const float* own, const float* passing) {
  const int ti = threadIdx.x / 16, tj = threadIdx.x % 16;
  _Pragma("unroll 8") for (int d = 0; d < D; ++d) {
    const int shift = d / 4 * 4;
    const quad p = *(const quad*)(passing + d * PASS + (4 * tj ^ shift));
    _Pragma("unroll") for (int half = 0; half < A / 4; ++half) {
      const quad o = *(const quad*)(own + d * OWN + 32 * half + (4 * ti ^ shift));
      _Pragma("unroll") for (int a = 0; a < 4; ++a)
        _Pragma("unroll") for (int b = 0; b < 4; ++b) sums[4 * half + a][b] += o.v[a] * p.v[b];
    }
  }
}
__device__ __forceinline__ int own_row(int a) { return a / 4 * 32 + 4 * ((int)threadIdx.x / 16) + a % 4; }
// A thread's scores into the tile [own row][passing row].
__device__ __forceinline__ void keep(float* tile, float (*values)[4]) {
  const int tj = threadIdx.x % 16;
  _Pragma("unroll") for (int a = 0; a < A; ++a) {
    const int r = own_row(a);
    quad q;
    _Pragma("unroll") for (int b = 0; b < 4; ++b) q.v[b] = values[a][b];
    *(quad*)(tile + r * PASS + 4 * (tj ^ (r >> 2 & 7))) = q;
  }
}
// sums[i][j] += the tile times passing rows: of own rows threadIdx.x / 8 + 16 i, features 4 (threadIdx.x % 8) + j
__device__ __forceinline__ void gather(float (*sums)[4], const float* tile, const float* passing) {
  const int tr = threadIdx.x / 8, td = threadIdx.x % 8;
  _Pragma("unroll 4") for (int k = 0; k < PASS / 4; ++k) {
    quad v[4];
    _Pragma("unroll") for (int j = 0; j < 4; ++j) v[j] = *(const quad*)(passing + (4 * td + j) * PASS + 4 * (k ^ td));
    _Pragma("unroll") for (int i = 0; i < E; ++i) {
      const int r = tr + 16 * i;
      const quad p = *(const quad*)(tile + r * PASS + 4 * (k ^ (r >> 2 & 7)));
      _Pragma("unroll") for (int j = 0; j < 4; ++j)
        _Pragma("unroll") for (int m = 0; m < 4; ++m) sums[i][j] += p.v[m] * v[j].v[m];
    }
  }
}
template <int N> __device__ __forceinline__ void clear(float (*sums)[4]) {
  _Pragma("unroll") for (int i = 0; i < N; ++i) _Pragma("unroll") for (int j = 0; j < 4; ++j) sums[i][j] = 0.f;
}
__device__ __forceinline__ void leave(const target& to, i64 b, i64 h, i64 start, i64 rows, float (*sums)[4]) {
  _Pragma("unroll") for (int i = 0; i < E; ++i) {
    const i64 row = start + threadIdx.x / 8 + 16 * i;
    if (row >= rows) continue;
    quad q;
    _Pragma("unroll") for (int j = 0; j < 4; ++j) q.v[j] = sums[i][j];
    *(quad*)(to.at + b * to.batch + h * to.head + row * to.row + 4 * (threadIdx.x % 8)) = q;
  }
}

extern "C" __global__ void __launch_bounds__(128) attend(target out, float* logs, view q, view k, view v, sizes s) {
  __shared__ quad space[(D * OWN + 2 * D * PASS + OWN * PASS + 2 * OWN) / 4];
  float *qs = space[0].v, *ks = qs + D * OWN, *vs = ks + D * PASS, *tile = vs + D * PASS, *fixes = tile + OWN * PASS, *totals = fixes + OWN;
  const i64 tiles = (s.rows + OWN - 1) / OWN, which = blockIdx.x % (gridDim.x / tiles), b = which / s.heads, h = which % s.heads;
  const i64 start = (tiles - 1 - blockIdx.x / (gridDim.x / tiles)) * OWN;  // the longest first, if causal
  const float *keys = rows_of(k, b, h / s.group), *values = rows_of(v, b, h / s.group);
  const int tj = threadIdx.x % 16;
  float sums[E][4], best[A], total[A];
  clear<E>(sums);
  _Pragma("unroll") for (int a = 0; a < A; ++a) best[a] = MINUS, total[a] = 0.f;
  const i64 end = s.causal && start + OWN < s.source ? start + OWN : s.source;
  for (i64 first = 0; first < end; first += PASS) {
    quad held[OWN / 16 + 2 * PASS / 16];
    if (first == 0) look<OWN>(held, rows_of(q, b, h), start, q.row, s.rows);
    look<PASS>(held + OWN / 16, keys, first, k.row, s.source);
    look<PASS>(held + OWN / 16 + PASS / 16, values, first, v.row, s.source);
    __syncthreads();
    if (first == 0) put<OWN>(qs, held);
    put<PASS>(ks, held + OWN / 16);
    put<PASS>(vs, held + OWN / 16 + PASS / 16);
    __syncthreads();
    float p[A][4];
    clear<A>(p);
    scores(p, qs, ks);
    _Pragma("unroll") for (int a = 0; a < A; ++a) {
      const i64 row = start + own_row(a);
      float top = best[a], sum = 0.f;
      _Pragma("unroll") for (int c = 0; c < 4; ++c) {
        const i64 at = first + 4 * tj + c;
        p[a][c] = at < s.source && (!s.causal || at <= row) ? p[a][c] * s.scale : MINUS;
        top = p[a][c] > top ? p[a][c] : top;
      }
      _Pragma("unroll") for (int d = 1; d < 16; d *= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, top, d);
        top = other > top ? other : top;
      }
      _Pragma("unroll") for (int c = 0; c < 4; ++c) {
        p[a][c] = expf(p[a][c] - top);
        sum += p[a][c];
      }
      _Pragma("unroll") for (int d = 1; d < 16; d *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
      const float fix = expf(best[a] - top);
      total[a] = total[a] * fix + sum;
      best[a] = top;
      if (tj == 0) fixes[own_row(a)] = fix;
    }
    keep(tile, p);
    __syncthreads();
    _Pragma("unroll") for (int i = 0; i < E; ++i)
      _Pragma("unroll") for (int j = 0; j < 4; ++j) sums[i][j] *= fixes[threadIdx.x / 8 + 16 * i];
    gather(sums, tile, vs);
  }
  _Pragma("unroll") for (int a = 0; a < A; ++a)
    if (tj == 0) {
      totals[own_row(a)] = total[a];
      if (start + own_row(a) < s.rows) logs[(b * s.heads + h) * s.rows + start + own_row(a)] = best[a] + logf(total[a]);
    }
  __syncthreads();
  _Pragma("unroll") for (int i = 0; i < E; ++i)
    _Pragma("unroll") for (int j = 0; j < 4; ++j) sums[i][j] /= totals[threadIdx.x / 8 + 16 * i];
  leave(out, b, h, start, s.rows, sums);
}

// The weights and the gradients of the scores of one tile. ACROSS: queries are the passing rows, not the own ones. `logs` are those of
// a thread's queries.
template <bool ACROSS> __device__ __forceinline__ void slopes(float (*p)[4], float (*d)[4], i64 start, i64 first, const float* logs,
    const float* shares, const sizes& s) {
  _Pragma("unroll") for (int a = 0; a < A; ++a) {
    _Pragma("unroll") for (int c = 0; c < 4; ++c) {
      const int own = own_row(a), passing = 4 * (threadIdx.x % 16) + c;
      const i64 query = ACROSS ? first + passing : start + own, key = ACROSS ? start + own : first + passing;
      const bool seen = query < s.rows && key < s.source && (!s.causal || key <= query);
      p[a][c] = seen ? expf(p[a][c] * s.scale - logs[ACROSS ? c : a]) : 0.f;
      d[a][c] = seen ? p[a][c] * (d[a][c] - shares[ACROSS ? passing : own]) * s.scale : 0.f;
    }
  }
}

extern "C" __global__ void __launch_bounds__(128) differentiate(target dq, target dk, target dv, const float* logs, view g, view out,
    view q, view k, view v, sizes s, i64 for_keys) {
  __shared__ quad space[(2 * D * OWN + 2 * D * PASS + OWN * PASS) / 4];
  float *mine = space[0].v, *mine2 = mine + D * OWN, *passing = mine2 + D * OWN, *passing2 = passing + D * PASS, *tile = passing2 + D * PASS;
  float* shares = tile;  // which is written later
  float p[A][4], d[A][4], sums[E][4], more[E][4];
  clear<E>(sums);
  clear<E>(more);
  const bool keys_here = blockIdx.x < for_keys;
  if (keys_here) {
    const i64 kept = s.heads / s.group, tiles = (s.source + OWN - 1) / OWN, which = blockIdx.x % (for_keys / tiles);
    const i64 b = which / kept, h = which % kept, start = blockIdx.x / (for_keys / tiles) * OWN;
    bool known = false;
    for (i64 head = h * s.group; head < (h + 1) * s.group; ++head) {
      for (i64 first = s.causal ? start / PASS * PASS : 0; first < s.rows; first += PASS) {
        quad own[OWN / 16], own2[OWN / 16], queries[PASS / 16], grads[PASS / 16], outs[PASS / 16];
        if (!known) look<OWN>(own, rows_of(k, b, h), start, k.row, s.source), look<OWN>(own2, rows_of(v, b, h), start, v.row, s.source);
        look<PASS>(queries, rows_of(q, b, head), first, q.row, s.rows);
        look<PASS>(grads, rows_of(g, b, head), first, g.row, s.rows);
        look<PASS>(outs, rows_of(out, b, head), first, out.row, s.rows);
        float their_logs[4];
        _Pragma("unroll") for (int c = 0; c < 4; ++c) {
          const i64 query = first + 4 * (threadIdx.x % 16) + c;
          their_logs[c] = query < s.rows ? logs[(b * s.heads + head) * s.rows + query] : 0.f;
        }
        __syncthreads();
        if (!known) put<OWN>(mine, own), put<OWN>(mine2, own2);
        known = true;
        put<PASS>(passing, queries);
        put<PASS>(passing2, grads);
        share_out<PASS>(shares, grads, outs);
        __syncthreads();
        clear<A>(p);
        clear<A>(d);
        scores(p, mine, passing);
        scores(d, mine2, passing2);
        slopes<true>(p, d, start, first, their_logs, shares, s);
        __syncthreads();
        keep(tile, p);
        __syncthreads();
        gather(more, tile, passing2);
        __syncthreads();
        keep(tile, d);
        __syncthreads();
        gather(sums, tile, passing);
      }
    }
    leave(dk, b, h, start, s.source, sums);
    leave(dv, b, h, start, s.source, more);
  } else {
    const i64 block = blockIdx.x - for_keys, tiles = (s.rows + OWN - 1) / OWN, many = (gridDim.x - for_keys) / tiles;
    const i64 which = block % many, b = which / s.heads, h = which % s.heads, start = (tiles - 1 - block / many) * OWN;
    const float *keys = rows_of(k, b, h / s.group), *values = rows_of(v, b, h / s.group);
    float own_shares[A], own_logs[A];
    _Pragma("unroll") for (int a = 0; a < A; ++a) {
      const i64 query = start + own_row(a);
      own_logs[a] = query < s.rows ? logs[(b * s.heads + h) * s.rows + query] : 0.f;
    }
    const i64 end = s.causal && start + OWN < s.source ? start + OWN : s.source;
    for (i64 first = 0; first < end; first += PASS) {
      quad own[OWN / 16], own2[OWN / 16], outs[OWN / 16], some[PASS / 16], others[PASS / 16];
      if (first == 0) {
        look<OWN>(own, rows_of(q, b, h), start, q.row, s.rows);
        look<OWN>(own2, rows_of(g, b, h), start, g.row, s.rows);
        look<OWN>(outs, rows_of(out, b, h), start, out.row, s.rows);
      }
      look<PASS>(some, keys, first, k.row, s.source);
      look<PASS>(others, values, first, v.row, s.source);
      __syncthreads();
      if (first == 0) {
        put<OWN>(mine, own);
        put<OWN>(mine2, own2);
        share_out<OWN>(shares, own2, outs);
      } else if (threadIdx.x % 16 == 0) {
        _Pragma("unroll") for (int a = 0; a < A; ++a) shares[own_row(a)] = own_shares[a];
      }
      put<PASS>(passing, some);
      put<PASS>(passing2, others);
      __syncthreads();
      if (first == 0) _Pragma("unroll") for (int a = 0; a < A; ++a) own_shares[a] = shares[own_row(a)];
      clear<A>(p);
      clear<A>(d);
      scores(p, mine, passing);
      scores(d, mine2, passing2);
      slopes<false>(p, d, start, first, own_logs, shares, s);
      __syncthreads();
      keep(tile, d);
      __syncthreads();
      gather(sums, tile, passing);
    }
    leave(dq, b, h, start, s.rows, sums);
  }
}
"""
