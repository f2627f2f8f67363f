"""Views, joins and splits of random tensors: equal to NumPy and PyTorch, strides included; nothing out of range gets through."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from random_tensors import EVERY, check, dims, samples, valid_dims

ANY = ("float32", "int64", "bool", "complex64", "bfloat16", "uint8")
NUMBERS = st.sampled_from((0, 1, 2, 3, -1, -2, 5, 100, -100, 2**40, -(2**40)))


def wrapped(array, d):
    rank = max(array.ndim, 1)
    if not -rank <= d < rank:
        raise IndexError(d)
    return d % rank


@given(samples(ANY), st.data())
def test_transpose(x, data):
    a, b = data.draw(dims(len(x.shape))), data.draw(dims(len(x.shape)))

    def oracle(array):
        i, j = wrapped(array, a), wrapped(array, b)
        return array if array.ndim == 0 else np.swapaxes(array, i, j)

    check(lambda lib, t: t.transpose(a, b), (x,), oracle)


@given(samples(ANY), st.data())
def test_permute(x, data):
    rank = len(x.shape)
    order = data.draw(st.permutations(range(rank)))
    mistake = data.draw(st.sampled_from(("", "", "", "repeated", "outside", "short")))
    if rank:
        order[0] = {"repeated": order[-1], "outside": rank, "short": order[0]}.get(mistake, order[0])
        order = order[1:] if mistake == "short" else order

    def oracle(array):
        if len(order) != array.ndim or len({wrapped(array, d) for d in order}) != len(order):
            raise ValueError(order)
        return array.transpose([wrapped(array, d) for d in order])

    check(lambda lib, t: t.permute(order), (x,), oracle)
    check(lambda lib, t: lib.movedim(t, tuple(range(len(order))), tuple(order)), (x,))


@st.composite
def new_shapes(draw, shape):
    """Mostly a factorisation of the number of elements, with one -1 perhaps; sometimes nonsense."""
    if draw(st.integers(0, 5)) == 0:
        return tuple(draw(st.lists(NUMBERS, max_size=4)))
    factors, left = [], int(np.prod(shape, dtype=np.int64))
    for n in draw(st.lists(st.sampled_from((1, 2, 3, 4, 7)), max_size=4)):
        if left and left % n == 0:
            factors.append(n)
            left //= n
    factors.append(left)
    factors = draw(st.permutations(factors))
    if draw(st.booleans()):
        factors[draw(st.integers(0, len(factors) - 1))] = -1
    return tuple(factors)


@given(samples(ANY), st.data())
def test_view_and_reshape(x, data):
    shape = data.draw(new_shapes(x.shape))
    check(lambda lib, t: t.view(shape), (x,))
    check(lambda lib, t: t.reshape(shape), (x,))
    check(lambda lib, t: (t.reshape(shape).data_ptr() == t.data_ptr()) or not t.numel(), (x,))


@given(samples(ANY), st.data())
def test_flatten_and_unflatten(x, data):
    a, b = data.draw(dims(len(x.shape))), data.draw(dims(len(x.shape)))
    check(lambda lib, t: lib.flatten(t, a, b), (x,))
    if x.shape:
        check(lambda lib, t: t.unflatten(a, (1, -1)), (x,))
    check(lambda lib, t: lib.ravel(t), (x,), np.ravel)


@given(samples(ANY), st.data())
def test_squeeze_and_unsqueeze(x, data):
    d = data.draw(dims(len(x.shape)))
    check(lambda lib, t: t.squeeze(d), (x,))
    check(lambda lib, t: t.squeeze(), (x,), np.squeeze)
    check(lambda lib, t: t.unsqueeze(d), (x,), lambda a: np.expand_dims(a, d))


@given(samples(ANY), st.data())
def test_expand_and_broadcast(x, data):
    shape = tuple(data.draw(st.lists(st.sampled_from((1, 2, 3, 0, 5)), max_size=2))) + tuple(
        data.draw(st.sampled_from((n, n, -1, 3))) for n in x.shape
    )
    check(lambda lib, t: t.expand(shape), (x,))
    if -1 not in shape:
        check(lambda lib, t: lib.broadcast_to(t, shape), (x,), lambda a: np.broadcast_to(a, shape))


@given(samples(ANY), st.data(), NUMBERS, NUMBERS)
def test_narrow_and_select(x, data, start, length):
    d = data.draw((dims if start == 0 and length > 0 else valid_dims)(len(x.shape)))
    check(lambda lib, t: t.narrow(d, start, length), (x,))
    check(lambda lib, t: t.select(d, start), (x,))


@given(samples(ANY), st.lists(st.sampled_from((0, 1, 2, 3, -1)), max_size=5))
def test_repeat_and_tile(x, times):
    check(lambda lib, t: t.repeat(times), (x,))

    def oracle(array):
        if any(n < 0 for n in times):
            raise ValueError(times)
        return np.tile(array, times)

    check(lambda lib, t: lib.tile(t, times), (x,), oracle)


@given(samples(ANY), st.data())
def test_flip_and_roll(x, data):
    over = data.draw(st.lists(valid_dims(len(x.shape)), max_size=3))
    shift, d = data.draw(NUMBERS), data.draw((dims if 0 not in x.shape else valid_dims)(len(x.shape)))
    check(lambda lib, t: lib.flip(t, over), (x,))
    check(lambda lib, t: lib.roll(t, shift, d), (x,))
    check(lambda lib, t: lib.roll(t, shift), (x,), lambda a: np.roll(a, shift))
    check(lambda lib, t: lib.rot90(t, shift % 7, over[:2]), (x,))


@given(samples(ANY), st.data(), st.sampled_from((0, 1, 2, -1, 100)))
def test_diagonals_and_triangles(x, data, offset):
    a, b = data.draw(dims(len(x.shape))), data.draw(dims(len(x.shape)))
    check(lambda lib, t: t.diagonal(offset, a, b), (x,))
    check(lambda lib, t: lib.tril(t, offset), (x,))
    check(lambda lib, t: lib.triu(t, offset), (x,))
    check(lambda lib, t: lib.diag(t, offset), (x,))


@given(samples(ANY), st.data(), NUMBERS, NUMBERS)
def test_unfold_windows(x, data, size, step):
    d = data.draw(dims(len(x.shape)))
    check(lambda lib, t: t.unfold(d, size, step), (x,))


@given(samples(ANY), st.data(), NUMBERS)
def test_split_and_chunk(x, data, n):
    d = data.draw(dims(len(x.shape)))
    pieces = data.draw(st.lists(st.sampled_from((0, 1, 2, 3, -1)), max_size=4))
    check(lambda lib, t: lib.split(t, n, d), (x,))
    check(lambda lib, t: lib.split(t, pieces, d), (x,))
    check(lambda lib, t: lib.chunk(t, min(n, 50), d), (x,))
    check(lambda lib, t: lib.tensor_split(t, min(n, 50), d), (x,))
    check(lambda lib, t: lib.unbind(t, d), (x,))


@st.composite
def to_join(draw):
    """Tensors that agree but for one dimension; sometimes one that does not fit, or the old-style empty tensor."""
    first = draw(samples(EVERY, most=4))
    d = draw((dims if 0 not in first.shape else valid_dims)(len(first.shape)))
    parts = [first]
    for _ in range(draw(st.integers(0, 3))):
        shape = list(first.shape)
        if shape and -len(shape) <= d < len(shape) and draw(st.integers(0, 3)):
            shape[d] = draw(st.sampled_from((0, 1, 2, 3)))
        if draw(st.integers(0, 8)) == 0:
            shape = draw(st.sampled_from(([0], [2], [], [1, 0])))
        parts.append(draw(samples(EVERY, tuple(shape))))
    return d, tuple(draw(st.permutations(parts)))


@given(to_join())
def test_cat(case):
    d, parts = case
    check(lambda lib, *tensors: lib.cat(tensors, d), parts)


@given(to_join())
def test_stack(case):
    d, parts = case

    def oracle(*arrays):
        return np.stack(arrays, d)

    same = len({p.dtype for p in parts}) == 1 and parts[0].dtype != "bfloat16"
    check(lambda lib, *tensors: lib.stack(tensors, d), parts, oracle if same else None)
    check(lambda lib, *tensors: lib.hstack(tensors), parts)
    check(lambda lib, *tensors: lib.vstack(tensors), parts)
    check(lambda lib, *tensors: lib.dstack(tensors), parts)


@given(samples(ANY), st.lists(NUMBERS, max_size=5), st.lists(NUMBERS, max_size=5), NUMBERS)
def test_as_strided_stays_inside_its_memory(x, size, strides, offset):
    check(lambda lib, t: lib.as_strided(t, [min(n, 5) for n in size], strides, offset), (x,))


@given(samples(ANY), st.data())
def test_contiguous_clone_and_formats(x, data):
    check(lambda lib, t: t.contiguous(), (x,))
    check(lambda lib, t: t.clone(), (x,))
    check(lambda lib, t: t.is_contiguous(), (x,))
    check(lambda lib, t: t.numel() == 0 or lib.empty_like(t).stride(), (x,))
    check(lambda lib, t: t.contiguous(memory_format=lib.channels_last), (x,))


@given(
    samples(ANY),
    st.lists(st.tuples(st.integers(-2, 3), st.integers(-2, 3)), min_size=1, max_size=5),
    st.sampled_from(("constant", "reflect", "replicate", "circular")),
)
def test_padding(x, amounts, mode):
    pad = [n for pair in amounts for n in pair]
    check(lambda lib, t: lib.nn.functional.pad(t, pad, mode), (x,))
