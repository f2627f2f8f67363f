"""Reading and writing by random indices, gather and scatter: equal to NumPy and PyTorch; a wrong index is an error, never a crash."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_tensors import EXACT, FLOATS, INTEGERS, REAL, Sample, check, dims, samples

import flambeau

ANY = ("float32", "int64", "bool", "complex64", "bfloat16")
HUGE = (10**6, -(10**6), 2**40, 2**62)


@st.composite
def index_lists(draw, n, shape):
    """Integers that index a dimension of size n; rarely one out of range."""
    count = int(np.prod(shape, dtype=np.int64))
    if n == 0:
        values = [0] * count
    else:
        values = draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count))
    if count and draw(st.integers(0, 11)) == 0:
        values[0] = draw(st.sampled_from((n, -n - 1, *HUGE)))
    return np.array(values, np.int64).reshape(shape)


@st.composite
def indices(draw, shape, advanced=True):
    """A tuple for x[...]: integers, slices, None, an ellipsis, index arrays and masks. Arrays stand for tensors."""
    result, left = [], list(shape)
    together = draw(st.sampled_from(((), (1,), (2,), (3,), (2, 1), (2, 3))))
    ellipsis_left = True
    for _ in range(draw(st.integers(0, len(shape) + 2))):
        kind = draw(
            st.sampled_from(("int", "slice", "slice", "none", "ellipsis", "array", "array", "mask", "list", "bool"))
        )
        if kind == "none":
            result.append(None)
        elif kind == "ellipsis" and ellipsis_left:
            result.append(Ellipsis)
            ellipsis_left = False
            keep = draw(st.integers(0, len(left)))
            left = left[len(left) - keep :]
        elif kind == "bool" and advanced:
            result.append(draw(st.booleans()))
        elif not left:
            break
        elif kind == "int":
            n = left.pop(0)
            result.append(
                draw(st.integers(-n, n - 1))
                if n and draw(st.integers(0, 9))
                else draw(st.sampled_from((n, -n - 1, *HUGE)))
            )
        elif kind == "slice":
            left.pop(0)
            bound = st.one_of(st.none(), st.integers(-5, 8), st.sampled_from((2**40, -(2**40))))
            result.append(slice(draw(bound), draw(bound), draw(st.sampled_from((None, 1, 2, 3, 2**40)))))
        elif kind in ("array", "list") and advanced:
            array = draw(index_lists(left.pop(0), together))
            result.append(array if kind == "array" or array.ndim == 0 else array.tolist())
        elif kind == "mask" and advanced:
            rank = draw(st.integers(1, min(2, len(left))))
            area, left = left[:rank], left[rank:]
            seed = draw(st.integers(0, 1000))
            result.append(np.random.RandomState(seed).rand(*area) < 0.5)
    return tuple(result)


def in_library(lib, index):
    """Arrays become tensors of the library; a single index stands alone."""
    converted = tuple(lib.from_numpy(i.copy()) if isinstance(i, np.ndarray) else i for i in index)
    return converted[0] if len(converted) == 1 else converted


@given(samples(ANY, most=4), st.data())
def test_reading(x, data):
    index = data.draw(indices(x.shape))
    plain = not any(
        isinstance(i, np.ndarray) and i.dtype == bool and not i.size for i in index
    )  # NumPy lets empty masks pass
    check(lambda lib, t: t[in_library(lib, index)], (x,), (lambda a: a[index]) if plain and not nested(index) else None)


def nested(index):
    """A lone list of lists is read as a tuple by PyTorch, but not by NumPy."""
    return len(index) == 1 and isinstance(index[0], list) and any(isinstance(i, list) for i in index[0])


@given(samples(ANY, most=4), st.data())
def test_reading_by_slices_is_a_view(x, data):
    index = data.draw(indices(x.shape, advanced=False))

    def call(lib, t):
        view = t[in_library(lib, index)]
        return (
            view,
            view.storage_offset() if view.numel() else 0,
            view.untyped_storage().data_ptr() == t.untyped_storage().data_ptr(),
        )

    check(call, (x,))


@given(samples(EXACT, most=4, overlap=False), st.data(), st.sampled_from((0, 2, 1.5, True)))
def test_writing_a_number(x, data, value):
    index = data.draw(indices(x.shape))

    def call(lib, t):
        t[in_library(lib, index)] = value
        return t

    def oracle(a):
        a = a.copy()
        a[index] = value
        return a

    if _is_valid(x, index) or 0 not in x.shape:
        check(
            call,
            (x,),
            None if nested(index) or any(isinstance(i, np.ndarray) and not i.size for i in index) else oracle,
        )


@given(samples(REAL, most=3, overlap=False), st.data())
def test_writing_a_tensor(x, data):
    index = data.draw(indices(x.shape))
    value = data.draw(samples(REAL, most=2))

    def call(lib, t, v):
        t[in_library(lib, index)] = v
        return t

    if _is_valid(x, index) and (x.dtype == value.dtype or not any(isinstance(i, bool) for i in index)):
        check(call, (x, value))


def _is_valid(x: Sample, index: tuple) -> bool:
    """Whether all places exist and none is written twice: then the winner would not be fixed."""
    try:
        places = np.arange(int(np.prod(x.shape, dtype=np.int64))).reshape(x.shape)[
            tuple(index[0]) if nested(index) else index
        ]
    except IndexError:
        return False
    return len(np.unique(places)) == places.size


@given(samples(EXACT, most=4, zero=False), st.data())
def test_index_select(x, data):
    d = data.draw(dims(len(x.shape)))
    n = x.shape[d] if x.shape and -len(x.shape) <= d < len(x.shape) else 1
    index = (
        abs(data.draw(index_lists(n, (data.draw(st.integers(0, 4)),)))) % n
    )  # which error PyTorch raises depends on the layout

    def oracle(a):
        return np.take(a, index, axis=d)

    check(lambda lib, t: lib.index_select(t, d, lib.from_numpy(index.copy())), (x,), oracle if x.shape else None)
    with pytest.raises((IndexError, RuntimeError)):
        flambeau.index_select(x.tensor(flambeau), 0, flambeau.tensor([x.shape[0] if x.shape else 1]))


@st.composite
def gathers(draw, dtypes=EXACT):
    x = draw(samples(dtypes, most=3, overlap=False))
    d = draw(dims(len(x.shape)))
    shape = tuple(draw(st.integers(0, n)) for n in x.shape)
    if draw(st.integers(0, 9)) == 0:
        shape = (*shape, 2)
    valid = bool(x.shape) and -len(x.shape) <= d < len(x.shape)
    index = abs(draw(index_lists(x.shape[d] if valid else 1, shape)))
    return x, d, index


@given(gathers())
def test_gather(case):
    x, d, index = case
    check(lambda lib, t: lib.gather(t, d, lib.from_numpy(index.copy())), (x,))


@given(gathers(REAL), st.data())
def test_scatter_add(case, data):
    x, d, index = case
    source = data.draw(samples((x.dtype,), index.shape))
    check(lambda lib, t, s: lib.scatter_add(t, d, lib.from_numpy(index.copy()), s), (x, source), slack=10)
    check(lambda lib, t, s: t.scatter_add_(d, lib.from_numpy(index.copy()), s), (x, source), slack=10, written=True)


@given(
    gathers((*FLOATS, *INTEGERS)), st.sampled_from(("sum", "prod", "mean", "amax", "amin")), st.booleans(), st.data()
)
def test_scatter_reduce(case, how, include, data):
    x, d, index = case
    source = data.draw(samples((x.dtype,), index.shape))
    check(
        lambda lib, t, s: lib.scatter_reduce(t, d, lib.from_numpy(index.copy()), s, how, include_self=include),
        (x, source),
        slack=20,
    )


@given(gathers(REAL), st.sampled_from((0, 1, 2.5, True)))
def test_scatter_a_number(case, value):
    x, d, index = case
    check(lambda lib, t: lib.scatter(t, d, lib.from_numpy(index.copy()), value), (x,))


@given(
    samples(REAL, least=1, most=3, overlap=False, zero=False),
    st.data(),
    st.sampled_from(("index_add", "index_copy", "index_fill")),
)
def test_index_writes(x, data, name):
    d = data.draw(dims(len(x.shape)))
    valid = bool(x.shape) and -len(x.shape) <= d < len(x.shape)
    n = x.shape[d] if valid else 1
    index = abs(data.draw(index_lists(n, (data.draw(st.integers(0, 3)),))))
    if name == "index_copy" and len(np.unique(index)) != len(index):
        return
    if name == "index_fill":
        check(lambda lib, t: lib.index_fill(t, d, lib.from_numpy(index.copy()), 2), (x,))
        return
    shape = list(x.shape)
    if valid:
        shape[d] = len(index)
    source = data.draw(samples((x.dtype,), tuple(shape)))
    if name == "index_add":  # which error PyTorch raises depends on the number of dimensions
        index = index % n
    check(lambda lib, t, s: getattr(lib, name)(t, d, lib.from_numpy(index.copy()), s), (x, source), slack=10)


@given(samples(REAL, most=3, overlap=False), samples(("bool",), most=3), st.sampled_from((0, 1.5, True)))
def test_masks(x, mask, value):
    check(lambda lib, t, m: lib.masked_select(t, m), (x, mask))
    check(lambda lib, t, m: lib.masked_fill(t, m, value), (x, mask))
    check(lambda lib, t, m: t.masked_fill_(m, value), (x, mask), written=True)


@given(samples(REAL, flavours=("ties", "special")))
def test_nonzero(x):
    check(lambda lib, t: lib.nonzero(t), (x,), lambda a: np.argwhere(a))
    check(lambda lib, t: lib.nonzero(t, as_tuple=True), (x,), lambda a: np.nonzero(np.atleast_1d(a)))


@given(samples(REAL, most=3), st.data())
def test_take(x, data):
    count = int(np.prod(x.shape, dtype=np.int64))
    index = data.draw(index_lists(count, data.draw(st.sampled_from(((), (2,), (0,), (2, 2))))))
    check(lambda lib, t: lib.take(t, lib.from_numpy(index.copy())), (x,), lambda a: np.take(a, index))


@given(
    samples(("int64", "int32", "float32"), most=2, low=-2, high=9), samples(("float32",), least=2, most=2, zero=False)
)
def test_embedding_refuses_what_is_not_in_its_table(index, table):
    check(lambda lib, i, w: lib.nn.functional.embedding(i, w), (index, table))


@given(samples(("int64",), most=2, low=-2, high=5), st.sampled_from((-1, 0, 3, 6)))
def test_one_hot(index, classes):
    check(lambda lib, i: lib.nn.functional.one_hot(i, classes), (index,))


@given(samples(("int64", "int32", "uint8"), least=1, most=1, low=-1, high=6), st.data())
def test_bincount(x, data):
    least = data.draw(st.sampled_from((0, 3, 9)))
    check(lambda lib, t: lib.bincount(t, minlength=least), (x,))
