"""Scalar arithmetic in LLVM IR: types, constants, conversions, loads and stores, and one emitter per operator.

Every function gets a `Writer` (which appends instructions and hands out names) and returns the name of the result.
Semantics are PyTorch's: nothing traps and nothing is undefined, whatever the operands are.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from ..core import dtype as dt
from ..core.dtype import dtype
from ..expr.functions import ELEMENTARY
from ..expr.node import COMPARISONS


def value_type(d: dtype) -> str:
    """The LLVM type a dtype has inside expressions."""
    if d is dt.bool_:
        return "i1"
    if d is dt.float64:
        return "double"
    if d in dt.FLOAT8:
        raise NotImplementedError(f"native kernels do not know {d}; the NumPy emitter does")
    if d is dt.float4_e2m1fn_x2:
        raise NotImplementedError(f"\"copy_kernel\" not implemented for '{d.scalar_type}'")
    if d.is_floating_point:
        return "float"
    if d.is_complex:
        raise NotImplementedError(f"native kernels compute on the parts of {d}: see complex_nests")
    return f"i{8 * d.itemsize}"


def memory_type(d: dtype) -> str:
    """The LLVM type a dtype has in memory."""
    if d is dt.bool_:
        return "i8"
    if d is dt.bfloat16:
        return "i16"
    return "half" if d is dt.float16 else value_type(d)


def bits(d: dtype) -> int:
    return 1 if d is dt.bool_ else d.itemsize * 8


def constant(value: float, d: dtype) -> str:
    """A Python number as a literal of dtype `d`, converted as PyTorch converts scalars."""
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


class Writer:
    """Appends instructions to one function. `flags` are the fast-math flags of the instruction being written."""

    def __init__(self, declare: Callable[[str], None], helper: Callable[[str, dtype], str]):
        self.lines: list[str] = []
        self.flags = ""
        self.declare = declare  # add an external declaration to the module
        self.helper = helper  # add a support function to the module
        self._count = 0

    def name(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def ins(self, text: str) -> str:
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def op(self, opcode: str, t: str, *operands: str) -> str:
        flags = self.flags if opcode[0] == "f" and opcode != "freeze" else ""
        return self.ins(f"{opcode} {flags}{t} {', '.join(operands)}")

    def compare(self, predicate: str, t: str, a: str, b: str) -> str:
        return self.ins(f"{'fcmp' if t in ('float', 'double') else 'icmp'} {predicate} {t} {a}, {b}")

    def select(self, condition: str, t: str, a: str, b: str) -> str:
        return self.ins(f"select i1 {condition}, {t} {a}, {t} {b}")

    def intrinsic(self, name: str, t: str, *operands: str, extra: str = "", flags: str = "") -> str:
        """Call llvm.<name>.<type>; `extra` is a trailing immediate such as the i1 of llvm.abs."""
        symbol = f"@llvm.{name}.{'f32' if t == 'float' else 'f64' if t == 'double' else t}"
        types = ", ".join([t] * len(operands) + ([extra.split()[0]] if extra else []))
        self.declare(f"declare {t} {symbol}({types})")
        arguments = ", ".join([f"{t} {o}" for o in operands] + ([extra] if extra else []))
        if t in ("float", "double"):
            flags = self.flags or flags
        return self.ins(f"call {flags}{t} {symbol}({arguments})")

    def libm(self, name: str, t: str, *operands: str) -> str:
        """Call the C library, one element at a time: right for every input, but not vectorised."""
        symbol = f"@{name}{'f' if t == 'float' else ''}"
        self.declare(f"declare {t} {symbol}({', '.join([t] * len(operands))}) #1")
        return self.ins(f"call {t} {symbol}({', '.join(f'{t} {o}' for o in operands)})")


# ---------------------------------------------------------------------------------------------- memory


def load(w: Writer, pointer: str, d: dtype, suffix: str = "") -> str:
    raw = w.ins(f"load {memory_type(d)}, ptr {pointer}, align 1{suffix}")
    if d is dt.bool_:
        return w.ins(f"icmp ne i8 {raw}, 0")
    if d is dt.bfloat16:
        return _widen_bfloat16(w, raw)
    return w.ins(f"fpext half {raw} to float") if d is dt.float16 else raw


def store(w: Writer, pointer: str, value: str, d: dtype, suffix: str = "") -> None:
    """Store a value whose expression dtype is opmath(d)."""
    if d is dt.bool_:
        value = w.ins(f"zext i1 {value} to i8")
    elif d is dt.bfloat16:
        value = _round_bfloat16(w, value)
    elif d is dt.float16:
        value = w.ins(f"fptrunc float {value} to half")
    w.do(f"store {memory_type(d)} {value}, ptr {pointer}, align 1{suffix}")


def _widen_bfloat16(w: Writer, raw: str) -> str:
    wide = w.ins(f"zext i16 {raw} to i32")
    return w.ins(f"bitcast i32 {w.op('shl', 'i32', wide, '16')} to float")


def _round_bfloat16(w: Writer, value: str) -> str:
    """The upper 16 bits, rounded to nearest even; integer arithmetic so that it vectorises on every CPU."""
    raw = w.ins(f"bitcast float {value} to i32")
    odd = w.op("and", "i32", w.op("lshr", "i32", raw, "16"), "1")
    rounded = w.op("lshr", "i32", w.op("add", "i32", w.op("add", "i32", raw, "32767"), odd), "16")
    # Adding would carry a nan with a small payload over to infinity.
    kept = w.select(w.compare("uno", "float", value, value), "i32", "32704", rounded)
    return w.ins(f"trunc i32 {kept} to i16")


# ---------------------------------------------------------------------------------------------- conversions


def convert(w: Writer, value: str, source: dtype, target: dtype) -> str:
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
            return w.ins(f"{'fpext' if t == 'double' else 'fptrunc'} {s} {value} to {t}")
        return w.ins(f"{'sitofp' if source.is_signed else 'uitofp'} {s} {value} to {t}")
    if source.is_floating_point:
        return _float_to_int(w, value, source, target)
    if s == t:
        return value
    if bits(source) > bits(target):
        return w.ins(f"trunc {s} {value} to {t}")
    return w.ins(f"{'sext' if source.is_signed else 'zext'} {s} {value} to {t}")


def _through_half(w: Writer, value: str, d: dtype) -> str:
    if d is dt.float16:
        return w.ins(f"fpext half {w.ins(f'fptrunc float {value} to half')} to float")
    return _widen_bfloat16(w, _round_bfloat16(w, value))


def _truncate(w: Writer, value: str, t: str, width: int) -> str:
    """Convert a float to an integer as x86's instruction does: out of range and nan give the most negative integer."""
    limit = _float_literal(2.0 ** (width - 1), dt.float64)
    fits = w.compare("olt", t, w.intrinsic("fabs", t, value), limit)
    return w.select(fits, f"i{width}", w.ins(f"fptosi {t} {value} to i{width}"), str(-(1 << (width - 1))))


def _float_to_int(w: Writer, value: str, source: dtype, target: dtype) -> str:
    t, width = value_type(source), bits(target)
    if target is dt.uint64:
        top = _float_literal(2.0**63, dt.float64)
        low = _truncate(w, value, t, 64)
        high = w.op("xor", "i64", _truncate(w, w.op("fsub", t, value, top), t, 64), str(-(1 << 63)))
        return w.select(w.compare("oge", t, value, top), "i64", high, low)
    if target is dt.uint32:
        return w.ins(f"trunc i64 {_truncate(w, value, t, 64)} to i32")
    if width < 32:
        return w.ins(f"trunc i32 {_truncate(w, value, t, 32)} to i{width}")
    return _truncate(w, value, t, width)


def bitcast(w: Writer, value: str, source: dtype, target: dtype) -> str:
    if source.itemsize != target.itemsize:
        raise TypeError(f"bitcast needs equal sizes, got {source} to {target}")
    s, t = value_type(source), value_type(target)
    return value if s == t else w.ins(f"bitcast {s} {value} to {t}")


# ---------------------------------------------------------------------------------------------- operators

_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "mul_alone": "fmul", "div": "fdiv"}
_INT_OPS = {"add": "add", "sub": "sub", "mul": "mul", "mul_alone": "mul", "and": "and", "or": "or", "xor": "xor"}
_BOOL_OPS = {
    "add": "or", "sub": "xor", "mul": "and", "mul_alone": "and", "and": "and", "or": "or", "xor": "xor", "maximum": "or", "fmax": "or",
    "minimum": "and", "fmin": "and",
}  # fmt: skip
_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven"}
_SAME_FOR_REAL = frozenset({"real", "conj"})
LIBM = frozenset((*ELEMENTARY, "atan2", "nextafter", "pow")) - {"erfinv", "digamma"}
# The C library's own functions, for kernels whose results must have its bits (see loops_language).
C_LIBRARY = frozenset({"c_log", "c_log1p", "c_pow", "c_sin", "c_cos"})


def apply(w: Writer, op: str, d: dtype, operands: list[str]) -> str:
    """`op` on operands already converted to dtype `d`; predicates return i1, everything else dtype `d`."""
    if op in COMPARISONS:
        return _comparison(w, op, d, operands)
    if d.is_floating_point:
        return _apply_float(w, op, d, operands)
    if op in _SAME_FOR_REAL or op in _ROUNDING:
        return operands[0]
    if op == "logical_not":
        return w.compare("eq", value_type(d), operands[0], constant(0, d))
    if d is dt.bool_:
        return _apply_bool(w, op, operands)
    return _apply_int(w, op, d, operands)


def _unsupported(op: str, d: dtype) -> NotImplementedError:
    return NotImplementedError(f"the native emitter has no '{op}' for {d}")


def _comparison(w: Writer, op: str, d: dtype, operands: list[str]) -> str:
    if d.is_floating_point:
        predicate = _FLOAT_COMPARE[op]
    else:
        predicate = op if op in ("eq", "ne") else ("s" if d.is_signed else "u") + op
    return w.compare(predicate, value_type(d), *operands)


def _apply_bool(w: Writer, op: str, operands: list[str]) -> str:
    if op in _BOOL_OPS:
        return w.op(_BOOL_OPS[op], "i1", *operands)
    if op == "not":
        return w.op("xor", "i1", operands[0], "true")
    if op in ("abs", "sign", "neg"):
        return operands[0]
    if op in ("isnan", "isinf", "signbit", "imag"):
        return "false"
    if op == "isfinite":
        return "true"
    if op == "pow":  # x ** 0 is true
        return w.op("or", "i1", operands[0], w.op("xor", "i1", operands[1], "true"))
    if op == "fma":
        return w.op("or", "i1", w.op("and", "i1", operands[0], operands[1]), operands[2])
    raise _unsupported(op, dt.bool_)


# ---- integers


def _apply_int(w: Writer, op: str, d: dtype, operands: list[str]) -> str:
    t, zero, prefix = value_type(d), "0", "s" if d.is_signed else "u"
    a = operands[0]
    if op in _INT_OPS:
        return w.op(_INT_OPS[op], t, *operands)
    if op in ("maximum", "fmax", "minimum", "fmin"):
        return w.intrinsic(prefix + ("max" if op.endswith("max") or op == "maximum" else "min"), t, *operands)
    if op in ("floordiv", "mod", "fmod"):
        return _int_division(w, op, d, *operands)
    if op in ("shl", "shr"):
        return _shift(w, op, d, *operands)
    if op == "pow":
        return _int_power(w, d, *operands)
    if op == "neg":
        return w.op("sub", t, zero, a)
    if op == "not":
        return w.op("xor", t, a, "-1")
    if op == "abs":
        return w.intrinsic("abs", t, a, extra="i1 false") if d.is_signed else a
    if op == "sign":
        positive = w.ins(f"zext i1 {w.compare(prefix + 'gt', t, a, zero)} to {t}")
        if not d.is_signed:
            return positive
        return w.op("sub", t, positive, w.ins(f"zext i1 {w.compare('slt', t, a, zero)} to {t}"))
    if op == "signbit":
        return w.compare("slt", t, a, zero) if d.is_signed else "false"
    if op in ("isnan", "isinf"):
        return "false"
    if op == "isfinite":
        return "true"
    if op == "imag":
        return zero
    if op == "fma":
        return w.op("add", t, w.op("mul", t, operands[0], operands[1]), operands[2])
    raise _unsupported(op, d)


def _int_division(w: Writer, op: str, d: dtype, a: str, b: str) -> str:
    """Division that cannot trap. The caller reports zero divisors; here they give an arbitrary number."""
    t = value_type(d)
    if not d.is_signed and not b.startswith("%") and b != "0":
        return w.op("udiv" if op == "floordiv" else "urem", t, a, b)
    zero_divisor = w.compare("eq", t, b, "0")
    if not d.is_signed:
        return w.op("udiv" if op == "floordiv" else "urem", t, a, w.select(zero_divisor, t, "1", b))
    minus_one = w.compare("eq", t, b, "-1")  # the smallest integer divided by -1 overflows
    divisor = w.select(w.op("or", "i1", zero_divisor, minus_one), t, "1", b)
    remainder = w.op("srem", t, a, divisor)
    if op == "fmod":
        return remainder
    opposite = w.compare("slt", t, w.op("xor", t, remainder, b), "0")
    adjust = w.op("and", "i1", w.compare("ne", t, remainder, "0"), opposite)
    if op == "mod":
        return w.select(adjust, t, w.op("add", t, remainder, b), remainder)
    quotient = w.select(minus_one, t, w.op("sub", t, "0", a), w.op("sdiv", t, a, divisor))
    return w.select(adjust, t, w.op("sub", t, quotient, "1"), quotient)


def _shift(w: Writer, op: str, d: dtype, a: str, b: str) -> str:
    t, width = value_type(d), bits(d)
    inside = w.compare("ult", t, b, str(width))  # a negative amount is a huge unsigned one
    if op == "shl":
        return w.select(inside, t, w.op("shl", t, a, w.select(inside, t, b, "0")), "0")
    if d.is_signed:
        return w.op("ashr", t, a, w.select(inside, t, b, str(width - 1)))
    return w.select(inside, t, w.op("lshr", t, a, w.select(inside, t, b, "0")), "0")


def _int_power(w: Writer, d: dtype, a: str, b: str) -> str:
    t = value_type(d)
    if not b.startswith("%") and 0 <= int(b) <= 64:
        return _power_chain(w, "mul", t, a, int(b), "1")
    return w.ins(f"call {t} {w.helper('power', d)}({t} {a}, {t} {b})")


def _power_chain(w: Writer, opcode: str, t: str, a: str, n: int, one: str) -> str:
    result, square = one, a
    while n:
        if n & 1:
            result = square if result == one else w.op(opcode, t, result, square)
        n >>= 1
        if n:
            square = w.op(opcode, t, square, square)
    return result


def power_function(symbol: str, d: dtype) -> str:
    """The text of an internal function: integer power by squaring; a negative exponent truncates towards zero."""
    t = value_type(d)
    negative = f"""
  %negative = icmp slt {t} %n, 0
  br i1 %negative, label %inverse, label %loop
inverse:
  %is_one = icmp eq {t} %a, 1
  %is_minus = icmp eq {t} %a, -1
  %low = and {t} %n, 1
  %odd = icmp ne {t} %low, 0
  %unit = select i1 %odd, {t} -1, {t} 1
  %other = select i1 %is_minus, {t} %unit, {t} 0
  %inverted = select i1 %is_one, {t} 1, {t} %other
  ret {t} %inverted"""
    start = negative if d.is_signed else "\n  br label %loop"
    return f"""define internal {t} {symbol}({t} %a, {t} %n) #0 {{
entry:{start}
loop:
  %result = phi {t} [ 1, %entry ], [ %next, %body ]
  %square = phi {t} [ %a, %entry ], [ %squared, %body ]
  %left = phi {t} [ %n, %entry ], [ %shifted, %body ]
  %done = icmp eq {t} %left, 0
  br i1 %done, label %exit, label %body
body:
  %bit = and {t} %left, 1
  %use = icmp ne {t} %bit, 0
  %product = mul {t} %result, %square
  %next = select i1 %use, {t} %product, {t} %result
  %squared = mul {t} %square, %square
  %shifted = lshr {t} %left, 1
  br label %loop
exit:
  ret {t} %result
}}"""


# ---- floating point


def _apply_float(w: Writer, op: str, d: dtype, operands: list[str]) -> str:
    t, a = value_type(d), operands[0]
    if op in _FLOAT_OPS:
        return w.op(_FLOAT_OPS[op], t, *operands)
    if op == "neg":
        return w.ins(f"fneg {t} {a}")
    if op == "fma":
        return w.intrinsic("fma", t, *operands)
    if op in _ROUNDING:
        return w.intrinsic(_ROUNDING[op], t, a)
    if op == "abs":
        return w.intrinsic("fabs", t, a)
    if op == "sqrt":
        return w.intrinsic("sqrt", t, a)
    if op == "rsqrt":
        return w.op("fdiv", t, constant(1, d), w.intrinsic("sqrt", t, a))
    if op in ("maximum", "minimum"):
        return w.intrinsic(op, t, *operands, flags="nsz ")  # nan wins; which zero is returned does not matter
    if op in ("fmax", "fmin"):
        return w.intrinsic("maxnum" if op == "fmax" else "minnum", t, *operands)
    if op == "copysign":
        return w.intrinsic("copysign", t, *operands)
    if op == "pow":
        return _float_power(w, d, *operands)
    if op in ("fmod", "mod", "floordiv"):
        return _float_division(w, op, d, *operands)
    if op in LIBM:
        return w.libm(op, t, *operands)
    if op in C_LIBRARY:
        return w.libm(op[2:], t, *operands)
    return _float_test(w, op, d, a)


def _float_test(w: Writer, op: str, d: dtype, a: str) -> str:
    t, zero, infinity = value_type(d), constant(0, d), constant(math.inf, d)
    if op == "isnan":
        return w.compare("uno", t, a, a)
    if op == "isinf":
        return w.compare("oeq", t, w.intrinsic("fabs", t, a), infinity)
    if op == "isfinite":
        return w.compare("olt", t, w.intrinsic("fabs", t, a), infinity)
    if op == "signbit":
        whole = "i64" if t == "double" else "i32"
        return w.compare("slt", whole, w.ins(f"bitcast {t} {a} to {whole}"), "0")
    if op == "logical_not":
        return w.compare("oeq", t, a, zero)
    if op == "sign":  # nan gives 0
        positive = w.ins(f"uitofp i1 {w.compare('ogt', t, a, zero)} to {t}")
        return w.select(w.compare("olt", t, a, zero), t, constant(-1, d), positive)
    if op in _SAME_FOR_REAL:
        return a
    if op == "imag":
        return zero
    if op == "angle":
        angle = w.select(w.compare("olt", t, a, zero), t, constant(math.pi, d), zero)
        return w.select(w.compare("uno", t, a, a), t, a, angle)
    raise _unsupported(op, d)


_SPECIAL_POWERS: dict[float, Callable[[Writer, str, str, dtype], str]] = {
    0.0: lambda w, t, a, d: constant(1, d),
    1.0: lambda w, t, a, d: a,
    2.0: lambda w, t, a, d: w.op("fmul", t, a, a),
    3.0: lambda w, t, a, d: w.op("fmul", t, w.op("fmul", t, a, a), a),
    0.5: lambda w, t, a, d: w.intrinsic("sqrt", t, a),
    -0.5: lambda w, t, a, d: w.op("fdiv", t, constant(1, d), w.intrinsic("sqrt", t, a)),
    -1.0: lambda w, t, a, d: w.op("fdiv", t, constant(1, d), a),
    -2.0: lambda w, t, a, d: w.op("fdiv", t, constant(1, d), w.op("fmul", t, a, a)),
}
SPECIAL_POWERS = frozenset(_SPECIAL_POWERS)


def _float_power(w: Writer, d: dtype, a: str, b: str) -> str:
    t = value_type(d)
    if not b.startswith("%"):
        exponent = struct.unpack("<d", struct.pack("<Q", int(b, 16)))[0]
        if exponent in _SPECIAL_POWERS:
            return _SPECIAL_POWERS[exponent](w, t, a, d)
    return w.libm("pow", t, a, b)


def _float_division(w: Writer, op: str, d: dtype, a: str, b: str) -> str:
    """The C remainder, Python's remainder, and the floor division that goes with it."""
    t, zero = value_type(d), constant(0, d)
    remainder = w.libm("fmod", t, a, b)
    if op == "fmod":
        return remainder
    signs_differ = w.op("xor", "i1", w.compare("olt", t, b, zero), w.compare("olt", t, remainder, zero))
    adjust = w.op("and", "i1", w.compare("une", t, remainder, zero), signs_differ)
    if op == "mod":
        return w.select(adjust, t, w.op("fadd", t, remainder, b), remainder)
    exact = w.op("fdiv", t, a, b)
    quotient = w.op("fdiv", t, w.op("fsub", t, a, remainder), b)
    quotient = w.select(adjust, t, w.op("fsub", t, quotient, constant(1, d)), quotient)
    floor = w.intrinsic("floor", t, quotient)
    above = w.compare("ogt", t, w.op("fsub", t, quotient, floor), constant(0.5, d))
    rounded = w.select(above, t, w.op("fadd", t, floor, constant(1, d)), floor)
    signed_zero = w.intrinsic("copysign", t, zero, exact)
    result = w.select(w.compare("une", t, quotient, zero), t, rounded, signed_zero)
    return w.select(w.compare("oeq", t, b, zero), t, exact, result)
