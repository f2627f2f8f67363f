"""Scalar arithmetic in LLVM IR: types, constants, conversions, loads and stores, and one emitter per operator.

Every function gets the `Function` that is being written and returns the name of the result.
Semantics are PyTorch's: nothing traps and nothing is undefined, whatever the operands are.
"""

from __future__ import annotations

import math
import struct

from ..core import dtype as dt
from ..core.dtype import dtype
from .llvm_text import Function


def value_type(d: dtype) -> str:
    """Return the LLVM type of a dtype inside expressions."""
    if d is dt.bool_:
        return "i1"
    if d is dt.float64:
        return "double"
    if d in dt.FLOAT8:
        raise NotImplementedError(f"native kernels do not know {d}; the NumPy emitter does")
    if d is dt.float4_e2m1fn_x2 or d.kind == "n":
        raise NotImplementedError(f"\"copy_kernel\" not implemented for '{d.scalar_type}'")
    if d.is_floating_point:
        return "float"
    if d.is_complex:
        raise NotImplementedError(f"native kernels compute on the parts of {d}: see complex_nests")
    return f"i{8 * d.itemsize}"


def memory_type(d: dtype) -> str:
    """Return the LLVM type of a dtype in memory."""
    if d is dt.bool_:
        return "i8"
    if d is dt.bfloat16:
        return "i16"
    return "half" if d is dt.float16 else value_type(d)


def bits(d: dtype) -> int:
    return 1 if d is dt.bool_ else d.itemsize * 8


def constant(value: float, d: dtype) -> str:
    """Return a Python number as a literal of dtype `d`, converted as PyTorch converts scalars."""
    if d is dt.bool_:
        return "true" if value else "false"
    if d.is_floating_point:
        return _float_literal(float(value), d)
    if isinstance(value, float):
        value = int(value) if math.isfinite(value) else -(1 << 63)
    wrapped = int(value) & ((1 << bits(d)) - 1)
    if d.is_signed and wrapped >> (bits(d) - 1):
        wrapped -= 1 << bits(d)
    return str(wrapped)


def _float_literal(value: float, d: dtype) -> str:
    if d is not dt.float64 and math.isfinite(value):
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = math.copysign(math.inf, value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


# ---------------------------------------------------------------------------------------------- memory


def load(w: Function, pointer: str, d: dtype, suffix: str = "") -> str:
    raw = w.new(f"load {memory_type(d)}, ptr {pointer}, align 1{suffix}")
    if d is dt.bool_:
        return w.new(f"icmp ne i8 {raw}, 0")
    if d is dt.bfloat16:
        return _widen_bfloat16(w, raw)
    return w.new(f"fpext half {raw} to float") if d is dt.float16 else raw


def store(w: Function, pointer: str, value: str, d: dtype, suffix: str = "") -> None:
    """Store a value whose expression dtype is opmath(d)."""
    if d is dt.bool_:
        value = w.new(f"zext i1 {value} to i8")
    elif d is dt.bfloat16:
        value = _round_bfloat16(w, value)
    elif d is dt.float16:
        value = w.new(f"fptrunc float {value} to half")
    w.do(f"store {memory_type(d)} {value}, ptr {pointer}, align 1{suffix}")


def _widen_bfloat16(w: Function, raw: str) -> str:
    wide = w.new(f"zext i16 {raw} to i32")
    return w.new(f"bitcast i32 {w.op('shl', 'i32', wide, '16')} to float")


def _round_bfloat16(w: Function, value: str) -> str:
    """Emit the upper 16 bits, rounded to nearest even; integer arithmetic vectorises on every CPU."""
    raw = w.new(f"bitcast float {value} to i32")
    odd = w.op("and", "i32", w.op("lshr", "i32", raw, "16"), "1")
    rounded = w.op("lshr", "i32", w.op("add", "i32", w.op("add", "i32", raw, "32767"), odd), "16")
    # Adding would carry a nan with a small payload over to infinity.
    kept = w.select(w.compare("uno", "float", value, value), "i32", "32704", rounded)
    return w.new(f"trunc i32 {kept} to i16")


# ---------------------------------------------------------------------------------------------- conversions


def convert(w: Function, value: str, source: dtype, target: dtype) -> str:
    """Convert between dtypes. A half-width target rounds to its precision and stays in float32."""
    if target is dt.bfloat16 or target is dt.float16:
        return _through_half(w, convert(w, value, source, dt.float32), target)
    source = dt.opmath(source)
    if source is target:
        return value
    s, t = value_type(source), value_type(target)
    if target is dt.bool_:
        return w.compare("une" if source.is_floating_point else "ne", s, value, constant(0, source))
    if target.is_floating_point:
        if source.is_floating_point:
            return w.new(f"{'fpext' if t == 'double' else 'fptrunc'} {s} {value} to {t}")
        return w.new(f"{'sitofp' if source.is_signed else 'uitofp'} {s} {value} to {t}")
    if source.is_floating_point:
        return _float_to_int(w, value, source, target)
    if s == t:
        return value
    if bits(source) > bits(target):
        return w.new(f"trunc {s} {value} to {t}")
    return w.new(f"{'sext' if source.is_signed else 'zext'} {s} {value} to {t}")


def _through_half(w: Function, value: str, d: dtype) -> str:
    if d is dt.float16:
        return w.new(f"fpext half {w.new(f'fptrunc float {value} to half')} to float")
    return _widen_bfloat16(w, _round_bfloat16(w, value))


def _truncate(w: Function, value: str, t: str, width: int) -> str:
    """Convert a float to an integer as x86's instruction does: out of range and nan give the most negative integer."""
    limit = _float_literal(2.0 ** (width - 1), dt.float64)
    fits = w.compare("olt", t, w.intrinsic("fabs", t, value), limit)
    return w.select(fits, f"i{width}", w.new(f"fptosi {t} {value} to i{width}"), str(-(1 << (width - 1))))


def _float_to_int(w: Function, value: str, source: dtype, target: dtype) -> str:
    t, width = value_type(source), bits(target)
    if target is dt.uint64:
        top = _float_literal(2.0**63, dt.float64)
        low = _truncate(w, value, t, 64)
        high = w.op("xor", "i64", _truncate(w, w.op("fsub", t, value, top), t, 64), str(-(1 << 63)))
        return w.select(w.compare("oge", t, value, top), "i64", high, low)
    if target is dt.uint32:
        return w.new(f"trunc i64 {_truncate(w, value, t, 64)} to i32")
    if width < 32:
        return w.new(f"trunc i32 {_truncate(w, value, t, 32)} to i{width}")
    return _truncate(w, value, t, width)


def bitcast(w: Function, value: str, source: dtype, target: dtype) -> str:
    if source.itemsize != target.itemsize:
        raise TypeError(f"bitcast needs equal sizes, got {source} to {target}")
    s, t = value_type(source), value_type(target)
    return value if s == t else w.new(f"bitcast {s} {value} to {t}")
