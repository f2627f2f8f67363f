"""Running sums, sorting, selection, softmax along random dimensions: equal to NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from random_tensors import COMPLEX, EVERY, EXACT, FLOATS, REAL, check, dims, samples, valid_dims


def along(a, d):
    rank = max(a.ndim, 1)
    if not -rank <= d < rank:
        raise IndexError(d)
    return d


@given(st.sampled_from(("cumsum", "cumprod")), samples(("float32", "float64", "int64")), st.data())
def test_running_totals(name, x, data):
    d = data.draw(dims(len(x.shape)))

    def oracle(a):
        return getattr(np, name)(np.atleast_1d(a), axis=along(a, d)).reshape(a.shape)

    check(lambda lib, t: getattr(lib, name)(t, d), (x,), oracle, slack=20)


@given(
    st.sampled_from(("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")),
    samples(EVERY, flavours=("plain", "ties", "special")),
    st.data(),
)
def test_running_totals_of_every_dtype(name, x, data):
    d = data.draw(dims(len(x.shape))) if 0 not in x.shape else 0
    if name != "logcumsumexp" or x.dtype not in COMPLEX:  # angles of complex sums are only known up to full turns
        check(lambda lib, t: getattr(lib, name)(t, d), (x,), slack=50)


@given(samples(EXACT, flavours=("plain", "ties", "special")), st.data(), st.booleans())
def test_sort(x, data, descending):
    d = data.draw(dims(len(x.shape)))

    def oracle(a):
        along(a, d)
        flat = np.atleast_1d(a)
        order = np.argsort(flat, d, kind="stable")
        if descending:  # nan first, equal elements in their order
            order = np.flip(flat.shape[d] - 1 - np.argsort(np.flip(flat, d), d, kind="stable"), d)
        return np.take_along_axis(flat, order, d).reshape(a.shape), order.reshape(a.shape)

    check(lambda lib, t: lib.sort(t, dim=d, descending=descending, stable=True), (x,), oracle)


@given(samples(REAL, flavours=("plain", "ties", "special")), st.data(), st.booleans())
def test_sort_of_every_dtype(x, data, descending):
    d = data.draw(dims(len(x.shape)))
    check(lambda lib, t: lib.sort(t, dim=d, descending=descending, stable=True), (x,))
    check(lambda lib, t: lib.argsort(t, dim=d, descending=descending, stable=True), (x,))
    check(lambda lib, t: lib.msort(t), (x,))


@given(
    samples(REAL, flavours=("plain", "ties", "special")),
    st.data(),
    st.sampled_from((0, 1, 2, 3, -1, 100)),
    st.booleans(),
)
def test_topk(x, data, k, largest):
    """Values only: which of several equal elements is meant is not fixed."""
    d = data.draw(dims(len(x.shape)))
    check(lambda lib, t: lib.topk(t, k, d, largest).values, (x,))


@given(samples(("float32", "int64", "uint8")), st.data(), st.sampled_from((1, 2, 3)))
def test_topk_indices_point_at_the_values(x, data, k):
    if not x.shape or min(x.shape) < k:
        return
    d = data.draw(st.integers(-len(x.shape), len(x.shape) - 1))
    check(
        lambda lib, t: lib.topk(t, k, d).values.eq(t.gather(d, lib.topk(t, k, d).indices)).all().item(),
        (x,),
        lambda a: True,
    )


@given(samples(REAL, flavours=("ties",)))
def test_unique(x):
    for options in ({}, {"return_inverse": True}, {"return_counts": True}):
        check(lambda lib, t, options=options: lib.unique(t, **options), (x,))
    check(lambda lib, t: lib.unique_consecutive(t), (x,))


@given(
    st.sampled_from(("softmax", "log_softmax")), samples(("float32", "float64"), flavours=("plain", "ties")), st.data()
)
def test_softmax(name, x, data):
    d = data.draw(dims(len(x.shape)))

    def oracle(a):
        along(a, d)
        flat = np.atleast_1d(a).astype(np.float64)
        powers = np.exp(flat)
        result = powers / powers.sum(d, keepdims=True)
        return (np.log(result) if name == "log_softmax" else result).reshape(a.shape)

    check(lambda lib, t: getattr(lib, name)(t, d), (x,), oracle, slack=5)


@given(
    st.sampled_from(("softmax", "log_softmax")),
    samples(REAL, flavours=("plain", "special"), zero=False),
    st.data(),
    st.sampled_from((None, "float32", "float64")),
)
def test_softmax_of_every_dtype(name, x, data, dtype):
    d = data.draw(dims(len(x.shape)))
    check(lambda lib, t: getattr(lib, name)(t, d, dtype=dtype and getattr(lib, dtype)), (x,), slack=20)


@given(
    samples(FLOATS, least=1, most=1, flavours=("plain", "ties")),
    samples(FLOATS, most=2, flavours=("plain", "ties", "special")),
    st.booleans(),
)
def test_searchsorted(edges, x, right):
    def call(lib, e, t):
        return lib.searchsorted(e.sort().values.contiguous(), t.to(e.dtype).contiguous(), right=right)

    check(call, (edges, x))


@given(samples(REAL, flavours=("plain", "ties")), st.data(), st.sampled_from((1, 2, 0, 5)))
def test_differences(x, data, n):
    d = data.draw((dims if n else valid_dims)(len(x.shape)))
    check(lambda lib, t: lib.diff(t, n, d), (x,))


@given(samples(("float32", "float64"), flavours=("plain",)), st.data(), st.sampled_from((0.0, 0.5, 1.0, 0.3, 2.0)))
def test_quantiles(x, data, q):
    d = data.draw(dims(len(x.shape)))
    check(lambda lib, t: lib.quantile(t, q, d), (x,), slack=10)
    check(lambda lib, t: lib.nanquantile(t, q, d), (x,), slack=10)
