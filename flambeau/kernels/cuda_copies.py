"""CUDA text of asynchronous copies from global to shared memory, waited for only when their results are needed."""

from __future__ import annotations

# `bring<4 or 16 bytes>(place, address, whether it is there)`: else there are zeros. What was brought up to `brought()` is a group;
# `wait_for_all_but<N>()` waits until only the last N groups are still under way.
COPIES = r"""
struct alignas(16) quad { float v[4]; };
struct alignas(8) two { float v[2]; };
#ifdef __CUDA_ARCH__
typedef unsigned place;  // in shared memory
__device__ __forceinline__ place place_of(float* p) {
  place r;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(r) : "l"(p));
  return r;
}
__device__ __forceinline__ place ahead(place p, int floats) { return p + 4 * floats; }
template <int BYTES> __device__ __forceinline__ void bring(place to, const float* from, bool there) {
  if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}
__device__ __forceinline__ void brought() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LATER> __device__ __forceinline__ void wait_for_all_but() { asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory"); }
#else
typedef float* place;
inline place place_of(float* p) { return p; }
inline place ahead(place p, int floats) { return p + floats; }
template <int BYTES> void bring(place to, const float* from, bool there) {
  for (int i = 0; i < BYTES / 4; ++i) to[i] = there ? from[i] : 0.f;
}
inline void brought() {}
template <int LATER> void wait_for_all_but() {}
#endif
"""
