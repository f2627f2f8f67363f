"""Scalar arithmetic in CUDA C++: types, literals, conversions, and one line of text per operator.

No header is needed: half-width floats are converted by one PTX instruction or by bit operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..core import dtype as dt
from ..core.dtype import dtype, opmath
from ..expr.functions import ELEMENTARY
from ..expr.node import COMPARISONS

_SIZES = {1: "char", 2: "short", 4: "int", 8: "long long"}
_UNSIGNED = {size: f"unsigned {name}" for size, name in _SIZES.items()}


def _c_name(d: dtype) -> str | None:
    """Return the C type of real numbers of a dtype that CUDA kernels compute in, or None."""
    if d.kind in "ui":
        return (
            _UNSIGNED[d.itemsize] if d.kind == "u" else f"signed {_SIZES[1]}" if d.itemsize == 1 else _SIZES[d.itemsize]
        )
    return d.cpp if d is opmath(d) and d.kind in "bf" else None


# Everything generated code may call. Integer arithmetic wraps and never divides by zero, as on the CPU.
PRELUDE = r"""
typedef long long i64;
__device__ __forceinline__ float fb_half(unsigned short h) {
  float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f;
}
__device__ __forceinline__ unsigned short fb_to_half(float f) {
  unsigned short h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h;
}
__device__ __forceinline__ float fb_bfloat(unsigned short h) { return __uint_as_float((unsigned)h << 16); }
__device__ __forceinline__ unsigned short fb_to_bfloat(float f) {
  unsigned short h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h;
}
// Floats of 8 bits: MAN bits of mantissa, exponents from BIAS below zero on; what is too large becomes OVER.
template <int MAN, int BIAS> __device__ __forceinline__ float fb_from_byte(unsigned char b) {
  const unsigned exponent = b >> MAN & ((1u << (7 - MAN)) - 1u), mantissa = b & ((1u << MAN) - 1u);
  float f;
  if (MAN == 3 ? (b & 0x7f) == 0x7f : (b & 0x7f) > 0x7c) f = __int_as_float(0x7fc00000);
  else if (MAN == 2 && (b & 0x7f) == 0x7c) f = __int_as_float(0x7f800000);
  else if (exponent == 0) f = (float)mantissa * __int_as_float((127 - BIAS + 1 - MAN) << 23);
  else f = __int_as_float((int)((exponent + 127 - BIAS) << 23 | mantissa << (23 - MAN)));
  return b & 0x80 ? -f : f;
}
template <int MAN, int BIAS, unsigned LIMIT, unsigned OVER> __device__ __forceinline__ unsigned char fb_to_byte(float f) {
  const unsigned sign = __float_as_uint(f) >> 24 & 0x80u;
  unsigned u = __float_as_uint(f) & 0x7fffffffu, r;
  if (u > 0x7f800000u) r = 0x7f;
  else if (u >= LIMIT) r = OVER;
  else if (u < (unsigned)(128 - BIAS) << 23) {  // below the normal numbers: let an addition round
    const unsigned shift = (unsigned)(127 - BIAS + 23 - MAN + 1) << 23;
    r = __float_as_uint(__uint_as_float(u) + __uint_as_float(shift)) - shift;
  } else {
    u += ((unsigned)(BIAS - 127) << 23) + ((1u << (22 - MAN)) - 1u) + (u >> (23 - MAN) & 1u);
    r = u >> (23 - MAN);
  }
  return (unsigned char)(r | sign);
}
#define fb_e4m3(b) fb_from_byte<3, 7>(b)
#define fb_e5m2(b) fb_from_byte<2, 15>(b)
#define fb_to_e4m3(f) fb_to_byte<3, 7, 0x43e00000u, 0x7eu>(f)
#define fb_to_e5m2(f) fb_to_byte<2, 15, 143u << 23, 0x7cu>(f)
template <class To, class From> __device__ __forceinline__ To fb_bitcast(From from) {
  static_assert(sizeof(To) == sizeof(From), "bitcast keeps the size");
  union { From a; To b; } both; both.a = from; return both.b;
}
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) fb_vec { T at[N]; };
template <class T, int N> __device__ __forceinline__ void fb_load(fb_vec<T, N>& to, const T* from) {
  if (N > 1 && ((unsigned long long)from & (alignof(fb_vec<T, N>) - 1)) == 0) { to = *(const fb_vec<T, N>*)from; return; }
  _Pragma("unroll") for (int v = 0; v < N; ++v) to.at[v] = from[v];
}
template <class T, int N> __device__ __forceinline__ void fb_store(T* to, const fb_vec<T, N>& from) {
  if (N > 1 && ((unsigned long long)to & (alignof(fb_vec<T, N>) - 1)) == 0) { *(fb_vec<T, N>*)to = from; return; }
  _Pragma("unroll") for (int v = 0; v < N; ++v) to[v] = from.at[v];
}
template <class T> struct alignas(2 * sizeof(T)) fb_cx {
  T re, im;
  fb_cx() = default;
  __device__ __forceinline__ fb_cx(double a, double b = 0) : re((T)a), im((T)b) {}
};
template <class T> __device__ __forceinline__ fb_cx<T> operator+(fb_cx<T> a, fb_cx<T> b) {
  fb_cx<T> r; r.re = a.re + b.re; r.im = a.im + b.im; return r;
}
template <class T> __device__ __forceinline__ fb_cx<T> operator*(fb_cx<T> a, fb_cx<T> b) {
  fb_cx<T> r; r.re = a.re * b.re - a.im * b.im; r.im = a.re * b.im + a.im * b.re; return r;
}
template <class T> __device__ __forceinline__ T fb_from_lane(T mine, int lane, int width = 32) {
  constexpr int words = (sizeof(T) + 3) / 4;
  union both { unsigned word[words]; T value; __device__ both() {} } x;
  x.word[words - 1] = 0;
  x.value = mine;
  _Pragma("unroll") for (int w = 0; w < words; ++w) x.word[w] = __shfl_sync(0xffffffffu, x.word[w], lane, width);
  return x.value;
}
template <class T> __device__ __forceinline__ T fb_from_other(T mine, int distance, int width = 32) {
  constexpr int words = (sizeof(T) + 3) / 4;
  union both { unsigned word[words]; T value; __device__ both() {} } x;
  x.word[words - 1] = 0;
  x.value = mine;
  _Pragma("unroll") for (int w = 0; w < words; ++w) x.word[w] = __shfl_xor_sync(0xffffffffu, x.word[w], distance, width);
  return x.value;
}
template <class T> __device__ __forceinline__ T fb_rem(T a, T b) {
  if (b == 0) return 0;
  if (T(-1) < T(0) && b == T(-1)) return 0;
  return a % b;
}
template <class T> __device__ __forceinline__ T fb_mod(T a, T b) {
  T r = fb_rem(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? T(r + b) : r;
}
template <class T> __device__ __forceinline__ T fb_floordiv(T a, T b) {
  if (b == 0) return 0;
  if (T(-1) < T(0) && b == T(-1)) return T(0ull - (unsigned long long)a);
  T q = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? T(q - 1) : q;
}
template <class T> __device__ __forceinline__ T fb_float_mod(T a, T b) {
  T r = fmod(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}
template <class T> __device__ __forceinline__ T fb_float_floordiv(T a, T b) {
  if (b == 0) return a / b;
  T r = fmod(a, b);
  T q = (a - r) / b;
  if (r != 0 && ((r < 0) != (b < 0))) q -= 1;
  if (q == 0) return copysign(T(0), a / b);
  T whole = floor(q);
  return q - whole > T(0.5) ? whole + 1 : whole;
}
template <class T> __device__ __forceinline__ T fb_power(T a, T n) {
  if (n < 0) return a == T(1) ? T(1) : a == T(-1) ? (n & 1 ? T(-1) : T(1)) : T(0);
  unsigned long long result = 1, square = (unsigned long long)a;
  for (unsigned long long left = (unsigned long long)n; left; left >>= 1, square *= square)
    if (left & 1) result *= square;
  return T(result);
}
template <class T> __device__ __forceinline__ T fb_shl(T a, T n) {
  return n >= 0 && n < T(8 * sizeof(T)) ? T((unsigned long long)a << n) : T(0);
}
template <class T> __device__ __forceinline__ T fb_shr(T a, T n) {
  if (n >= 0 && n < T(8 * sizeof(T))) return T(a >> n);
  return a < 0 ? T(-1) : T(0);
}
template <class T> __device__ __forceinline__ T fb_max(T a, T b) { return a != a || a > b ? a : b; }
template <class T> __device__ __forceinline__ T fb_min(T a, T b) { return a != a || a < b ? a : b; }
template <class T> __device__ __forceinline__ T fb_sign(T a) { return T(a > 0) - T(a < 0); }
template <class T> __device__ T fb_digamma(T given) {
  double x = given, reflected = 0;
  if (x == 0) return T(copysign(1.0 / 0.0, -x));
  if (x < 0) {
    if (x == floor(x)) return T(0.0 / 0.0);
    reflected = -3.14159265358979323846 / tan(3.14159265358979323846 * (x - floor(x)));
    x = 1 - x;
  }
  double result = reflected;
  while (x < 10) { result -= 1 / x; x += 1; }
  double z = 1 / (x * x);
  double tail = z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760)));
  double series = z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - tail)));
  return T(result + log(x) - 0.5 / x - series);
}
"""


def value_type(d: dtype) -> str:
    """Return the C type of a dtype inside expressions."""
    name = _c_name(d.to_real() if d.is_complex else opmath(d))
    if name is not None and d.is_complex:
        return f"fb_cx<{name}>"
    if name is None:
        raise NotImplementedError(f"CUDA kernels do not compute in {d}")
    return name


def element_type(d: dtype) -> str:
    """Return the C++ type of elements in sources that declare `struct f16` and `struct bf16` for narrow floats."""
    return d.short if d is not opmath(d) else value_type(d)


_BYTES = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}


def memory_type(d: dtype) -> str:
    if d in dt.FLOAT8:
        if d.name not in _BYTES:
            raise NotImplementedError(f"CUDA kernels do not compute with {d}")
        return "unsigned char"
    return "unsigned short" if opmath(d) is not d and not d.is_complex else value_type(d)


def loaded(text: str, d: dtype) -> str:
    if d.name in _BYTES:
        return f"fb_{_BYTES[d.name]}({text})"
    if d is dt.float16:
        return f"fb_half({text})"
    return f"fb_bfloat({text})" if d is dt.bfloat16 else text


def stored(text: str, d: dtype) -> str:
    if d.name in _BYTES:
        return f"fb_to_{_BYTES[d.name]}({text})"
    if d is dt.float16:
        return f"fb_to_half({text})"
    return f"fb_to_bfloat({text})" if d is dt.bfloat16 else text


def constant(value: bool | int | float, d: dtype) -> str:
    """Return a Python number as a literal of dtype `d`."""
    d = opmath(d)
    if d is dt.bool_:
        return "true" if value else "false"
    if d.is_floating_point:
        return _float_literal(float(value), d)
    if isinstance(value, float):
        value = int(value) if math.isfinite(value) else -(1 << 63)
    bits = 8 * d.itemsize
    wrapped = int(value) & ((1 << bits) - 1)
    if d.is_signed and wrapped >> (bits - 1):
        wrapped -= 1 << bits
    if wrapped == -(1 << 63):
        return "(-9223372036854775807LL - 1)"
    suffix = {dt.int64: "LL", dt.uint64: "ULL", dt.uint32: "U"}.get(d, "")
    text = f"{wrapped}{suffix}" if wrapped >= 0 else f"({wrapped}{suffix})"
    return text if d.itemsize >= 4 else f"({value_type(d)}){text}"


def _float_literal(value: float, d: dtype) -> str:
    narrow = d is dt.float32
    if narrow:
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    if math.isfinite(value):
        text = f"{value:.9e}f" if narrow else f"{value:.17e}"
        return f"({text})" if value < 0 or text.startswith("-") else text
    if math.isnan(value):
        return "__int_as_float(0x7fc00000)" if narrow else "__longlong_as_double(0x7ff8000000000000LL)"
    bits = (0x7F800000 if value > 0 else 0xFF800000) if narrow else (0x7FF << 52 if value > 0 else 0xFFF << 52)
    return f"__uint_as_float(0x{bits:x}U)" if narrow else f"__longlong_as_double(0x{bits:x}LL)"


def convert(text: str, source: dtype, target: dtype) -> str:
    """Return text that converts a value between dtypes. A half-width target rounds to its precision and stays in float32."""
    source = opmath(source)
    if opmath(target) is not target:
        return loaded(stored(convert(text, source, dt.float32), target), target)
    if source is target:
        return text
    if target is dt.bool_:
        return f"({text} != 0)"
    if source.is_floating_point and target is dt.uint8:  # negative numbers wrap, as on the CPU
        return f"(unsigned char)(long long)({text})"
    return f"({value_type(target)})({text})"


def bitcast(text: str, to: dtype) -> str:
    if opmath(to) is not to:
        return loaded(f"fb_bitcast<{memory_type(to)}>({text})", to)
    return f"fb_bitcast<{value_type(to)}>({text})"


_INFIX = {"add": "+", "sub": "-", "mul": "*", "mul_alone": "*"}
_BITS = {"and": "&", "or": "|", "xor": "^"}
_ON_BOOL = {
    "add": "|",
    "sub": "^",
    "mul": "&",
    "mul_alone": "&",
    "maximum": "|",
    "fmax": "|",
    "minimum": "&",
    "fmin": "&",
    **_BITS,
}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_INT_HELPERS = {"floordiv": "fb_floordiv", "mod": "fb_mod", "fmod": "fb_rem", "pow": "fb_power", "shl": "fb_shl",
                "shr": "fb_shr", "maximum": "fb_max", "fmax": "fb_max", "minimum": "fb_min", "fmin": "fb_min",
                "sign": "fb_sign"}  # fmt: skip
_FLOAT_HELPERS = {"maximum": "fb_max", "minimum": "fb_min", "mod": "fb_float_mod", "floordiv": "fb_float_floordiv",
                  "sign": "fb_sign", "digamma": "fb_digamma"}  # fmt: skip
# Functions CUDA has under the same name, with an f appended for float32.
_SAME_NAME = frozenset((
    *ELEMENTARY, "sqrt", "rsqrt", "atan2", "pow", "fmod", "fmax", "fmin", "fma", "copysign", "nextafter", "floor", "ceil", "trunc",
)) - {"digamma"}  # fmt: skip
_OTHER_NAME = {"abs": "fabs", "round": "rint"}
_UNCHANGED = ("real", "conj")


def apply(op: str, d: dtype, operands: list[str]) -> str:
    """Return the text of `op` on operands of dtype `d`."""
    if op in COMPARISONS:
        return f"({operands[0]} {_COMPARE[op]} {operands[1]})"
    if op == "logical_not":
        return f"({operands[0]} == 0)" if d is not dt.bool_ else f"(!{operands[0]})"
    if op in _UNCHANGED:
        return operands[0]
    if op == "imag":
        return constant(0, d)
    if d.is_floating_point:
        return _apply_float(op, d, operands)
    return _apply_bool(op, operands) if d is dt.bool_ else _apply_int(op, d, operands)


def _apply_bool(op: str, operands: list[str]) -> str:
    if op in _ON_BOOL:
        return f"(bool)({operands[0]} {_ON_BOOL[op]} {operands[1]})"
    if op == "not":
        return f"(!{operands[0]})"
    if op in ("isnan", "isinf", "signbit"):
        return "false"
    if op == "isfinite":
        return "true"
    if op in ("neg", "abs", "sign", "floor", "ceil", "trunc", "round"):
        return operands[0]
    raise NotImplementedError(f"'{op}' is not defined on bool in CUDA kernels")


def _apply_int(op: str, d: dtype, operands: list[str]) -> str:
    t, unsigned = value_type(d), _UNSIGNED[d.itemsize]
    wide = f"({unsigned})"
    if op in _INFIX:
        return f"({t})({wide}{operands[0]} {_INFIX[op]} {wide}{operands[1]})"
    if op in _BITS:
        return f"({t})({operands[0]} {_BITS[op]} {operands[1]})"
    if op == "not":
        return f"({t})(~{operands[0]})"
    if op == "neg":
        return f"({t})(0 - {wide}{operands[0]})"
    if op == "abs":
        return f"({operands[0]} < 0 ? ({t})(0 - {wide}{operands[0]}) : {operands[0]})"
    if op in _INT_HELPERS:
        return f"{_INT_HELPERS[op]}<{t}>({', '.join(operands)})"
    if op in ("floor", "ceil", "trunc", "round"):
        return operands[0]
    if op in ("isnan", "isinf", "isfinite"):
        return "true" if op == "isfinite" else "false"
    if op == "signbit":
        return f"({operands[0]} < 0)"
    raise NotImplementedError(f"'{op}' is not defined on {d.name} in CUDA kernels")


def _apply_float(op: str, d: dtype, operands: list[str]) -> str:
    t = value_type(d)
    suffix = "f" if d is dt.float32 else ""
    a = operands[0]
    if op == "mul_alone":  # never merged with an addition
        return f"__{'f' if suffix else 'd'}mul_rn({a}, {operands[1]})"
    if op in _INFIX or op == "div":
        return f"({a} {_INFIX.get(op, '/')} {operands[1]})"
    if op == "neg":
        return f"(-{a})"
    if op in _FLOAT_HELPERS:
        return f"{_FLOAT_HELPERS[op]}<{t}>({', '.join(operands)})"
    if op in _SAME_NAME or op in _OTHER_NAME:
        return f"{_OTHER_NAME.get(op, op)}{suffix}({', '.join(operands)})"
    tests: dict[str, Callable[[], str]] = {
        "isnan": lambda: f"({a} != {a})",
        "isinf": lambda: f"(fabs{suffix}({a}) == {constant(math.inf, d)})",
        "isfinite": lambda: f"(fabs{suffix}({a}) < {constant(math.inf, d)})",
        "signbit": lambda: f"(fb_bitcast<{'int' if suffix else 'long long'}>({a}) < 0)",
        "angle": lambda: f"({a} != {a} ? {a} : {a} < 0 ? {constant(math.pi, d)} : {constant(0, d)})",
    }
    if op in tests:
        return tests[op]()
    raise NotImplementedError(f"'{op}' has no CUDA text")
