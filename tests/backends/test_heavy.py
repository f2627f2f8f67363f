"""Matrix products and convolutions: oneDNN and NumPy against plain references, against each other, and PyTorch."""

from __future__ import annotations

import itertools
import os
import threading

import numpy as np
import pytest

from flambeau.backends.cpu import blas, heavy, onednn, threads
from flambeau.backends.cpu.onednn import gemm, library
from flambeau.backends.cpu.onednn import plan as onednn_plan
from flambeau.core import dtype as dtypes
from flambeau.core.bfloat16 import float32_to_bits

needs_onednn = pytest.mark.skipif(not onednn.available(), reason="oneDNN is not installed")
both = pytest.mark.parametrize("native", [pytest.param(True, marks=needs_onednn), False], ids=["onednn", "numpy"])

ALL_NUMERIC = [d for d in dtypes.ALL_DTYPES if d is not dtypes.bool_]
TOLERANCE = {
    "float16": 2e-3,
    "bfloat16": 1e-2,
    "float32": 2e-5,
    "float64": 1e-12,
    "complex64": 2e-5,
    "complex128": 1e-12,
}


class Stand:
    """A stand-in tensor over a NumPy array (uint16 bits for bfloat16)."""

    def __init__(self, array: np.ndarray, dtype: dtypes.dtype):
        self.array, self.shape, self.dtype = array, array.shape, dtype
        self._strides = tuple(step // array.itemsize for step in array.strides)

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def exact(self) -> np.ndarray:
        """The values in the widest type of their kind."""
        wide = (
            np.complex128 if self.dtype.is_complex else np.float64 if self.dtype.is_floating_point else self.dtype.numpy
        )
        return blas.load(self).astype(wide)


def as_is(array: np.ndarray) -> np.ndarray:
    return array


def random(dtype: dtypes.dtype, *shape: int, lay=as_is) -> Stand:
    """Random values, laid out in memory by a function that returns an equal array."""
    generator = np.random.default_rng(sum(shape) + len(shape))
    if dtype.kind in "iu":
        values = generator.integers(0, 100, shape).astype(dtype.numpy)
    else:
        values = generator.standard_normal(shape)
        values = values + 1j * generator.standard_normal(shape) if dtype.is_complex else values
        values = float32_to_bits(values) if dtype is dtypes.bfloat16 else values.astype(dtype.numpy)
    return Stand(lay(values), dtype)


def poisoned(dtype: dtypes.dtype, *shape: int, lay=as_is) -> Stand:
    """A result to be: full of a wrong value, so that an element left unwritten shows."""
    return Stand(lay(np.full(shape, 0x4640 if dtype is dtypes.bfloat16 else 77, dtype.numpy)), dtype)


def assert_near(result: Stand, expected: np.ndarray) -> None:
    if result.dtype.kind in "iu":
        np.testing.assert_array_equal(result.array, expected)
        return
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(result.exact(), expected, rtol=0, atol=TOLERANCE[result.dtype.name] * scale)


@pytest.fixture
def backend(native: bool):
    previous = heavy.set_onednn_enabled(native)
    yield native
    heavy.set_onednn_enabled(previous)


# Memory orders: each function returns an equal array that lies differently.


def transposed(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)


def sliced(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array, array], axis=-1)[..., : array.shape[-1]]


def every_second(array: np.ndarray) -> np.ndarray:
    return np.repeat(array, 2, axis=-1)[..., ::2]


def first_axis_second(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.swapaxes(0, 1)).swapaxes(0, 1)


def channels_last(array: np.ndarray) -> np.ndarray:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


# --- matrix products ---

MATMUL_SHAPES = [
    ((5, 7), (7, 3)),
    ((1, 7), (7, 1)),
    ((1, 1), (1, 1)),
    ((64, 1), (1, 33)),
    ((1, 300), (300, 40)),
    ((300, 40), (40, 1)),
    ((1, 300), (300, 200)),
    ((300, 200), (200, 1)),
    ((2, 200, 300), (300, 1)),
    ((4, 5, 7), (7, 3)),
    ((4, 1, 7), (7, 3)),
    ((4, 5, 7), (4, 7, 3)),
    ((2, 1, 5, 7), (4, 7, 3)),
    ((5, 7), (2, 3, 7, 4)),
    ((1, 2, 5, 7), (3, 1, 7, 4)),
    ((2, 3, 4, 5, 7), (7, 2)),
    ((128, 96), (96, 130)),
]


def product(a: Stand, b: Stand) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.matmul(a.exact(), b.exact())


@both
@pytest.mark.parametrize("dtype", ALL_NUMERIC, ids=lambda d: d.name)
def test_matmul_of_every_dtype(backend, dtype):
    for a_shape, b_shape in MATMUL_SHAPES:
        a, b = random(dtype, *a_shape), random(dtype, *b_shape)
        dst = poisoned(dtype, *product(a, b).shape)
        heavy.matmul(dst, a, b)
        assert_near(dst, product(a, b))


@both
def test_integer_matmul_wraps_around(backend):
    a, b = random(dtypes.int8, 4, 50), random(dtypes.int8, 50, 4)
    dst = poisoned(dtypes.int8, 4, 4)
    heavy.matmul(dst, a, b)
    wide = a.array.astype(np.int64) @ b.array.astype(np.int64)
    assert np.abs(wide).max() > 127
    np.testing.assert_array_equal(dst.array, wide.astype(np.int8))


@both
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("batch", [(), (3,)], ids=["2d", "batched"])
def test_matmul_of_every_layout(backend, name, batch):
    dtype = dtypes.BY_NAME[name]
    orders = [as_is, transposed, sliced, every_second] + [first_axis_second] * bool(batch)
    for lay_a, lay_b, lay_c in itertools.product(orders, repeat=3):
        a, b = random(dtype, *batch, 6, 5, lay=lay_a), random(dtype, *batch, 5, 4, lay=lay_b)
        dst = poisoned(dtype, *batch, 6, 4, lay=lay_c)
        heavy.matmul(dst, a, b)
        assert_near(dst, product(a, b))
        bias = random(dtype, 4)
        heavy.matmul(dst, a, b, bias)
        assert_near(dst, product(a, b) + bias.exact())


@both
def test_matmul_of_expanded_operands(backend):
    row = np.random.default_rng(0).standard_normal((1, 5)).astype(np.float32)
    matrix = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    for left, right in [
        (np.broadcast_to(row, (6, 5)), matrix),
        (np.broadcast_to(row, (3, 6, 5)), matrix),
        (np.broadcast_to(row, (3, 1, 5)), np.broadcast_to(matrix, (3, 5, 4))),
        (np.lib.stride_tricks.sliding_window_view(np.arange(12.0, dtype=np.float32), 5), matrix),
    ]:
        a, b = Stand(left, dtypes.float32), Stand(right, dtypes.float32)
        dst = poisoned(dtypes.float32, *product(a, b).shape)
        heavy.matmul(dst, a, b)
        assert_near(dst, product(a, b))


@both
def test_matmul_of_empty_operands(backend):
    for dtype in (dtypes.float32, dtypes.bfloat16, dtypes.int64):
        for a_shape, b_shape in [((0, 5), (5, 3)), ((4, 0), (0, 3)), ((2, 4, 0), (0, 3)), ((0, 4, 2), (2, 3))]:
            a, b = random(dtype, *a_shape), random(dtype, *b_shape)
            dst = poisoned(dtype, *product(a, b).shape)
            heavy.matmul(dst, a, b)
            assert_near(dst, product(a, b))
    bias, dst = random(dtypes.float32, 3), poisoned(dtypes.float32, 4, 3)
    heavy.matmul(dst, random(dtypes.float32, 4, 0), random(dtypes.float32, 0, 3), bias)
    np.testing.assert_array_equal(dst.array, np.broadcast_to(bias.array, (4, 3)))


@both
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.float64, dtypes.int32], ids=lambda d: d.name)
def test_accumulate(backend, dtype):
    for lay in (as_is, transposed, every_second):
        for alpha, beta in [(1, 1), (2, 0), (3, -1)]:
            a, b, dst = random(dtype, 6, 5), random(dtype, 5, 4, lay=transposed), random(dtype, 6, 4, lay=lay)
            expected = beta * dst.exact() + alpha * product(a, b)
            heavy.accumulate(dst, a, b, alpha, beta)
            assert_near(dst, expected)


def test_accumulate_does_not_read_the_result_when_beta_is_zero():
    dst = Stand(np.full((3, 3), np.nan, np.float32), dtypes.float32)
    for native in (True, False):
        previous = heavy.set_onednn_enabled(native)
        dst.array[...] = np.nan
        heavy.accumulate(dst, random(dtypes.float32, 3, 2), random(dtypes.float32, 2, 3), 1, 0)
        heavy.set_onednn_enabled(previous)
        assert np.isfinite(dst.array).all()


@both
@pytest.mark.parametrize(
    ("dst", "a", "b", "bias"),
    [
        ((5, 3), (5, 7), (6, 3), None),
        ((5, 4), (5, 7), (7, 3), None),
        ((5,), (5, 7), (7,), None),
        ((2, 5, 3), (2, 5, 7), (3, 7, 3), None),
        ((5, 3), (5, 7), (7, 3), (4,)),
        ((5, 3), (5, 7), (7, 3), (1, 3)),
    ],
)
def test_matmul_refuses_wrong_shapes(backend, dst, a, b, bias):
    f32 = dtypes.float32
    with pytest.raises(RuntimeError, match="matmul: .*got"):
        heavy.matmul(poisoned(f32, *dst), random(f32, *a), random(f32, *b), bias and random(f32, *bias))


@both
def test_matmul_refuses_mixed_and_bool_dtypes(backend):
    with pytest.raises(RuntimeError, match="one dtype"):
        heavy.matmul(poisoned(dtypes.float32, 2, 2), random(dtypes.float64, 2, 2), random(dtypes.float32, 2, 2))
    flags = Stand(np.ones((2, 2), np.bool_), dtypes.bool_)
    with pytest.raises(RuntimeError, match="Bool"):
        heavy.matmul(flags, flags, flags)


# --- convolutions ---

# input, weight, stride, padding, dilation, groups
CONVOLUTIONS = [
    ((2, 3, 9), (4, 3, 3), 1, 1, 1, 1),
    ((2, 4, 11), (6, 2, 4), 2, 0, 2, 2),
    ((2, 3, 8, 7), (5, 3, 3, 3), 1, 1, 1, 1),
    ((2, 16, 8, 8), (32, 16, 3, 3), 1, 1, 1, 1),
    ((1, 17, 5, 6), (19, 17, 1, 1), 1, 0, 1, 1),
    ((2, 4, 9, 8), (8, 2, 3, 2), (2, 1), (1, 0), (1, 2), 2),
    ((2, 6, 7, 7), (6, 1, 3, 3), 1, 1, 1, 6),
    ((2, 3, 8, 8), (4, 3, 3, 3), 2, ((1, 0), (0, 2)), 1, 1),
    ((2, 3, 6, 6), (4, 3, 2, 2), 4, 0, 1, 1),
    ((1, 2, 5, 6, 5), (3, 2, 3, 2, 3), 1, 1, 1, 1),
    ((1, 4, 6, 5, 4), (4, 2, 2, 2, 2), (2, 1, 2), (0, 1, 1), (1, 2, 1), 2),
    ((3, 2, 1, 1), (4, 2, 1, 1), 1, 0, 1, 1),
]


class Reference:
    """The definition of a convolution: all (input, weight, output) elements that are multiplied."""

    def __init__(self, x_shape, w_shape, stride, padding, dilation, groups):
        dims = len(x_shape) - 2
        stride, dilation = (((v,) * dims if isinstance(v, int) else v) for v in (stride, dilation))
        pairs = [
            (p, p) if isinstance(p, int) else p for p in ((padding,) * dims if isinstance(padding, int) else padding)
        ]
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, w_shape[2:])]
        self.output = [(n + a + b - r) // s + 1 for n, (a, b), r, s in zip(x_shape[2:], pairs, reach, stride)]
        self.x_shape, self.w_shape, self.y_shape = x_shape, w_shape, (x_shape[0], w_shape[0], *self.output)
        grid = np.indices((x_shape[0], *w_shape, *self.output)).reshape(2 + len(w_shape) - 1 + dims, -1)
        n, o, c, kernel, position = grid[0], grid[1], grid[2], grid[3 : 3 + dims], grid[3 + dims :]
        at = [q * s + k * d - a for q, s, k, d, (a, _) in zip(position, stride, kernel, dilation, pairs)]
        inside = np.all([(i >= 0) & (i < size) for i, size in zip(at, x_shape[2:])], axis=0)
        channel = c + o // (w_shape[0] // groups) * w_shape[1]
        self.x_at = np.ravel_multi_index([i[inside] for i in (n, channel, *at)], x_shape)
        self.w_at = np.ravel_multi_index([i[inside] for i in (o, c, *kernel)], w_shape)
        self.y_at = np.ravel_multi_index([i[inside] for i in (n, o, *position)], self.y_shape)

    def _sum(self, shape, at, left, left_at, right, right_at) -> np.ndarray:
        result = np.zeros(int(np.prod(shape)), np.result_type(left, right))
        with np.errstate(over="ignore"):
            np.add.at(result, at, left.ravel()[left_at] * right.ravel()[right_at])
        return result.reshape(shape)

    def forward(self, x, w):
        return self._sum(self.y_shape, self.y_at, x, self.x_at, w, self.w_at)

    def backward_input(self, dy, w):
        return self._sum(self.x_shape, self.x_at, dy, self.y_at, w, self.w_at)

    def backward_weight(self, dy, x):
        return self._sum(self.w_shape, self.w_at, dy, self.y_at, x, self.x_at)


def across(bias: np.ndarray, dims: int) -> np.ndarray:
    return bias.reshape(-1, *[1] * dims)


def check_convolution(dtype, case, lay=as_is):
    x_shape, w_shape, *window = case
    reference, dims = Reference(*case), len(x_shape) - 2
    x, w, dy = (random(dtype, *shape, lay=lay) for shape in (x_shape, w_shape, reference.y_shape))
    bias = random(dtype, w_shape[0])
    y = poisoned(dtype, *reference.y_shape, lay=lay)
    heavy.conv_forward(y, x, w, None, *window)
    assert_near(y, reference.forward(x.exact(), w.exact()))
    heavy.conv_forward(y, x, w, bias, *window)
    assert_near(y, reference.forward(x.exact(), w.exact()) + across(bias.exact(), dims))

    expected_dx = reference.backward_input(dy.exact(), w.exact())
    expected_dw = reference.backward_weight(dy.exact(), x.exact())
    expected_db = dy.exact().sum(axis=(0, *range(2, dims + 2)), dtype=dy.exact().dtype)
    dx, dw, db = (
        poisoned(dtype, *shape, lay=lay_out)
        for shape, lay_out in ((x_shape, lay), (w_shape, lay), (w_shape[:1], as_is))
    )
    heavy.conv_backward_input(dx, dy, w, *window)
    assert_near(dx, expected_dx)
    heavy.conv_backward_weight(dw, None, dy, x, *window)
    assert_near(dw, expected_dw)
    dw.array[...] = 1
    heavy.conv_backward_weight(dw, db, dy, x, *window)
    assert_near(dw, expected_dw)
    assert_near(db, expected_db)
    for gradient in (dx, dw, db):
        gradient.array[...] = 1
    heavy.conv_backward(dx, dw, db, dy, x, w, *window)
    for gradient, expected in ((dx, expected_dx), (dw, expected_dw), (db, expected_db)):
        assert_near(gradient, expected)


@both
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("lay", [as_is, channels_last, sliced, every_second], ids=lambda lay: lay.__name__)
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_convolution_of_every_layout(backend, case, lay, name):
    check_convolution(dtypes.BY_NAME[name], case, lay)


@both
@pytest.mark.parametrize("dtype", ALL_NUMERIC, ids=lambda d: d.name)
@pytest.mark.parametrize("case", [CONVOLUTIONS[1], CONVOLUTIONS[5]], ids=str)
def test_convolution_of_every_dtype(backend, dtype, case):
    check_convolution(dtype, case)


@both
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("lay", [as_is, channels_last], ids=lambda lay: lay.__name__)
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "stride", "padding", "output_padding", "dilation", "groups"),
    [
        ((2, 4, 5), (4, 3, 3), 2, 1, 1, 1, 1),
        ((2, 4, 5), (4, 3, 4), 1, 0, 1, 2, 2),  # output padding of a whole stride
        ((2, 4, 5, 6), (4, 3, 3, 2), (2, 1), (1, 0), (1, 0), 1, 1),
        ((2, 4, 5, 6), (4, 3, 3, 3), 2, 1, 0, 2, 2),
        ((2, 4, 5, 6), (4, 1, 3, 3), 3, 1, 2, 1, 4),
        ((1, 2, 3, 4, 3), (2, 3, 2, 3, 2), 2, 1, 1, 1, 1),
    ],
    ids=str,
)
def test_transposed_convolution(
    backend, name, lay, x_shape, w_shape, stride, padding, output_padding, dilation, groups
):
    dtype, dims = dtypes.BY_NAME[name], len(x_shape) - 2
    window = (stride, heavy.transposed_padding(dims, padding, output_padding), dilation, groups)
    sizes = [(v,) * dims if isinstance(v, int) else v for v in (stride, padding, output_padding, dilation)]
    spatial = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1 + extra
        for n, k, s, p, extra, d in zip(x_shape[2:], w_shape[2:], *sizes, strict=True)
    ]
    y_shape = (x_shape[0], w_shape[1] * groups, *spatial)
    reference = Reference(y_shape, w_shape, *window)
    assert reference.y_shape == x_shape
    x, w, y = random(dtype, *x_shape, lay=lay), random(dtype, *w_shape), poisoned(dtype, *y_shape, lay=lay)
    heavy.conv_backward(y, None, None, x, None, w, *window)
    assert_near(y, reference.backward_input(x.exact(), w.exact()))
    dy, dx, dw = random(dtype, *y_shape, lay=lay), poisoned(dtype, *x_shape, lay=lay), poisoned(dtype, *w_shape)
    heavy.conv_forward(dx, dy, w, None, *window)
    assert_near(dx, reference.forward(dy.exact(), w.exact()))
    heavy.conv_backward_weight(dw, None, x, dy, *window)
    assert_near(dw, reference.backward_weight(x.exact(), dy.exact()))


@both
def test_convolution_of_an_expanded_input_and_gradient(backend):
    f32, window = dtypes.float32, (1, 1, 1, 1)
    x = Stand(np.broadcast_to(random(f32, 1, 3, 1, 6).array, (2, 3, 5, 6)), f32)
    w, reference = random(f32, 4, 3, 3, 3), Reference((2, 3, 5, 6), (4, 3, 3, 3), *window)
    y, dx, dw = (poisoned(f32, *shape) for shape in (reference.y_shape, x.shape, w.shape))
    heavy.conv_forward(y, x, w, None, *window)
    assert_near(y, reference.forward(x.exact(), w.exact()))
    dy = Stand(np.broadcast_to(np.float32(0.5), y.shape), f32)  # what the gradient of a sum looks like
    heavy.conv_backward(dx, dw, None, dy, x, w, *window)
    assert_near(dx, reference.backward_input(dy.exact(), w.exact()))
    assert_near(dw, reference.backward_weight(dy.exact(), x.exact()))


@both
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int64], ids=lambda d: d.name)
def test_convolution_of_empty_operands(backend, dtype):
    bias = random(dtype, 4)
    for x_shape, w_shape in [((0, 3, 5, 5), (4, 3, 3, 3)), ((2, 0, 5, 5), (4, 0, 3, 3))]:
        x, w = random(dtype, *x_shape), random(dtype, *w_shape)
        y_shape = (x_shape[0], 4, 3, 3)
        y, dx, dw, db = (poisoned(dtype, *shape) for shape in (y_shape, x_shape, w_shape, (4,)))
        heavy.conv_forward(y, x, w, bias, 1, 0, 1, 1)
        assert_near(y, np.broadcast_to(across(bias.exact(), 2), y_shape))
        dy = random(dtype, *y_shape)
        heavy.conv_backward(dx, dw, db, dy, x, w, 1, 0, 1, 1)
        assert_near(dx, np.zeros(x_shape))
        assert_near(dw, np.zeros(w_shape))
        assert_near(db, dy.exact().sum(axis=(0, 2, 3)))


@both
@pytest.mark.parametrize(
    ("x", "w", "y", "bias", "window"),
    [
        ((2, 3, 8, 8), (4, 2, 3, 3), (2, 4, 6, 6), None, (1, 0, 1, 1)),  # channels
        ((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 8, 8), None, (1, 0, 1, 1)),  # output size
        ((2, 3, 8, 8), (4, 3, 3, 3), (1, 4, 6, 6), None, (1, 0, 1, 1)),  # batch
        ((2, 4, 8, 8), (3, 2, 3, 3), (2, 3, 6, 6), None, (1, 0, 1, 2)),  # groups
        ((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6), (3,), (1, 0, 1, 1)),  # bias
        ((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6), None, (0, 0, 1, 1)),  # stride
        ((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6), None, (1, -1, 1, 1)),  # padding
        ((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6), None, (1, 0, 0, 1)),  # dilation
        ((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6), None, ((1, 1, 1), 0, 1, 1)),  # too many strides
        ((2, 3, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6), None, (1, 0, 1, 0)),  # no groups
        ((2, 3, 8, 8), (4, 3, 3), (2, 4, 6, 6), None, (1, 0, 1, 1)),  # ranks
        ((2, 3), (4, 3), (2, 4), None, (1, 0, 1, 1)),  # nothing spatial
        ((2, 3, 8, 8), (4, 3, 0, 3), (2, 4, 9, 6), None, (1, 0, 1, 1)),  # empty kernel
    ],
)
def test_convolution_refuses_inconsistent_arguments(backend, x, w, y, bias, window):
    f32 = dtypes.float32
    x, w, y, bias = (shape and random(f32, *shape) for shape in (x, w, y, bias))
    with pytest.raises(RuntimeError, match="convolution"):
        heavy.conv_forward(y, x, w, bias, *window)
    if bias is None:
        with pytest.raises(RuntimeError, match="convolution"):
            heavy.conv_backward(x, w, None, y, x, w, *window)


@both
def test_convolution_backward_says_what_it_needs(backend):
    f32 = dtypes.float32
    x, w, y = random(f32, 2, 3, 8, 8), random(f32, 4, 3, 3, 3), random(f32, 2, 4, 6, 6)
    for arguments in ((x, None, None, y, x, None), (None, w, None, y, None, w), (None, None, None, y, None, None)):
        with pytest.raises(RuntimeError, match="convolution backward"):
            heavy.conv_backward(*arguments, 1, 0, 1, 1)


# --- oneDNN itself ---


@needs_onednn
def test_version_is_3():
    assert onednn.version()[0] == 3


@needs_onednn
def test_transposed_and_sliced_matrices_need_no_copy():
    f32 = dtypes.float32
    for lay_a, lay_b, lay_c in itertools.product([as_is, transposed, sliced], repeat=3):
        a, b, dst = random(f32, 6, 5, lay=lay_a), random(f32, 5, 4, lay=lay_b), poisoned(f32, 6, 4, lay=lay_c)
        assert onednn.supports(dst, a, b)
    assert not onednn.supports(dst, random(f32, 6, 5, lay=every_second), b)
    with pytest.raises(RuntimeError, match="no matmul"):
        onednn.matmul(dst, random(f32, 6, 5, lay=every_second), b)


@both
@pytest.mark.parametrize("lay", [as_is, transposed, sliced, every_second], ids=lambda f: f.__name__)
@pytest.mark.parametrize("rows", [1, 2, 20, 300])
def test_a_matrix_that_is_packed_for_several_products(backend, lay, rows):
    f32 = dtypes.float32
    a, b, bias, dst = random(f32, rows, 100), random(f32, 100, 70, lay=lay), random(f32, 70), poisoned(f32, rows, 70)
    packed = heavy.packed(b, rows, 10)
    assert (packed is b) == (not backend or not 1 < rows < 300 or lay is every_second)
    assert heavy.packed(b, rows, 1) is b
    for row in (None, bias):
        heavy.matmul(dst, a, packed, row)
        assert_near(dst, a.exact() @ b.exact() + (0 if row is None else row.exact()))


@needs_onednn
def test_matmul_may_not_write_an_element_twice():
    dst = Stand(np.broadcast_to(np.zeros((1, 4), np.float32), (6, 4)), dtypes.float32)
    with pytest.raises(RuntimeError, match="overlap"):
        onednn.matmul(dst, random(dtypes.float32, 6, 5), random(dtypes.float32, 5, 4))


@needs_onednn
def test_plans_are_reused_and_bounded():
    cache = onednn_plan.PlanCache(8 * onednn_plan.KEY_SIZE)
    made = []
    for key in [1, 2, 1, 3, 4, 5, 1, *range(6, 30)]:
        if key not in cache.young:
            cache.find(key, lambda key=key: made.append(key))
        assert len(cache.young) + len(cache.old) <= 8
    assert made.count(1) == 1 and made[-1] == 29
    f32 = dtypes.float32
    a, b, dst = random(f32, 11, 12), random(f32, 12, 13), poisoned(f32, 11, 13)
    onednn.reset()
    for result in (dst, poisoned(f32, 11, 13)):
        onednn.matmul(result, a, b)
        assert len(gemm._plans.cache.young) == 1
    onednn.reset()
    assert not gemm._plans.cache.young


@needs_onednn
def test_changing_the_number_of_threads_drops_plans():
    f32, count = dtypes.float32, threads.get_num_threads()
    onednn.matmul(poisoned(f32, 4, 4), random(f32, 4, 4), random(f32, 4, 4))
    try:
        threads.set_num_threads(count + 1)
        assert not gemm._plans.cache.young
    finally:
        threads.set_num_threads(count)


def test_a_missing_library_is_reported_and_not_needed(monkeypatch):
    monkeypatch.setattr(library, "_loaded", None)
    monkeypatch.setattr(library, "_problems", None)
    monkeypatch.setattr(library, "_candidates", lambda: iter(["/nowhere/libdnnl.so.3"]))
    assert not onednn.available()
    with pytest.raises(RuntimeError, match="oneDNN 3.x is not available.*/nowhere"):
        onednn.version()
    previous = heavy.set_onednn_enabled(True)
    try:
        assert not heavy.onednn_enabled()
        a, b, dst = random(dtypes.float32, 3, 4), random(dtypes.float32, 4, 5), poisoned(dtypes.float32, 3, 5)
        heavy.matmul(dst, a, b)
        assert_near(dst, product(a, b))
    finally:
        heavy.set_onednn_enabled(previous)


@needs_onednn
def test_scratch_space_of_one_plan_may_be_anothers():
    """A plan must not rely on what it left in the shared scratch buffer."""
    f32, window = dtypes.float32, (1, 1, 1, 1)
    cases = [((2, 3, 9, 9), (5, 3, 3, 3)), ((4, 20, 9, 9), (24, 20, 3, 3)), ((2, 3, 9, 9), (5, 3, 3, 3))]
    for x_shape, w_shape in cases:
        x, w, y = random(f32, *x_shape), random(f32, *w_shape), poisoned(f32, x_shape[0], w_shape[0], 9, 9)
        onednn_plan._workspace.buffer.fill(0xFF)  # NaN
        assert onednn.try_conv_forward(y, x, w, None, *window)
        assert_near(y, Reference(x_shape, w_shape, *window).forward(x.exact(), w.exact()))


@needs_onednn
def test_threads_do_not_disturb_each_other():
    f32, failures = dtypes.float32, []

    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for _ in range(20):
            a = Stand(generator.standard_normal((40, 30)).astype(np.float32), f32)
            b = Stand(generator.standard_normal((30, 20)).astype(np.float32), f32)
            x = Stand(generator.standard_normal((2, 5, 8, 8)).astype(np.float32), f32)
            w = Stand(generator.standard_normal((6, 5, 3, 3)).astype(np.float32), f32)
            dst, y, again = poisoned(f32, 40, 20), poisoned(f32, 2, 6, 6, 6), poisoned(f32, 2, 6, 6, 6)
            onednn.matmul(dst, a, b)
            onednn.try_conv_forward(y, x, w, None, 1, 0, 1, 1)
            blas.conv_forward(again, x, w, None, 1, 0, 1, 1)
            if not (
                np.allclose(dst.array, a.array @ b.array, atol=1e-4) and np.allclose(y.array, again.array, atol=1e-4)
            ):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@needs_onednn
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_makes_its_own_plans():
    f32 = dtypes.float32
    a, b, dst = random(f32, 8, 8), random(f32, 8, 8), poisoned(f32, 8, 8)
    onednn.matmul(dst, a, b)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if not gemm._plans.cache.young else 1
        finally:
            os._exit(status)  # never back into pytest
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_switching_onednn_off():
    previous = heavy.set_onednn_enabled(False)
    try:
        assert not heavy.onednn_enabled()
        assert heavy.set_onednn_enabled(True) is False
        assert heavy.onednn_enabled() == onednn.available()
    finally:
        heavy.set_onednn_enabled(previous)


def test_bfloat16_rounding_is_to_nearest_even():
    values = np.array([1.0, 1.00390625, 1.01171875, -1.00390625, 3.4e38, np.inf, -np.inf, np.nan], np.float32)
    expected = [0x3F80, 0x3F80, 0x3F82, 0xBF80, 0x7F80, 0x7F80, 0xFF80, 0x7FC0]
    assert float32_to_bits(values).tolist() == expected


# --- PyTorch ---


@both
@pytest.mark.parametrize("transposed_op", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("lay", [as_is, channels_last], ids=lambda lay: lay.__name__)
def test_same_as_pytorch(backend, transposed_op, lay):
    torch = pytest.importorskip("torch", reason="compares with PyTorch")
    f32, window = dtypes.float32, ((2, 1), (1, 2), (1, 2), 2)
    extra = (1, 0) if transposed_op else (0, 0)
    x = random(f32, 3, 8, 12, 13, lay=lay)
    w = random(f32, 8, 6, 3, 3) if transposed_op else random(f32, 12, 4, 3, 3)
    bias = random(f32, 12)
    tx, tw, tb = (torch.from_numpy(np.array(t.array)) for t in (x, w, bias))
    stride, padding, dilation, groups = window
    expected = torch.ops.aten.convolution(
        tx, tw, None if transposed_op else tb, stride, padding, dilation, transposed_op, extra, groups
    )
    y, dy = poisoned(f32, *expected.shape, lay=lay), random(f32, *expected.shape, lay=lay)
    gradients = torch.ops.aten.convolution_backward(
        torch.from_numpy(np.array(dy.array)),
        tx,
        tw,
        [12],
        stride,
        padding,
        dilation,
        transposed_op,
        extra,
        groups,
        [True] * 3,
    )
    dx, dw, db = (poisoned(f32, *gradient.shape) for gradient in gradients)
    if transposed_op:
        inner = (stride, heavy.transposed_padding(2, padding, extra), dilation, groups)
        heavy.conv_backward(y, None, None, x, None, w, *inner)
        heavy.conv_forward(dx, dy, w, None, *inner)
        heavy.conv_backward_weight(dw, None, x, dy, *inner)
    else:
        heavy.conv_forward(y, x, w, bias, *window)
        heavy.conv_backward(dx, dw, db, dy, x, w, *window)
        assert_near(db, gradients[2].numpy())
    assert_near(y, expected.numpy())
    assert_near(dx, gradients[0].numpy())
    assert_near(dw, gradients[1].numpy())
