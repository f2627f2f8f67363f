"""Normalisation and convolution, against PyTorch: contiguous or not, in several dtypes, differentiated twice."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl
from flambeau.ops.nn import conv

GENERATOR = np.random.default_rng(4)
IMAGES = GENERATOR.standard_normal((2, 6, 5, 4))
SIGNALS = GENERATOR.standard_normal((2, 6, 9))
PER_CHANNEL = GENERATOR.uniform(0.5, 1.5, (6, 2))  # used as columns: parameters that are not contiguous
PER_COLUMN = GENERATOR.uniform(0.5, 1.5, (4, 2))
KERNEL = GENERATOR.standard_normal((6, 3, 3, 2))
KERNEL_1D = GENERATOR.standard_normal((6, 6, 3))

NORMS = {
    "batch training": (PER_CHANNEL, lambda F, x, p: F.batch_norm(x, None, None, p[:, 0], p[:, 1], True)),
    "batch evaluation": (
        PER_CHANNEL,
        lambda F, x, p: F.batch_norm(x, x.new_ones(6, 2)[:, 0], x.new_ones(6, 2)[:, 1] * 2, p[:, 0], p[:, 1], False),
    ),
    "batch without parameters": (PER_CHANNEL, lambda F, x, p: F.batch_norm(x, None, None, training=True) * p.sum()),
    "layer": (PER_COLUMN, lambda F, x, p: F.layer_norm(x, (4,), p[:, 0], p[:, 1])),
    "layer without parameters": (PER_COLUMN, lambda F, x, p: F.layer_norm(x, (6, 5, 4)) * p.sum()),
    "group": (PER_CHANNEL, lambda F, x, p: F.group_norm(x, 3, p[:, 0], p[:, 1])),
    "group without parameters": (PER_CHANNEL, lambda F, x, p: F.group_norm(x, 2) * p.sum()),
    "instance": (PER_CHANNEL, lambda F, x, p: F.instance_norm(x, None, None, p[:, 0], p[:, 1])),
    "rms": (PER_COLUMN, lambda F, x, p: F.rms_norm(x, (4,), p[:, 0])),
    "local response": (PER_COLUMN, lambda F, x, p: F.local_response_norm(x, 3) * p.sum()),
}
# Tangled chains: what the last node is called depends on how a product or a reshape is written.
CHAINS = {"rms", "local response", "instance", "batch without parameters", "layer without parameters"}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_norms(matches, name, dtype):
    parameters, call = NORMS[name]
    ignore = ("grad_fn", "strides") if name in CHAINS else ()
    matches(lambda t, F, x, p: call(F, x, p), IMAGES, parameters, dtype=dtype, ignore=ignore)
    matches(
        lambda t, F, x, p: call(F, x.transpose(2, 3).contiguous().transpose(2, 3), p),
        IMAGES,
        parameters,
        dtype=dtype,
        ignore=("grad_fn", "strides"),
    )


@pytest.mark.parametrize("name", NORMS)
def test_norms_channels_last(matches, name):
    parameters, call = NORMS[name]
    matches(lambda t, F, x, p: call(F, x, p), IMAGES, parameters, channels_last=True, ignore=("grad_fn", "strides"))


@pytest.mark.parametrize("name", NORMS)
def test_norms_differentiated_twice(differentiable_twice, name):
    parameters, call = NORMS[name]
    small = parameters[: 6 if parameters is PER_CHANNEL else 4]
    differentiable_twice(
        lambda t, F, x, p: (call(F, x, p) ** 2).sum(), IMAGES[:1, :, :2] if "layer w" not in name else IMAGES[:1], small
    )


def test_running_statistics(matches):
    def call(t, F, x):
        mean, var = t.zeros(6), t.ones(6)
        F.batch_norm(x.detach(), mean, var, training=True, momentum=0.3)
        strided_mean, strided_var = t.zeros(6, 2)[:, 0], t.ones(6, 2)[:, 0]
        F.batch_norm(x.detach(), strided_mean, strided_var, training=True, momentum=0.3)
        return mean, var, strided_mean, strided_var

    matches(call, IMAGES)


NATIVE = """
torch.native_batch_norm(x, w, b, w * 0, w * 0 + 1, True, 0.1, 1e-5)
torch.native_batch_norm(x, w, b, w * 0, w * 0 + 1, False, 0.1, 1e-5)
torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
torch.native_layer_norm(x, (4,), None, None, 1e-5)
torch.native_layer_norm(x.to(torch.bfloat16), (4,), None, None, 1e-5)[1].dtype
torch.native_group_norm(x, w, b, 2, 6, 4, 3, 1e-5)
torch.native_group_norm(x.reshape(2, 6, 2, 2), None, None, 2, 6, 4, 2, 1e-5)
torch.nn.functional.group_norm(x, 4)
torch.nn.functional.group_norm(x, 0)
torch.group_norm(x, 0)
torch.nn.functional.group_norm(x[:1, :1, :1], 1)
torch.group_norm(x[:1, :1, :1], 1)
torch.nn.functional.group_norm(x.long(), 2)
torch.nn.functional.group_norm(x, 2, w[:3])
torch.nn.functional.batch_norm(x, None, None)
"""


@pytest.mark.parametrize("expression", NATIVE.strip().splitlines())
def test_native_norms_and_errors(agrees, expression):
    agrees(expression, "x = (torch.arange(48.) % 7).reshape(2, 6, 4)\nw = torch.arange(6.) + 1\nb = torch.ones(6)")


CONVOLUTIONS = {
    "plain": lambda F, x, w, b: F.conv2d(x, w, b, groups=2),
    "strided and padded": lambda F, x, w, b: F.conv2d(x, w, b, 2, (1, 2), groups=2),
    "dilated": lambda F, x, w, b: F.conv2d(x, w, b, 1, 2, 2, groups=2),
    "same": lambda F, x, w, b: F.conv2d(x, w, b, padding="same", groups=2),
    "of one image": lambda F, x, w, b: F.conv2d(x[0], w, b, groups=2),
    "transposed": lambda F, x, w, b: F.conv_transpose2d(x, w, b[:3], 2, 1, 1),
    "transposed in groups": lambda F, x, w, b: F.conv_transpose2d(x, w, b[:6], 1, 0, groups=2),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("channels_last", [False, True])
def test_convolutions(matches, name, channels_last):
    def call(t, F, x, w, p):
        return CONVOLUTIONS[name](F, x, w, p[:, 1])

    matches(call, IMAGES, KERNEL, PER_CHANNEL, channels_last=channels_last, ignore=("strides",))


@pytest.mark.parametrize("name", ["plain", "strided and padded", "transposed"])
def test_convolutions_differentiated_twice(differentiable_twice, name):
    def call(t, F, x, w, p):
        return (CONVOLUTIONS[name](F, x, w, p[:, 1]) ** 2).sum()

    differentiable_twice(call, IMAGES[:1, :, :4, :3], KERNEL, PER_CHANNEL)


def test_all_gradients_of_a_convolution_are_differentiable(same_outcome):
    """PyTorch computes them in one node, so that even the bias's, which is linear, has a history."""

    def scenario(t):
        x, w, b = (
            t.ones(1, 2, 4, requires_grad=True),
            t.ones(2, 2, 2, requires_grad=True),
            t.zeros(2, requires_grad=True),
        )
        results = []
        for convolve in (t.conv1d, t.conv_transpose1d):
            grads = t.autograd.grad(convolve(x, w, b).sum(), (x, w, b), create_graph=True)
            results.append([g.requires_grad for g in grads])
        return results

    same_outcome(scenario)


ERRORS = """
F.conv1d(x, w, stride=0)
F.conv1d(x, w, padding=-1)
F.conv1d(x, w, dilation=0)
F.conv1d(x, w, groups=0)
F.conv1d(x, w, groups=3)
F.conv1d(x, w, groups=7)
F.conv1d(x.bool(), w.bool())
F.batch_norm(x.int(), None, None, training=True)
F.layer_norm(x.long(), (9,))
F.rms_norm(x.long(), (9,))
F.conv1d(x, w[0])
F.conv1d(x, w.double())
F.conv1d(x, w, torch.ones(5))
F.conv1d(x[0, 0], w)
F.conv1d(x[:, :4], w)
F.conv1d(x, w, padding='foo')
F.conv1d(x, w, stride=2, padding='same')
F.conv1d(x[:, :, :2], w)
F.conv_transpose1d(x, w, output_padding=2)
F.conv2d(x, w)
"""


@pytest.mark.parametrize("expression", ERRORS.strip().splitlines())
def test_convolution_errors(agrees, expression):
    agrees(expression, "F = torch.nn.functional\nx = torch.ones(2, 6, 9)\nw = torch.ones(6, 6, 3)")


def test_mixed_dtypes_are_refused():
    f = fl.nn.functional
    double, half, weight = fl.ones(2, 2).double(), fl.ones(2, 2).bfloat16(), fl.ones(2)
    for call in (
        lambda: f.layer_norm(double, (2,), weight),
        lambda: f.group_norm(double, 1, weight),
        lambda: f.batch_norm(double, weight, weight),
    ):
        with pytest.raises(RuntimeError, match="all inputs must share same datatype"):
            call()
    with pytest.raises(RuntimeError, match="expect parameter to have scalar type of Float"):
        f.layer_norm(fl.ones(2), (2,), weight.double())
    assert f.layer_norm(half, (2,), weight).dtype is fl.bfloat16
    with pytest.raises(RuntimeError, match="mat1 and mat2 must have the same dtype, but got Double and Float"):
        f.linear(double, fl.ones(2, 2), weight)


@pytest.mark.parametrize("norm", ["layer", "group", "batch"])
def test_long_rows_keep_their_digits(norm):
    """The mean of millions of elements is as exact as the elements, and so are the sums of the gradient."""
    values = GENERATOR.random((1, 2, 1 << 20), np.float32) + 1
    upstream = GENERATOR.standard_normal(values.shape, np.float32)
    call = {
        "layer": lambda x: fl.nn.functional.layer_norm(x, x.shape[1:]),
        "group": lambda x: fl.nn.functional.group_norm(x, 2),
        "batch": lambda x: fl.nn.functional.batch_norm(x, None, None, training=True),
    }[norm]
    found = []
    for dtype in (fl.float32, fl.float64):
        x = fl.tensor(values, dtype=dtype, requires_grad=True)
        y = call(x)
        found.append((y.detach(), fl.autograd.grad(y, x, fl.tensor(upstream, dtype=dtype))[0]))
    for single, double in zip(*found):
        assert float((single - double).abs().max()) < 4e-6


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_a_part_of_a_channels_last_tensor_gives_a_channels_last_result(norm, matches):
    part = IMAGES.repeat(2, axis=2)
    if norm == "group":
        matches(lambda torch, F, x: F.group_norm(x[:, :, ::2], 3), part, channels_last=True)
    else:
        matches(lambda torch, F, x: F.batch_norm(x[:, :, ::2], None, None, training=True), part, channels_last=True)


@pytest.mark.parametrize("window", [(1, 1, 1), (2, (1, 0), 1), (1, 2, 2)], ids=str)
def test_the_gradient_of_a_weight_that_is_large_for_its_pictures(window, monkeypatch):
    """It is a product of matrices, with the same result as the library's convolution."""
    stride, padding, dilation = window
    x, g = fl.randn(2, 8, 5, 4), None
    found = []
    for large in (1, 1 << 40):
        monkeypatch.setattr(conv, "_LARGE_WEIGHT", large)
        weight, bias = (fl.ones(s).requires_grad_() for s in ((6, 8, 3, 2), (6,)))
        y = fl.nn.functional.conv2d(x, weight, bias, stride, padding, dilation)
        g = fl.randn(y.shape) if g is None else g
        y.backward(g)
        found.append((weight.grad, bias.grad))
    fl.testing.assert_close(found[0], found[1])
