"""Reductions over random dimensions: equal to NumPy and to PyTorch, or the same error."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from random_tensors import COMPLEX, EVERY, EXACT, FLOATS, INTEGERS, REAL, check, dims, samples, valid_dims

NUMPY = {"sum": np.sum, "prod": np.prod, "amax": np.max, "amin": np.min, "mean": np.mean, "all": np.all, "any": np.any}
ONE_DIM = {"max": (np.max, np.argmax), "min": (np.min, np.argmin)}


@st.composite
def dim_arguments(draw, rank, several=True):
    """None, one dimension, or a list of them: mostly valid, else with one mistake."""
    kind = draw(st.sampled_from(("none", "one", "one", "list") if several else ("one",)))
    if kind == "none":
        return None
    if kind == "one":
        return draw(dims(rank))
    chosen = draw(st.permutations(range(rank)))[: draw(st.integers(0, rank))]
    mistake = draw(st.sampled_from(("", "", "", "repeated", "outside")))
    if mistake == "outside":
        chosen.append(draw(st.sampled_from((rank + 1, -rank - 2, 2**40))))
    return chosen + chosen[:1] if mistake == "repeated" else chosen


def axes(array, dim, nothing=None):
    """PyTorch's dim argument as NumPy's axis: a 0-dim tensor takes dim 0 and -1, an empty list means all (or `nothing`)."""
    if dim is None:
        return None
    if isinstance(dim, (list, tuple)) and not dim:
        return nothing
    listed = dim if isinstance(dim, (list, tuple)) else [dim]
    if array.ndim == 0:
        if any(d not in (0, -1) for d in listed) or len(listed) > 1:
            raise IndexError(dim)
        return None
    return tuple(listed) if isinstance(dim, (list, tuple)) else dim


def _is_valid(x, dim):
    rank = max(len(x.shape), 1)
    listed = dim if isinstance(dim, list) else [] if dim is None else [dim]
    return all(-rank <= d < rank for d in listed) and len({d % rank for d in listed}) == len(listed)


@given(
    st.sampled_from(("sum", "mean", "amax", "amin", "prod")),
    samples(("float32", "float64"), flavours=("plain", "ties")),
    st.data(),
    st.booleans(),
)
def test_reductions_of_floats(name, x, data, keepdim):
    dim = data.draw(dim_arguments(len(x.shape), name != "prod"))
    if name == "prod" and dim is None:
        dim = -1

    def call(lib, a):
        if dim is None:
            return getattr(lib, name)(a)
        return getattr(lib, name)(a, dim, keepdim=keepdim)

    def oracle(a):
        return np.asarray(NUMPY[name](a, axis=axes(a, dim), keepdims=keepdim and dim is not None), a.dtype)

    check(call, (x,), oracle, slack=20)


@given(
    st.sampled_from(("sum", "mean", "amax", "amin", "prod", "nansum", "nanmean", "logsumexp")),
    samples(EVERY, flavours=("plain", "special")),
    st.data(),
    st.booleans(),
)
def test_reductions_of_every_dtype(name, x, data, keepdim):
    dim = data.draw(dim_arguments(len(x.shape), name != "prod"))
    if dim is None and name in ("prod", "logsumexp"):
        dim = 0
    if _is_valid(x, dim) or (name in ("sum", "nansum") and x.dtype in FLOATS):  # one mistake at a time
        check(
            lambda lib, a: getattr(lib, name)(a) if dim is None else getattr(lib, name)(a, dim, keepdim=keepdim),
            (x,),
            slack=100,
        )


@given(
    st.sampled_from(("sum", "mean", "prod")),
    samples(REAL),
    st.sampled_from(tuple(d for d in EVERY if d not in ("float16", "bfloat16"))),
)
def test_reductions_into_another_dtype(name, x, dtype):
    check(lambda lib, a: getattr(lib, name)(a, dtype=getattr(lib, dtype)), (x,), slack=100)


@given(st.sampled_from(("all", "any")), samples(EVERY, flavours=("ties", "special")), st.data(), st.booleans())
def test_all_and_any(name, x, data, keepdim):
    dim = data.draw(dim_arguments(len(x.shape)))

    def oracle(a):
        dtype = np.uint8 if x.dtype == "uint8" else bool
        return np.asarray(NUMPY[name](a, axis=axes(a, dim, ()), keepdims=keepdim and dim is not None)).astype(dtype)

    check(
        lambda lib, a: getattr(lib, name)(a) if dim is None else getattr(lib, name)(a, dim, keepdim=keepdim),
        (x,),
        oracle,
    )


@given(st.sampled_from(("max", "min")), samples(EXACT), st.data(), st.booleans())
def test_largest_and_smallest_with_their_places(name, x, data, keepdim):
    dim = data.draw(dims(len(x.shape)))

    def oracle(a):
        axis = axes(a, dim)
        if a.ndim == 0:
            return a, np.int64(0)
        return tuple(f(a, axis=axis, keepdims=keepdim) for f in ONE_DIM[name])

    check(lambda lib, a: tuple(getattr(lib, name)(a, dim, keepdim)), (x,), oracle)


@given(
    st.sampled_from(("max", "min", "median", "nanmedian", "mode", "argmax", "argmin", "kthvalue")),
    samples(REAL, flavours=("plain", "ties", "special")),
    st.data(),
)
def test_selections_of_every_dtype(name, x, data):
    dim = data.draw((valid_dims if x.dtype == "bool" else dims)(len(x.shape)))
    k = data.draw(st.sampled_from((1, 2, 0, 5)))

    def call(lib, a):
        if name == "kthvalue":
            return lib.kthvalue(a, k, dim).values
        result = getattr(lib, name)(a, dim)
        # which of several equal elements is meant is not fixed for mode and medians
        return result.values if name in ("mode", "median", "nanmedian") else result

    check(call, (x,))


@given(
    st.sampled_from(("var", "std", "norm")),
    samples((*FLOATS, *COMPLEX), flavours=("plain",)),
    st.data(),
    st.booleans(),
    st.sampled_from((0, 1, 2)),
)
def test_spread_and_norm(name, x, data, keepdim, number):
    dim = data.draw(dim_arguments(len(x.shape)))
    if name == "norm":
        check(lambda lib, a: lib.norm(a, number, dim, keepdim), (x,), slack=50)
    else:
        check(lambda lib, a: getattr(lib, name)(a, dim, correction=number, keepdim=keepdim), (x,), slack=50)


@given(samples(INTEGERS), st.data())
def test_sums_of_integers_are_int64(x, data):
    dim = data.draw(dim_arguments(len(x.shape)))
    check(
        lambda lib, a: a.sum() if dim is None else a.sum(dim),
        (x,),
        lambda a: np.sum(a, axis=axes(a, dim), dtype=np.int64),
    )


@given(
    st.sampled_from(("sum", "amax", "mean")),
    samples(("float32", "int64", "bool")),
    samples(("float32", "int64", "bool")),
    st.data(),
)
def test_reductions_into_out(name, x, out, data):
    rank = len(x.shape)
    dim = data.draw(st.integers(-rank, rank - 1)) if rank else 0
    check(lambda lib, a, o: getattr(lib, name)(a, dim, out=o), (x, out), slack=20, strides=False)


@given(samples(("float32", "int64", "bool"), flavours=("ties", "special")), st.data())
def test_counts(x, data):
    dim = data.draw(dim_arguments(len(x.shape)))
    check(lambda lib, a: lib.count_nonzero(a, dim), (x,), lambda a: np.count_nonzero(a, axis=axes(a, dim)))
