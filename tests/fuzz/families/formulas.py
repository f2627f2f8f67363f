"""Pointwise functions at their extremes, mixed dtypes, and results written to given tensors."""

from __future__ import annotations

from ..draw import COMMON, EVERY, Draw
from .family import family, with_grads

UNARY = [
    "abs",
    "acos",
    "acosh",
    "angle",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_not",
    "ceil",
    "conj_physical",
    "cos",
    "cosh",
    "deg2rad",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "logit",
    "nan_to_num",
    "neg",
    "positive",
    "rad2deg",
    "reciprocal",
    "round",
    "rsqrt",
    "sgn",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "i0",
    "real",
    "imag",
    "special.airy_ai",
    "special.bessel_j0",
    "special.bessel_j1",
    "special.bessel_y0",
    "special.bessel_y1",
    "special.entr",
    "special.erfcx",
    "special.i0e",
    "special.i1",
    "special.i1e",
    "special.log_ndtr",
    "special.modified_bessel_i0",
    "special.modified_bessel_i1",
    "special.modified_bessel_k0",
    "special.modified_bessel_k1",
    "special.ndtr",
    "special.ndtri",
    "special.scaled_modified_bessel_k0",
    "special.scaled_modified_bessel_k1",
    "special.spherical_bessel_j0",
    "special.psi",
    "special.expit",
    "nn.functional.gelu",
    "nn.functional.silu",
    "nn.functional.mish",
    "nn.functional.softplus",
    "nn.functional.elu",
    "nn.functional.selu",
    "nn.functional.celu",
    "nn.functional.hardswish",
    "nn.functional.hardsigmoid",
    "nn.functional.relu6",
    "nn.functional.logsigmoid",
    "nn.functional.softsign",
    "nn.functional.tanhshrink",
    "nn.functional.hardshrink",
    "nn.functional.softshrink",
    "nn.functional.leaky_relu",
    "relu",
]
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "true_divide",
    "floor_divide",
    "remainder",
    "fmod",
    "pow",
    "atan2",
    "hypot",
    "copysign",
    "nextafter",
    "logaddexp",
    "logaddexp2",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "heaviside",
    "ldexp",
    "xlogy",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "logical_and",
    "logical_or",
    "logical_xor",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "isclose",
    "gcd",
    "lcm",
    "float_power",
    "rsub",
    "special.zeta",
    "special.xlog1py",
    "special.gammainc",
    "special.gammaincc",
    "special.chebyshev_polynomial_t",
    "special.hermite_polynomial_h",
    "special.laguerre_polynomial_l",
    "special.legendre_polynomial_p",
    "polar",
    "complex",
    "dist",
]
NUMBERS = (
    "2",
    "0",
    "-1",
    "0.5",
    "-0.0",
    "inf",
    "nan",
    "True",
    "1e10",
    "300",
    "-300",
    "2**31",
    "2**40",
    "complex(1, 2)",
    "1e-3",
    "3",
)


def _operand(draw: Draw, shape: tuple[int, ...], dtype: str, grad: bool = False) -> str:
    return draw.tensor(shape, dtype, draw.among("special", "plain"), grad=grad)


@family
def unary(draw: Draw) -> list[str]:
    dtype = draw.among(*COMMON, *EVERY)
    a = _operand(draw, draw.among((), (3,), (17,), (2, 3), (33,)), dtype, grad=draw.chance(0.4))
    name = draw.among(*UNARY)
    more = {
        "round": draw.options(decimals=draw.number(-2, 3)),
        "nan_to_num": draw.options(nan="1.5", posinf="2.0"),
        "logit": draw.options(eps="0.1"),
    }
    if "." not in name and draw.chance(0.2):
        return [f"a = {a}", f"b = a{'.clone()' if draw.chance(0.5) else ''}", f"result = b.{name}_()"]
    if draw.chance(0.1):
        return [
            f"a = {a}",
            f"result = torch.{name}(a, out=torch.empty({draw.among('0', 'a.shape')}, dtype=torch.{draw.among(dtype, *COMMON)}))",
        ]
    if draw.chance(0.1) and "." not in name:
        name, more = draw.among("mvlgamma", "polygamma", "clamp"), {}
        rest = {
            "mvlgamma": "a, 2",
            "polygamma": f"{draw.number(0, 3)}, a",
            "clamp": f"a, {draw.among(*NUMBERS)}, {draw.among(*NUMBERS)}",
        }[name]
        return with_grads(draw, [f"a = {a}", f"result = torch.{name}({rest})"], "a", 0.4)
    return with_grads(draw, [f"a = {a}", f"result = torch.{name}(a{more.get(name, '')})"], "a", 0.5)


@family
def binary(draw: Draw) -> list[str]:
    shape = draw.shape(0, 3)
    first, second = draw.among(*COMMON, *EVERY), draw.among(*COMMON, *EVERY)
    second = first if draw.chance(0.5) else second
    a, b = (
        _operand(draw, shape, first, draw.chance(0.3)),
        _operand(draw, draw.among(shape, draw.broadcast(shape), ()), second, draw.chance(0.3)),
    )
    name, other = draw.among(*BINARY), draw.among("b", "b", "b", draw.among(*NUMBERS))
    more = ""
    if name in ("add", "sub"):
        more = draw.options(0.3, alpha=NUMBERS)
    if name == "div":
        more = draw.options(rounding_mode=("'floor'", "'trunc'", "None"))
    order = f"a, {other}" if draw.chance(0.85) else f"{other}, a"
    lines = [f"a = {a}", f"b = {b}"]
    if draw.chance(0.15) and "." not in name:
        return [*lines, "c = a.clone()", f"result = c.{name}_({other}{more})"]
    if draw.chance(0.1):
        return [
            *lines,
            f"result = torch.{name}({order}{more}, out=torch.zeros({draw.among('0', 'a.shape', '(7,)')}, dtype=torch.{draw.among(first, *COMMON)}))",
        ]
    if draw.chance(0.2):
        sign = draw.among("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "<", ">=", "==", "@")
        return with_grads(
            draw,
            [*lines, f"result = {order.replace(', ', f' {sign} ', 1) if '(' not in other else f'a {sign} {other}'}"],
            "a, b",
        )
    return with_grads(draw, [*lines, f"result = torch.{name}({order}{more})"], "a, b")


@family
def ternary(draw: Draw) -> list[str]:
    shape = draw.shape(0, 3)
    dtype = draw.among(*COMMON)
    kinds = [dtype if draw.chance(0.8) else draw.among(*COMMON) for _ in range(3)]
    a, b, c = (
        _operand(draw, draw.among(shape, shape, draw.broadcast(shape), ()), kind, draw.chance(0.3)) for kind in kinds
    )
    value = draw.options(0.5, value=NUMBERS)
    number, other = draw.among(*NUMBERS), draw.among(*NUMBERS)
    call = draw.among(
        f"torch.addcmul(a, b, c{value})", f"torch.addcdiv(a, b, c{value})", "torch.lerp(a, b, c)", f"torch.lerp(a, b, {number})", "torch.where(c > 0, a, b)", f"torch.where(c > 0, a, {number})", f"torch.where(c > 0, {number}, {other})",
        "torch.where(c, a, b)", "torch.clamp(a, b, c)", f"torch.clamp(a, min={number})", f"torch.clamp_max(a, {number})", "a.masked_fill(c > 0, b)", f"a.masked_fill(c > 0, {number})", f"torch.full_like(a, {number})", f"torch.full((2,), {number}, dtype=a.dtype)",
        f"torch.full((2,), {number})", "torch.result_type(a, b)", f"torch.result_type(a, {number})", "torch.can_cast(a.dtype, b.dtype)", "torch.promote_types(a.dtype, b.dtype)", "torch.cat([a.flatten(), b.flatten()])", "torch.stack([a, b])", "a.clone().copy_(b)",
        f"a.clone().fill_({number})", "a.to(b.dtype)", "torch.addcmul(a, b, c, out=torch.empty(0, dtype=b.dtype))", f"torch.where(c > 0, a, {number}) + {other}", f"(a * {number} + {other})", f"torch.scalar_tensor({number}, dtype=a.dtype)", "a.clone().masked_scatter_(c > 0, b)",
        "torch.take(a, torch.zeros_like(b, dtype=torch.int64))", f"torch.arange({number}, {other})", f"torch.linspace({number}, {other}, 5)", f"torch.linspace(0, {number}, 4, dtype=a.dtype)", "torch.logspace(0, 2, 3, dtype=a.dtype)", f"torch.tensor([{number}, {other}])", f"torch.tensor([{number}, {other}], dtype=a.dtype)",
        f"torch.asarray({number}, dtype=a.dtype)", "torch.sum(a, dtype=b.dtype)", "torch.prod(a, dtype=b.dtype)", "torch.equal(a, b)", "torch.allclose(a, b)", "torch.as_tensor(a, dtype=b.dtype)", "a.type_as(b)", "a.view(b.dtype)", "torch.index_put(a.flatten(), (torch.tensor([0, 0]),), b.flatten()[:1], True)",
    )  # fmt: skip
    return with_grads(draw, [f"a = {a}", f"b = {b}", f"c = {c}", f"result = {call}"], "a, b, c")
