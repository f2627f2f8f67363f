"""Operators of quantized tensors beside the real PyTorch's x86 engine: the same codes, bit for bit."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau

torch = judge("torch")
if "x86" not in torch.backends.quantized.supported_engines:
    pytest.skip("the real PyTorch has no x86 engine here", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore")

LIBRARIES = (torch, flambeau)


def given(lib: Any, array: np.ndarray) -> Any:
    return lib.from_numpy(array.copy())


def codes(rng: np.random.Generator, shape: tuple, kind: str = "quint8") -> np.ndarray:
    low, high, held = (0, 256, np.uint8) if kind == "quint8" else (-128, 128, np.int8)
    return rng.integers(low, high, shape).astype(held)


def numbers(t: Any) -> list:
    """Everything a result says, as NumPy's."""
    if not t.is_quantized:
        return [t.detach().numpy()]
    return [t.int_repr().numpy(), np.array([t.q_scale(), t.q_zero_point()]), np.array(t.shape)]


def assert_same(results: list) -> None:
    theirs, ours = results
    for a, b in zip(numbers(theirs), numbers(ours), strict=True):
        np.testing.assert_array_equal(a, b)


# -- values to codes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["quint8", "qint8", "qint32"])
@pytest.mark.parametrize("size", [7, 1000])
def test_quantizing_near_ties(kind, size):
    rng = np.random.default_rng(size)
    for _ in range(20):
        scale, zero = float(rng.uniform(0.01, 0.3)), int(rng.integers(0, 100))
        x = ((rng.integers(-128, 256, size) + 0.5) * np.float32(scale)).astype(np.float32)
        x = np.nextafter(x, np.float32(rng.choice([-1e3, 1e3])))
        made = [lib.quantize_per_tensor(given(lib, x), scale, zero, getattr(lib, kind)) for lib in LIBRARIES]
        assert_same(made)
        assert_same([q.dequantize() for q in made])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["quint8", "qint8", "qint32"])
def test_quantizing_channels(kind, axis):
    rng = np.random.default_rng(axis)
    x = rng.normal(size=(5, 6)).astype(np.float32)
    scales, zeros = rng.uniform(0.01, 0.3, x.shape[axis]), rng.integers(0, 9, x.shape[axis])
    made = [
        lib.quantize_per_channel(given(lib, x), given(lib, scales), given(lib, zeros), axis, getattr(lib, kind))
        for lib in LIBRARIES
    ]
    np.testing.assert_array_equal(*[q.int_repr().numpy() for q in made])
    np.testing.assert_array_equal(*[q.dequantize().numpy() for q in made])
    assert repr(made[0]) == repr(made[1])


@pytest.mark.parametrize(
    "low, high",
    [(-3.0, 5.0), (0.0, 5.0), (-3.0, 0.0), (0.0, 0.0), (1.0, 2.0), (-1e-7, 1e-6), (0.0, 1e-42), (0.0, 5e-37)],
)
@pytest.mark.parametrize("reduce_range", [False, True])
def test_dynamic_scales(low, high, reduce_range):
    x = np.linspace(low, high, 50).astype(np.float32)
    for kind in ("quint8", "qint8"):
        assert_same(
            [lib.quantize_per_tensor_dynamic(given(lib, x), getattr(lib, kind), reduce_range) for lib in LIBRARIES]
        )


# -- codes to codes -----------------------------------------------------------------------------------------------------------

Q = Callable[[Any, Any, Any], Any]  # (library, a, b) -> result
WEIGHT = np.linspace(0.5, 1.5, 6).astype(np.float32)


def norm(name: str) -> Q:
    def run(lib: Any, a: Any, b: Any) -> Any:
        parts = [given(lib, WEIGHT), given(lib, WEIGHT - 1), given(lib, WEIGHT - 1), given(lib, WEIGHT)]
        return getattr(lib.ops.quantized, name)(a.view(-1, 6, 3, 2), *parts, 1e-5, 0.04, 11)

    return run


ELEMENTWISE: dict[str, Q] = {
    "add": lambda lib, a, b: lib.ops.quantized.add(a, b, 0.09, 7),
    "add_relu": lambda lib, a, b: lib.ops.quantized.add_relu(a, b, 0.09, 7),
    "mul": lambda lib, a, b: lib.ops.quantized.mul(a, b, 0.09, 7),
    "mul_relu": lambda lib, a, b: lib.ops.quantized.mul_relu(a, b, 0.09, 7),
    "add_scalar": lambda lib, a, b: lib.ops.quantized.add_scalar(a, 2.3),
    "add_scalar far": lambda lib, a, b: lib.ops.quantized.add_scalar(a, -20.0),
    "mul_scalar": lambda lib, a, b: lib.ops.quantized.mul_scalar(a, -2.3),
    "cat": lambda lib, a, b: lib.ops.quantized.cat([a, b], 0, 0.09, 7),
    "cat_relu": lambda lib, a, b: lib.ops.quantized.cat_relu([a, b], 0, None, None),
    "relu": lambda lib, a, b: lib.relu(a),
    "relu6": lambda lib, a, b: lib.ops.quantized.relu6(a),
    "clamp": lambda lib, a, b: lib.clamp(a, -1.0, 1.2),
    "leaky_relu": lambda lib, a, b: lib.ops.quantized.leaky_relu(a, 0.13, False, 0.09, 7),
    "leaky_relu, same scale": lambda lib, a, b: lib.nn.functional.leaky_relu(a, 0.13),
    "sigmoid": lambda lib, a, b: lib.sigmoid(a),
    "tanh": lambda lib, a, b: lib.tanh(a),
    "hardsigmoid": lambda lib, a, b: lib.nn.functional.hardsigmoid(a),
    "hardtanh": lambda lib, a, b: lib.nn.functional.hardtanh(a, -0.7, 1.1),
    "elu": lambda lib, a, b: lib.ops.quantized.elu(a, 0.09, 7, 1.7),
    "celu": lambda lib, a, b: lib.ops.quantized.celu(a, 0.09, 7, 1.7),
    "threshold": lambda lib, a, b: lib.ops.quantized.threshold(a, 0.3, -0.2),
    "softmax": lambda lib, a, b: lib.ops.quantized.softmax(a, 0, 1 / 256, 0),
    "batch_norm": norm("batch_norm2d"),
    "batch_norm_relu": norm("batch_norm2d_relu"),
    "layer_norm": lambda lib, a, b: lib.ops.quantized.layer_norm(a.view(-1, 6), [6], given(lib, WEIGHT), None, 1e-5, 0.04, 11),
    "group_norm": lambda lib, a, b: lib.ops.quantized.group_norm(a.view(-1, 6, 6), 3, given(lib, WEIGHT), None, 1e-5, 0.04, 11),
    "max_pool2d": lambda lib, a, b: lib.nn.functional.max_pool2d(a.view(-1, 6, 6), 3, 2, 1),
    "avg_pool2d": lambda lib, a, b: lib.nn.functional.avg_pool2d(a.view(-1, 1, 6, 6), 2, 2, 1, count_include_pad=False),
    "adaptive_avg_pool2d": lambda lib, a, b: lib.nn.functional.adaptive_avg_pool2d(a.view(-1, 1, 6, 6), (4, 3)),
    "adaptive_avg_pool2d to one": lambda lib, a, b: lib.nn.functional.adaptive_avg_pool2d(a.view(-1, 9, 2, 2), 1),
    "interpolate nearest": lambda lib, a, b: lib.nn.functional.interpolate(a.view(-1, 1, 6, 6), scale_factor=2),
    "interpolate": lambda lib, a, b: lib.nn.functional.interpolate(a.view(-1, 1, 6, 6), size=(9, 11), mode="bilinear", align_corners=True),
    "pad": lambda lib, a, b: lib.nn.functional.pad(a.view(-1, 1, 6, 6), (1, 2), value=0.5),
    "reflect": lambda lib, a, b: lib.nn.functional.pad(a.view(-1, 6, 6), (1, 2), mode="reflect"),
    "topk": lambda lib, a, b: lib.topk(a, 5)[0],
}  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("kind", ["quint8", "qint8"])
def test_codes_are_the_same(name, kind):
    rng = np.random.default_rng(len(name))
    for size in (36, 360):  # fewer than the vector code takes at a time, and more with a rest
        for scales in ((0.05, 0.07), (0.045, 0.045)):  # the latter makes ties of sums
            zeros = [int(z) for z in rng.integers(0, 100, 2)]
            pair = [codes(rng, (size,), kind) for _ in range(2)]
            results = []
            for lib in LIBRARIES:
                a, b = (
                    lib._make_per_tensor_quantized_tensor(given(lib, c), s, z) for c, s, z in zip(pair, scales, zeros)
                )
                results.append(ELEMENTWISE[name](lib, a, b))
            assert_same(results)


# -- products -----------------------------------------------------------------------------------------------------------------


def quantized_weight(lib: Any, w: np.ndarray, per_channel: bool, zero: int) -> Any:
    if not per_channel:
        return lib.quantize_per_tensor(given(lib, w), 0.023, zero, lib.qint8)
    scales = np.linspace(0.01, 0.04, w.shape[0])
    zeros = np.full(w.shape[0], zero)
    return lib.quantize_per_channel(given(lib, w), given(lib, scales), given(lib, zeros), 0, lib.qint8)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("sizes", [(1, 8, 8), (7, 33, 65)])
def test_linear(per_channel, bias, zero, sizes):
    rows, inputs, outputs = sizes
    rng = np.random.default_rng(rows)
    x, w, b = (rng.normal(size=s).astype(np.float32) for s in ((2, rows, inputs), (outputs, inputs), (outputs,)))
    results = []
    for lib in LIBRARIES:
        q = lib.ops.quantized
        packed = q.linear_prepack(quantized_weight(lib, w, per_channel, zero), given(lib, b) if bias else None)
        qx = lib.quantize_per_tensor(given(lib, x), 0.037, 101, lib.quint8)
        results.append([
            q.linear(qx, packed, 0.3, 120), q.linear_relu(qx, packed, 0.3, 120), q.linear_dynamic(given(lib, x), packed, True),
            q.linear_relu_dynamic(given(lib, x), packed),
        ])  # fmt: skip
    for pair in zip(*results):
        assert_same(list(pair))


CONVOLUTIONS = [  # dimensions, channels in and out, groups, stride, padding, dilation, weights by channel, their zero point
    (2, 16, 32, 1, 1, 1, 1, True, 0),
    (2, 16, 32, 4, 2, 1, 1, False, 0),
    (2, 16, 16, 16, 1, 1, 1, True, 0),
    (2, 3, 8, 1, 1, 0, 2, True, 0),
    (2, 8, 8, 1, 1, 1, 1, True, 3),
    (1, 16, 8, 1, 1, 1, 1, True, 0),
    (3, 4, 8, 1, 1, 1, 1, True, 0),
]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(case, relu):
    dims, inputs, outputs, groups, stride, padding, dilation, per_channel, zero = case
    rng = np.random.default_rng(dims)
    x = rng.normal(size=(2, inputs, *[7] * dims)).astype(np.float32)
    w = rng.normal(size=(outputs, inputs // groups, *[3] * dims)).astype(np.float32)
    b = rng.normal(size=outputs).astype(np.float32)
    results = []
    for lib in LIBRARIES:
        window = ([stride] * dims, [padding] * dims, [dilation] * dims, groups)
        q = lib.ops.quantized
        packed = getattr(q, f"conv{dims}d_prepack")(quantized_weight(lib, w, per_channel, zero), given(lib, b), *window)
        qx = lib.quantize_per_tensor(given(lib, x), 0.03, 112, lib.quint8)
        results.append(getattr(q, f"conv{dims}d" + "_relu" * relu)(qx, packed, 0.31, 117))
    assert results[0].stride() == results[1].stride()
    assert_same(results)


def near_ties(rng: np.random.Generator, lib: Any, shape: tuple, weight: tuple, per_channel: bool, bias: bool) -> tuple:
    """A quantized input, weights, a bias and a scale of the result with which many sums lie next to the middle of two codes: where
    every step rounds matters."""
    outputs = weight[0]
    wobble = 1 + rng.integers(-3, 4, (2, outputs)) * 2.0**-24
    s, out_scale = (float(np.float32(rng.uniform(*r))) for r in ((0.01, 0.05), (0.02, 0.4)))
    scales = out_scale / s / 2.0 ** rng.integers(4, 12, outputs) * wobble[0]
    b = (rng.integers(-800, 800, outputs) * out_scale / 16 * wobble[1]).astype(np.float32)
    w = rng.integers(-20, 21, weight).astype(np.int8)
    x = lib._make_per_tensor_quantized_tensor(given(lib, codes(rng, shape)), s, 57)
    if per_channel:
        zeros = lib.zeros(outputs, dtype=lib.int64)
        qw = lib._make_per_channel_quantized_tensor(given(lib, w), given(lib, scales), zeros, 0)
    else:
        qw = lib._make_per_tensor_quantized_tensor(given(lib, w), float(scales[0]), 0)
    return x, qw, given(lib, b) if bias else None, out_scale


NEAR_TIES = [  # dimensions, channels in and out, groups, window, stride
    (2, 16, 32, 1, 1, 1),
    (2, 3, 16, 1, 3, 2),
    (2, 16, 16, 2, 3, 1),
    (2, 16, 16, 16, 3, 1),  # a kernel of its own, in oneDNN's steps
    (2, 104, 104, 104, 3, 2),  # and in FBGEMM's, which PyTorch takes for more than 100 groups
    (2, 104, 208, 104, 3, 1),
    (1, 16, 16, 1, 3, 1),
    (3, 4, 8, 1, 3, 1),
]


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("case", NEAR_TIES)
def test_convolutions_round_where_pytorch_does(case, per_channel):
    dims, inputs, outputs, groups, kernel, stride = case
    for seed, (bias, relu) in enumerate([(True, False), (True, True), (False, True)]):
        results = []
        for lib in LIBRARIES:
            shapes = (2, inputs, *[9] * dims), (outputs, inputs // groups, *[kernel] * dims)
            x, w, b, scale = near_ties(np.random.default_rng(seed), lib, *shapes, per_channel, bias)
            window = ([stride] * dims, [1] * dims, [1] * dims, groups)
            packed = getattr(lib.ops.quantized, f"conv{dims}d_prepack")(w, b, *window)
            results.append(getattr(lib.ops.quantized, f"conv{dims}d" + "_relu" * relu)(x, packed, scale, 99))
        assert_same(results)


@pytest.mark.parametrize("per_channel", [False, True])
def test_linear_rounds_where_pytorch_does(per_channel):
    for seed in range(8):
        results = []
        for lib in LIBRARIES:
            x, w, b, scale = near_ties(np.random.default_rng(seed), lib, (64, 64), (100, 64), per_channel, True)
            results.append(lib.ops.quantized.linear(x, lib.ops.quantized.linear_prepack(w, b), scale, 99))
        assert_same(results)


def test_hardswish_rounds_where_pytorch_does():
    rng = np.random.default_rng(0)
    for step in range(60):
        scale, zero = float(rng.uniform(0.01, 0.2)), int(rng.integers(0, 256))
        every = np.arange(320).astype(np.uint8)
        xs = [lib._make_per_tensor_quantized_tensor(given(lib, every), scale, zero) for lib in LIBRARIES]
        assert_same([lib.ops.quantized.hardswish(x, scale * 2.0 ** (step % 3), 7) for lib, x in zip(LIBRARIES, xs)])


def test_a_transposed_convolution_is_what_its_values_say():
    """PyTorch's x86 engine gives something else here."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(np.float32) for s in ((1, 16, 5, 5), (16, 8, 3, 3)))
    qx = flambeau.quantize_per_tensor(given(flambeau, x), 0.03, 112, flambeau.quint8)
    qw = flambeau.quantize_per_tensor(given(flambeau, w), 0.023, 0, flambeau.qint8)
    packed = flambeau.ops.quantized.conv_transpose2d_prepack(qw, None, [2, 2], [1, 1], [0, 0], [1, 1], 1)
    got = flambeau.ops.quantized.conv_transpose2d(qx, packed, 0.5, 117).dequantize()
    values = (torch.from_numpy(t.dequantize().numpy()) for t in (qx, qw))
    want = torch.nn.functional.conv_transpose2d(*values, stride=2, padding=1).numpy()
    assert np.abs(got.numpy() - want).max() <= 0.2501


# -- files --------------------------------------------------------------------------------------------------------------------


def test_files_both_ways():
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    scales, zeros = np.array([0.1, 0.2, 0.3]), np.array([0, 1, 2])
    for writer, reader in (LIBRARIES, LIBRARIES[::-1]):
        made = {
            "tensor": writer.quantize_per_tensor(given(writer, x), 0.1, 3, writer.quint8),
            "channel": writer.quantize_per_channel(
                given(writer, x), given(writer, scales), given(writer, zeros), 0, writer.qint8
            ),
            "wide": writer.quantize_per_tensor(given(writer, x), 0.1, 3, writer.qint32)[1:],
            "kind": writer.quint8,
            "scheme": writer.per_tensor_symmetric,
        }
        for zipped in (True, False):
            file = io.BytesIO()
            writer.save(made, file, _use_new_zipfile_serialization=zipped)
            file.seek(0)
            found = reader.load(file, weights_only=True)
            for name in ("tensor", "channel", "wide"):
                assert repr(found[name]) == repr(made[name])
            assert found["kind"] is reader.quint8 and found["scheme"] is reader.per_tensor_symmetric


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_and_their_files(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        float_layer = getattr(torch.nn, kind)(6, 8, 2, bidirectional=True)
        theirs = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(float_layer))[0]
    file = io.BytesIO()
    torch.save(theirs.state_dict(), file)
    file.seek(0)
    ours = getattr(flambeau.ao.nn.quantized.dynamic, kind)(6, 8, 2, bidirectional=True)
    ours.load_state_dict(flambeau.load(file, weights_only=False))
    x = np.random.default_rng(0).normal(size=(5, 3, 6)).astype(np.float32)
    want, got = theirs(given(torch, x))[0].detach().numpy(), ours(given(flambeau, x))[0].numpy()
    np.testing.assert_allclose(got, want, atol=1e-6)
    back = io.BytesIO()
    flambeau.save(ours.state_dict(), back)
    back.seek(0)
    theirs.load_state_dict(torch.load(back, weights_only=False))
    np.testing.assert_array_equal(theirs(given(torch, x))[0].detach().numpy(), want)


def test_layers_print_and_load_as_theirs():
    made = []
    for lib in LIBRARIES:
        nnq = lib.ao.nn.quantized
        layers = lib.nn.Sequential(
            nnq.Quantize(0.1, 3, lib.quint8),
            nnq.Conv2d(3, 4, 3, padding=1),
            nnq.ReLU6(),
            nnq.Linear(5, 6),
            nnq.DeQuantize(),
        )
        made.append(layers)
    theirs, ours = made
    assert repr(theirs) == repr(ours) and list(theirs.state_dict()) == list(ours.state_dict())
    file = io.BytesIO()
    torch.save(theirs.state_dict(), file)
    file.seek(0)
    ours.load_state_dict(flambeau.load(file, weights_only=True))
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 5)).astype(np.float32)
    assert_same([theirs(given(torch, x)), ours(given(flambeau, x))])


def test_embedding_tables():
    w = np.random.default_rng(0).normal(size=(10, 8)).astype(np.float32)
    packed = [lib.ops.quantized.embedding_bag_byte_prepack(given(lib, w)) for lib in LIBRARIES]
    assert_same(packed)
    assert_same([lib.ops.quantized.embedding_bag_byte_unpack(p) for lib, p in zip(LIBRARIES, packed)])
    sums = [
        lib.ops.quantized.embedding_bag_byte_rowwise_offsets(p, lib.tensor([1, 3, 5, 2]), lib.tensor([0, 2]))
        for lib, p in zip(LIBRARIES, packed)
    ]
    np.testing.assert_allclose(sums[0].numpy(), sums[1].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(4,), (3, 4, 5)])
@pytest.mark.parametrize("dim", [(), None, (-1,), (0,)])
def test_averages(shape, dim):
    """No dimensions at all are all of them."""
    array = codes(np.random.default_rng(3), shape)
    made = [lib._make_per_tensor_quantized_tensor(given(lib, array), 0.25, 2) for lib in LIBRARIES]
    assert_same([lib.mean(x, dim) for lib, x in zip(LIBRARIES, made, strict=True)])


@pytest.mark.parametrize("code", [2**31 - 1, 2**24 + 1, -(2**31)])
@pytest.mark.parametrize("zero_point", [0, 2**31 - 100])
def test_codes_of_32_bits_are_pooled_exactly(code, zero_point):
    """As floats of 32 bits the largest one became the smallest."""
    held = flambeau.full((1, 1, 4, 4), code, dtype=flambeau.int32)
    q = flambeau._make_per_tensor_quantized_tensor(held, 0.5, zero_point)
    functional = flambeau.nn.functional
    for found in (
        functional.max_pool2d(q, 3),
        functional.interpolate(q, scale_factor=2),
        functional.max_pool1d(q[0], 2),
    ):
        assert found.int_repr().unique().tolist() == [code]
