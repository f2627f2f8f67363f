"""Pointwise operators on random layouts: equal to NumPy, to the NumPy emitter and to PyTorch."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_tensors import (
    COMPLEX,
    EVERY,
    EXACT,
    FLOATS,
    INTEGERS,
    REAL,
    Raised,
    assert_close,
    broadcastable,
    check,
    outcome,
    samples,
    to_numpy,
)

import flambeau
from flambeau.core.tensor import empty_strided
from flambeau.ops import OPS

UNARY = {
    "neg": np.negative, "abs": np.abs, "square": np.square, "exp": np.exp, "expm1": np.expm1, "log": np.log,
    "log1p": np.log1p, "log2": np.log2, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "atan": np.arctan, "asinh": np.arcsinh, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "round": np.round, "reciprocal": np.reciprocal, "isnan": np.isnan, "isinf": np.isinf,
    "isfinite": np.isfinite, "signbit": np.signbit, "logical_not": np.logical_not, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "relu": lambda x: np.maximum(x, 0), "positive": np.positive,
}  # fmt: skip
ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "true_divide",
    "maximum",
    "minimum",
    "fmax",
    "fmin",
    "atan2",
    "hypot",
    "copysign",
    "logaddexp",
)
ARITHMETIC_TWINS = {"sub": np.subtract, "mul": np.multiply, "atan2": np.arctan2}
COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
LOGIC = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}
BITS = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor}


@given(st.sampled_from(sorted(UNARY)), samples(("float32", "float64"), flavours=("plain", "special")))
def test_unary_functions_of_floats(name, x):
    check(
        lambda lib, a: getattr(lib, name)(a),
        (x,),
        lambda a: UNARY[name](a.astype(np.float64)).astype(_result(name, x)),
        slack=5,
    )


def _result(name: str, x) -> str:
    return "bool" if name in ("isnan", "isinf", "isfinite", "signbit", "logical_not") else x.dtype


@given(st.sampled_from(sorted(UNARY)), samples(EVERY, flavours=("plain", "special")))
def test_unary_functions_of_every_dtype(name, x):
    check(lambda lib, a: getattr(lib, name)(a), (x,), slack=20)


@given(
    st.sampled_from(("abs_", "neg_", "exp_", "floor_", "sigmoid_", "square_", "relu_", "logical_not_", "zero_")),
    samples(REAL, overlap="expanded"),
)
def test_unary_in_place(name, x):
    """Also on memory that overlaps itself, which is an error."""
    check(lambda lib, a: getattr(a, name)(), (x,), slack=5, written=True)


@st.composite
def several(draw, count, dtypes, flavours=("plain", "ties", "special"), **settings):
    return tuple(draw(samples(dtypes, shape, flavours, **settings)) for shape in draw(broadcastable(count)))


@given(st.sampled_from(ARITHMETIC), several(2, ("float32", "float64")))
def test_binary_functions_of_floats(name, pair):
    twin = ARITHMETIC_TWINS.get(name) or getattr(np, name)
    check(lambda lib, a, b: getattr(lib, name)(a, b), pair, lambda a, b: twin(a, b), slack=5)


@given(
    st.sampled_from(("add", "sub", "mul", "true_divide", "maximum", "minimum", "remainder", "floor_divide", "fmod")),
    several(2, REAL),
)
def test_binary_functions_of_every_pair_of_dtypes(name, pair):
    check(lambda lib, a, b: getattr(lib, name)(a, b), pair, slack=3)


@given(
    st.sampled_from(("add", "sub", "mul", "true_divide", "pow")),
    several(2, (*COMPLEX, "float32", "int64", "bool"), ("plain",)),
)
def test_complex_arithmetic(name, pair):
    check(lambda lib, a, b: getattr(lib, name)(a, b), pair, slack=50)


@given(st.sampled_from(sorted(COMPARISONS)), several(2, EXACT, ("ties", "special")))
def test_comparisons(name, pair):
    check(lambda lib, a, b: getattr(lib, name)(a, b), pair, COMPARISONS[name])


@given(st.sampled_from(sorted(COMPARISONS)), several(2, REAL, ("ties", "special")))
def test_comparisons_of_every_pair_of_dtypes(name, pair):
    check(lambda lib, a, b: getattr(lib, name)(a, b), pair)


@given(st.sampled_from(sorted(LOGIC)), several(2, EXACT, ("ties", "special")))
def test_logic(name, pair):
    check(lambda lib, a, b: getattr(lib, name)(a, b), pair, LOGIC[name])


@given(st.sampled_from(sorted(BITS)), several(2, ("int64", "int32", "uint8", "bool")))
def test_bits(name, pair):
    check(lambda lib, a, b: getattr(lib, name)(a, b), pair, BITS[name] if pair[0].dtype == pair[1].dtype else None)


@given(
    st.sampled_from(
        (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.mod, operator.floordiv)
    ),
    samples(REAL),
    st.sampled_from((2, -3, 0, 0.5, -1.5, True, float("inf"), 1 + 2j)),
    st.booleans(),
)
def test_operators_with_numbers(operation, x, number, reflected):
    if isinstance(number, complex) and x.dtype == "float16":
        return  # PyTorch's result has pairs of half-width floats
    check(lambda lib, a: operation(number, a) if reflected else operation(a, number), (x,), slack=5)


@given(st.sampled_from(("add_", "sub_", "mul_", "div_", "copy_")), several(2, REAL, overlap="expanded"))
def test_binary_in_place(name, pair):
    """The result is cast to the first operand's dtype and must have its shape; otherwise it is an error."""
    check(lambda lib, a, b: getattr(a, name)(b), pair, slack=3, written=True)


@given(
    st.sampled_from(("add", "sub", "mul", "maximum", "lt")),
    several(3, ("float64", "float32", *INTEGERS, "bool"), ("plain",), overlap="expanded"),
)
def test_out_of_any_shape_and_dtype(name, three):
    """out= is resized when its shape differs, must be able to hold the result's dtype, and may not overlap."""
    check(lambda lib, a, b, out: getattr(lib, name)(a, b, out=out), three, slack=3, strides=False)


@given(
    st.sampled_from(("add_", "mul_", "sub_", "copy_")),
    samples(("float32", "int64"), least=1, overlap=False),
    st.integers(0, 3),
)
def test_in_place_with_a_shifted_view(name, x, shift):
    """Where PyTorch notices a partial overlap it is an error; where it does not, it reads what it has just written, and
    Flambeau what was there before."""

    def call(lib, a):
        a = a.contiguous()
        n = a.shape[0] - shift
        return getattr(a.narrow(0, 0, n), name)(a.narrow(0, shift, n))

    if 0 < shift <= x.shape[0]:
        check(call, (x,))
    flat = x.tensor(flambeau)
    before, n = to_numpy(flat).copy(), max(x.shape[0] - shift, 0)
    result = outcome(getattr(flat.narrow(0, 0, n), name), flat.narrow(0, shift, n) if shift <= x.shape[0] else flat[:0])
    if not isinstance(result, Raised):
        whole = {"add_": np.add, "mul_": np.multiply, "sub_": np.subtract, "copy_": lambda a, b: b}[name]
        assert np.array_equal(to_numpy(result), whole(before[:n], before[shift : shift + n]))


@given(st.sampled_from(("add_", "mul_", "sub_", "copy_")), st.integers(0, 5), st.sampled_from(("float32", "int64")))
def test_in_place_with_its_own_transpose(name, n, dtype):
    def call(lib):
        a = lib.arange(n * n).reshape(n, n).to(getattr(lib, dtype))
        return getattr(a, name)(a.t())

    check(call, (), written=False)


@given(several(3, ("float32",), ("plain", "ties")), several(3, REAL, ("plain",)))
def test_ternary_functions(three, mixed):
    check(
        lambda lib, a, b, c: lib.addcmul(a, b, c, value=0.5),
        three,
        lambda a, b, c: a + np.float32(0.5) * b * c,
        slack=10,
    )
    check(lambda lib, a, b, c: lib.addcdiv(a, b, c.abs() + 1), three, lambda a, b, c: a + b / (abs(c) + 1), slack=10)
    check(lambda lib, a, b, c: lib.lerp(a, b, c), three, slack=10)
    check(lambda lib, a, b, c: lib.addcmul(a, b, c), mixed, slack=10)


@given(several(3, REAL, ("ties", "special")))
def test_where(three):
    check(lambda lib, c, a, b: lib.where(c.to(lib.bool), a, b), three)
    check(lambda lib, c, a, b: lib.where(c, a, b), three)


@given(several(3, REAL, ("plain", "special")), st.sampled_from((None, -1, 0.5)), st.sampled_from((None, 2, 1.5)))
def test_clamp(three, low, high):
    check(lambda lib, x, a, b: lib.clamp(x, low, high), three)
    check(lambda lib, x, a, b: lib.clamp(x, a, b), three)
    check(lambda lib, x, a, b: x.clamp(min=a), three)


KERNELS = sorted(
    name
    for name, op in OPS.items()
    if op.kind == "pointwise"
    and op.namespaces
    and not op.draws
    and all(type(d) in (int, float) for d in op.impl.defaults)
)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@given(st.sampled_from(KERNELS), st.data())
def test_every_native_kernel_equals_its_numpy_reference(dtype, name, data):
    """One formula, two emitters: compiled code and NumPy agree for every pointwise operator in the registry."""
    op = OPS[name]
    operands = tuple(s.tensor(flambeau) for s in data.draw(several(op.impl.arity, (dtype,), ("plain", "special"))))
    result = outcome(op.impl.call, operands)
    if isinstance(result, Raised):
        assert isinstance(result.error, (RuntimeError, TypeError, ValueError)), result
        return
    plan = op.impl.plan_for(operands, (), None, None)
    reference = empty_strided(result.shape, result.stride(), result.dtype)
    if plan.native is not None:
        with np.errstate(all="ignore"):
            plan._run_numpy(reference, operands + op.impl.runtime_params(op.impl.defaults))
        kind = str(result.dtype).replace("torch.", "").replace("flambeau.", "")
        assert_close(to_numpy(result), to_numpy(reference), kind, 50, name)


@given(
    st.sampled_from(("relu", "gelu", "silu", "elu", "leaky_relu", "softplus", "hardswish", "hardtanh", "selu", "mish")),
    samples(FLOATS, flavours=("plain", "special")),
)
def test_activations(name, x):
    if (
        name != "gelu" or np.isfinite(x.memory).all()
    ):  # PyTorch's vectorised gelu of infinity is nan, its scalar one infinity
        check(lambda lib, a: getattr(lib.nn.functional, name)(a), (x,), slack=20)
