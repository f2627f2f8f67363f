"""Operators of formulas in LLVM IR: one emitter for each kind of number, chosen by `apply`."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from ..core import dtype as dt
from ..core.dtype import dtype
from ..expr.functions import ELEMENTARY
from ..expr.node import COMPARISONS
from .llvm_text import Function
from .llvm_values import bits, constant, value_type

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
ATTRIBUTES = 'nounwind "no-trapping-math"="true" "prefer-vector-width"="512"'  # of functions that compute


def apply(w: Function, op: str, d: dtype, operands: list[str]) -> str:
    """Emit `op` on operands already converted to dtype `d`; predicates return i1, everything else dtype `d`."""
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


def _comparison(w: Function, op: str, d: dtype, operands: list[str]) -> str:
    if d.is_floating_point:
        predicate = _FLOAT_COMPARE[op]
    else:
        predicate = op if op in ("eq", "ne") else ("s" if d.is_signed else "u") + op
    return w.compare(predicate, value_type(d), *operands)


def _apply_bool(w: Function, op: str, operands: list[str]) -> str:
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


def _apply_int(w: Function, op: str, d: dtype, operands: list[str]) -> str:
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
        positive = w.new(f"zext i1 {w.compare(prefix + 'gt', t, a, zero)} to {t}")
        if not d.is_signed:
            return positive
        return w.op("sub", t, positive, w.new(f"zext i1 {w.compare('slt', t, a, zero)} to {t}"))
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


def _int_division(w: Function, op: str, d: dtype, a: str, b: str) -> str:
    """Emit division that cannot trap. The caller reports zero divisors; here they give an arbitrary number."""
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


def _shift(w: Function, op: str, d: dtype, a: str, b: str) -> str:
    t, width = value_type(d), bits(d)
    inside = w.compare("ult", t, b, str(width))  # a negative amount is a huge unsigned one
    if op == "shl":
        return w.select(inside, t, w.op("shl", t, a, w.select(inside, t, b, "0")), "0")
    if d.is_signed:
        return w.op("ashr", t, a, w.select(inside, t, b, str(width - 1)))
    return w.select(inside, t, w.op("lshr", t, a, w.select(inside, t, b, "0")), "0")


def _int_power(w: Function, d: dtype, a: str, b: str) -> str:
    t = value_type(d)
    if not b.startswith("%") and 0 <= int(b) <= 64:
        return _power_chain(w, "mul", t, a, int(b), "1")
    return w.call(t, _power(d), f"{t} {a}", f"{t} {b}")


def _power_chain(w: Function, opcode: str, t: str, a: str, n: int, one: str) -> str:
    result, square = one, a
    while n:
        if n & 1:
            result = square if result == one else w.op(opcode, t, result, square)
        n >>= 1
        if n:
            square = w.op(opcode, t, square, square)
    return result


def _power(d: dtype) -> Function:
    """Return the function of integer powers, by squaring; a negative exponent truncates towards zero."""
    t = value_type(d)
    f = Function(f"define internal {t} @flambeau.power.{d.name}({t} %a, {t} %n) {ATTRIBUTES}")
    if d.is_signed:
        with f.when(f.compare("slt", t, "%n", 0)):
            odd = f.compare("ne", t, f.op("and", t, "%n", 1), 0)
            other = f.select(f.compare("eq", t, "%a", -1), t, f.select(odd, t, -1, 1), 0)
            f.ret(t, f.select(f.compare("eq", t, "%a", 1), t, 1, other))
    result, square, left = f.variable(t, 1), f.variable(t, "%a"), f.variable(t, "%n")
    with f.forever() as end:
        rest, factor, so_far = f.read(t, left), f.read(t, square), f.read(t, result)
        with f.when(f.compare("eq", t, rest, 0)):
            f.go(end)
        used = f.compare("ne", t, f.op("and", t, rest, 1), 0)
        f.write(t, f.select(used, t, f.op("mul", t, so_far, factor), so_far), result)
        f.write(t, f.op("mul", t, factor, factor), square)
        f.write(t, f.op("lshr", t, rest, 1), left)
    f.ret(t, f.read(t, result))
    return f


# ---- floating point


def _apply_float(w: Function, op: str, d: dtype, operands: list[str]) -> str:
    t, a = value_type(d), operands[0]
    if op in _FLOAT_OPS:
        return w.op(_FLOAT_OPS[op], t, *operands)
    if op == "neg":
        return w.new(f"fneg {t} {a}")
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


def _float_test(w: Function, op: str, d: dtype, a: str) -> str:
    t, zero, infinity = value_type(d), constant(0, d), constant(math.inf, d)
    if op == "isnan":
        return w.compare("uno", t, a, a)
    if op == "isinf":
        return w.compare("oeq", t, w.intrinsic("fabs", t, a), infinity)
    if op == "isfinite":
        return w.compare("olt", t, w.intrinsic("fabs", t, a), infinity)
    if op == "signbit":
        whole = "i64" if t == "double" else "i32"
        return w.compare("slt", whole, w.new(f"bitcast {t} {a} to {whole}"), "0")
    if op == "logical_not":
        return w.compare("oeq", t, a, zero)
    if op == "sign":  # nan gives 0
        positive = w.new(f"uitofp i1 {w.compare('ogt', t, a, zero)} to {t}")
        return w.select(w.compare("olt", t, a, zero), t, constant(-1, d), positive)
    if op in _SAME_FOR_REAL:
        return a
    if op == "imag":
        return zero
    if op == "angle":
        angle = w.select(w.compare("olt", t, a, zero), t, constant(math.pi, d), zero)
        return w.select(w.compare("uno", t, a, a), t, a, angle)
    raise _unsupported(op, d)


_SPECIAL_POWERS: dict[float, Callable[[Function, str, str, dtype], str]] = {
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


def _float_power(w: Function, d: dtype, a: str, b: str) -> str:
    t = value_type(d)
    if not b.startswith("%"):
        exponent = struct.unpack("<d", struct.pack("<Q", int(b, 16)))[0]
        if exponent in _SPECIAL_POWERS:
            return _SPECIAL_POWERS[exponent](w, t, a, d)
    return w.libm("pow", t, a, b)


def _float_division(w: Function, op: str, d: dtype, a: str, b: str) -> str:
    """Emit the C remainder, Python's remainder, or the floor division consistent with it."""
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
