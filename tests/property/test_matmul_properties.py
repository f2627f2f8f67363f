"""Products of random matrices: every layout, batch shape, empty sizes and vectors; equal to NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from random_tensors import FLOATS, INTEGERS, REAL, check, samples

SIZES = (0, 1, 2, 3, 5, 17)
NUMBERS = (*FLOATS, *INTEGERS, "complex64", "complex128")
ALL = (*REAL, "complex64", "complex128")


@st.composite
def factors(draw, dtypes, batches=True):
    """Two operands of matmul: vectors, matrices, broadcast batches; sometimes sizes that do not fit."""
    m, k, n = (draw(st.sampled_from(SIZES)) for _ in range(3))
    batch = draw(st.sampled_from(((), (), (2,), (3, 2), (1,), (0,)))) if batches else ()
    other = tuple(draw(st.sampled_from((s, 1))) for s in batch[draw(st.integers(0, len(batch))) :])
    left, right = (*batch, m, k), (*other, k if draw(st.integers(0, 9)) else k + 1, n)
    if draw(st.integers(0, 4)) == 0:
        left = (k,)
    if draw(st.integers(0, 4)) == 0:
        right = right[-2:-1]
    if draw(st.booleans()):
        left, right = right, left
        if len(left) > 1 and len(right) > 1:
            left, right = (*left[:-2], left[-1], left[-2]), (*right[:-2], right[-1], right[-2])
    first = draw(samples(dtypes, left))
    return first, draw(samples((first.dtype,), right))


@given(factors(("float32", "float64", "complex64", "int64")))
def test_matmul(pair):
    check(lambda lib, a, b: a @ b, pair, lambda a, b: a @ b, slack=20)


@given(factors(ALL))
def test_matmul_of_every_dtype(pair):
    check(lambda lib, a, b: lib.matmul(a, b), pair, slack=20, strides=False)


@given(factors(("float32",)), st.sampled_from(("float32", "float64", "int64")))
def test_matmul_wants_one_dtype(pair, dtype):
    if 0 not in (*pair[0].shape, *pair[1].shape):  # PyTorch does not look at the dtypes of empty tensors
        check(lambda lib, a, b: lib.matmul(a, b.to(getattr(lib, dtype))), pair, slack=20)


@given(factors(NUMBERS, batches=False))
def test_mm_mv_dot(pair):
    for name in ("mm", "mv", "dot", "vdot", "inner", "outer"):
        check(lambda lib, a, b, name=name: getattr(lib, name)(a, b), pair, slack=20, strides=False)


@st.composite
def batched(draw, dtypes, count):
    b, m, k, n = (draw(st.sampled_from(SIZES[:5])) for _ in range(4))
    first = draw(samples(dtypes, (b, m, k)))
    second = draw(samples((first.dtype,), (b, k, n)))
    added = draw(st.sampled_from(((b, m, n), (1, m, n), (m, n), (n,), (), (2, 2))))
    return (draw(samples((first.dtype,), added)), first, second)[3 - count :]


@given(batched(ALL, 2))
def test_bmm(pair):
    check(lambda lib, a, b: lib.bmm(a, b), pair, slack=20)


@given(batched(("float32", "float64", "int64"), 3), st.sampled_from((1, 0, 3)), st.sampled_from((1, 0, 2)))
def test_products_that_add(three, beta, alpha):
    check(lambda lib, c, a, b: lib.baddbmm(c, a, b, beta=beta, alpha=alpha), three, slack=30, strides=False)
    check(lambda lib, c, a, b: lib.addbmm(c, a, b, beta=beta, alpha=alpha), three, slack=30, strides=False)


@st.composite
def affine(draw):
    m, k, n = (draw(st.sampled_from(SIZES)) for _ in range(3))
    dtype = draw(st.sampled_from(("float32", "float64", "bfloat16")))
    bias = draw(st.sampled_from(((m, n), (n,), (1, n), (m, 1), (), (n + 1,))))
    return tuple(draw(samples((dtype,), shape, overlap=shape != bias)) for shape in (bias, (m, k), (k, n)))


@given(affine(), st.sampled_from((1, 0, -2)))
def test_addmm_and_linear(three, beta):
    check(lambda lib, c, a, b: lib.addmm(c, a, b, beta=beta), three, slack=30, strides=False)
    check(lambda lib, c, a, b: lib.nn.functional.linear(a, b.t(), c), three, slack=30, strides=False)


@given(affine())
def test_product_into_out(three):
    """out= of any shape is resized; the operands keep their values."""
    check(lambda lib, c, a, b: lib.mm(a, b, out=c), three, slack=30, strides=False)


@given(
    factors(("float32", "float64"), batches=False),
    st.sampled_from(("ij,jk->ik", "ij,jk", "ij,jk->ki", "ij,jk->", "i,i->", "ij,j->i", "ij,kj->ik", "...j,jk->...k")),
)
def test_einsum(pair, equation):
    check(
        lambda lib, a, b: lib.einsum(equation, a, b),
        pair,
        lambda a, b: np.einsum(equation, a, b),
        slack=50,
        strides=False,
    )


@given(factors(("float32", "float64")), st.integers(0, 3))
def test_tensordot(pair, count):
    check(lambda lib, a, b: lib.tensordot(a, b, count), pair, slack=50, strides=False)
