"""Tensors in oneDNN's layout: conversion, the operators that PyTorch has for them, gradients, models, and what is refused."""

from __future__ import annotations

import copy
import pickle

import pytest
from answers import judge

import flambeau
from flambeau import nn
from flambeau.utils.mkldnn import to_mkldnn

torch = judge("torch")

SETUP = """
F = torch.nn.functional
x = torch.arange(96.0).reshape(2, 3, 4, 4) / 8 - 6
m = x.to_mkldnn()
w, b = torch.arange(54.0).reshape(2, 3, 3, 3) / 16 - 1, torch.tensor([1.0, -2.0])
r = torch.arange(12.0).reshape(2, 6) - 5
leaf = m.detach().clone().requires_grad_()
source = x.clone().requires_grad_()
one, half, third = torch.ones(3), torch.full((3,), 0.5), torch.zeros(3)
"""
EXPRESSIONS = """
m; m.layout; m.is_mkldnn; x.is_mkldnn; m.shape; m.dtype; m.stride(); m.is_contiguous(); m.to_dense(); m.to_dense(torch.bfloat16).dtype
x.bfloat16().to_mkldnn(); x.to_mkldnn(torch.bfloat16).dtype; torch.arange(3, dtype=torch.uint8).to_mkldnn(); torch.empty(0, 3).to_mkldnn()
source.to_mkldnn(); source.to_mkldnn() * 2; leaf; leaf.is_leaf; m.detach(); m.data; m.numel(); m.cpu(); m.float(); torch.nn.Parameter(m)
F.conv2d(m, w, b).to_dense(); F.conv2d(m, w.to_mkldnn(), b.to_mkldnn(), padding=1, stride=2).to_dense(); F.conv2d(m, w)
F.linear(r.to_mkldnn(), torch.ones(2, 6).to_mkldnn(), b.to_mkldnn()); F.linear(r.to_mkldnn(), torch.ones(2, 6))
F.conv1d(torch.ones(1, 3, 5).to_mkldnn(), torch.ones(2, 3, 2)); F.conv3d(torch.ones(1, 3, 4, 4, 4).to_mkldnn(), torch.ones(2, 3, 2, 2, 2))
F.batch_norm(m, third, one, one, half).to_dense(); F.batch_norm(m, third.to_mkldnn(), one.to_mkldnn(), one.to_mkldnn(), half.to_mkldnn())
F.relu(m); torch.relu(m); m.relu(); F.prelu(m, half); F.prelu(m, half.to_mkldnn()); F.dropout(m, 0.5, False); m.clone()
F.max_pool2d(m, 2); F.avg_pool2d(m, 2); F.adaptive_avg_pool2d(m, 1); F.max_pool3d(torch.ones(1, 1, 4, 4, 4).to_mkldnn(), 2)
m + m; torch.add(m, m, alpha=2); m * m; m * 2; 2 * m; m * torch.tensor(3.0); m.clone().relu_(); m.clone().add_(m); m.clone().mul_(2); m.clone().zero_()
m.reshape(2, -1); torch.flatten(m, 1); m.transpose(1, 2); r.to_mkldnn().t(); m.clone().copy_(m * 2); torch.add(m, m, out=m.clone())
""".replace("\n", "; ").strip("; ").split("; ")  # fmt: skip
REFUSED = """
x.double().to_mkldnn(); x.int().to_mkldnn(); (x > 0).to_mkldnn(); x.to_mkldnn(torch.float64); m.to_mkldnn(); x[0, 0].to_sparse().to_mkldnn()
torch.tensor(1.0).to_mkldnn(); m.numpy(); m.tolist(); m.data_ptr(); m.untyped_storage(); m.view(2, -1); m[0]; m.sum(); m.mean(); m.max(); m @ m
m.double(); m.bfloat16(); torch.abs(m); torch.exp(m); m - m; m / 2; m > 0; m + 1; m + x; x + m; x * m; m + m[:1] if False else m + torch.ones(1, 3, 1, 1).to_mkldnn()
F.conv2d(x, w.to_mkldnn()); F.linear(r, torch.ones(2, 6).to_mkldnn()); F.batch_norm(m, third, one); F.layer_norm(m, (4,)); F.group_norm(m, 3)
F.max_pool2d(m, 2, dilation=2); F.max_pool2d(m, 2, return_indices=True); F.adaptive_avg_pool2d(m, 3); F.gelu(m, approximate="tanh")
F.log_softmax(m, 1); F.silu(m); F.dropout(m, 0.5, True); torch.cat([m, m]); torch.stack([m, m]); m.permute(0, 2, 3, 1); m.squeeze(); m.unsqueeze(0); m.unbind()
m.clone().copy_(x); x.clone().copy_(m); torch.equal(m, m); torch.allclose(m, m); torch.testing.assert_close(m, m); leaf.relu_(); m.fill_(1); m.resize_(3)
__import__("copy").deepcopy(m); torch.save(m, __import__("io").BytesIO()); torch.ones(2, layout=torch._mkldnn)
""".replace("\n", "; ").strip("; ").split("; ")  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_in_pytorch(agrees, expression):
    agrees(expression, SETUP)


@pytest.mark.parametrize("name", ["torch.sigmoid", "torch.tanh", "F.gelu", "lambda t: F.softmax(t, 1)"])
def test_formulas_are_those_of_plain_tensors(name):
    space = {"torch": flambeau}
    exec(SETUP, space)
    result = eval(f"({name})(m)", space)
    assert result.layout is flambeau._mkldnn
    flambeau.testing.assert_close(result.to_dense(), eval(f"({name})(x)", space))


def raised(library, expression):
    space = {"torch": library}
    exec(SETUP, space)
    try:
        return str(eval(expression, space))
    except Exception as problem:
        return type(problem)


@pytest.mark.parametrize("expression", REFUSED)
def test_what_pytorch_refuses_is_refused(expression):
    """A refusal may be a subclass of what PyTorch raises: NotImplementedError is a RuntimeError."""
    ours, expected = raised(flambeau, expression), raised(torch, expression)
    assert isinstance(ours, type) and issubclass(ours, RuntimeError if expected is NotImplementedError else expected)


@pytest.mark.parametrize(
    "call",
    [
        "torch.relu(t)",
        "t * t",
        "t + t * 3",
        "F.gelu(t)",
        "F.adaptive_avg_pool2d(t, 1)",
        "t.reshape(2, -1)",
        "t.transpose(1, 2)",
        "t.clone()",
        "F.conv2d(t, w, b)",
        "F.batch_norm(t, None, None, one, half, True)",
    ],
)
def test_gradients(call):
    def gradients(library):
        space = {"torch": library}
        exec(SETUP, space)
        space["t"] = space["source"].to_mkldnn()
        for name in "wb":
            space[name].requires_grad_()
        result = eval(call, space)
        result.to_dense().pow(2).sum().backward()
        return [
            str(result.layout),
            *(space[n].grad.tolist() for n in ("source", "w", "b") if space[n].grad is not None),
        ]

    ours, expected = gradients(flambeau), gradients(torch)
    assert ours[0] == expected[0] and len(ours) == len(expected)
    for a, b in zip(ours[1:], expected[1:]):
        flambeau.testing.assert_close(flambeau.tensor(a), flambeau.tensor(b), rtol=1e-4, atol=1e-3)


def test_gradient_of_a_leaf_has_its_layout():
    leaf = flambeau.randn(2, 3).to_mkldnn().requires_grad_()
    for _ in range(2):
        (leaf * leaf).to_dense().sum().backward()
    assert leaf.grad.is_mkldnn
    assert flambeau.equal(leaf.grad.to_dense(), 4 * leaf.detach().to_dense())


def test_writing_in_place_is_recorded_and_reaches_aliases():
    x = flambeau.tensor([1.0, -2.0], requires_grad=True)
    m = x.to_mkldnn()
    alias = m.detach()
    m.mul_(3).relu_()
    assert alias.to_dense().tolist() == [3.0, 0.0]
    m.to_dense().sum().backward()
    assert x.grad.tolist() == [3.0, 0.0]


def network(library):
    f = library.nn
    layers = (
        f.Conv2d(3, 4, 3),
        f.BatchNorm2d(4),
        f.ReLU(),
        f.MaxPool2d(2),
        f.Flatten(),
        f.PReLU(),
        f.Linear(4, 2, bias=False),
    )
    return f.Sequential(*layers).eval()


def test_models_for_the_layout_look_as_in_pytorch():
    utils = judge("torch.utils.mkldnn")
    theirs, ours = utils.to_mkldnn(network(torch)), to_mkldnn(network(flambeau))
    assert repr(ours) == repr(theirs)
    assert [(k, str(v.layout)) for k, v in ours.state_dict().items()] == [
        (k, str(v.layout)) for k, v in theirs.state_dict().items()
    ]


@pytest.mark.parametrize("dtype", [flambeau.float32, flambeau.bfloat16])
def test_models_compute_what_the_dense_model_computes(dtype):
    flambeau.manual_seed(0)
    x = flambeau.randn(2, 3, 4, 4)
    dense = network(flambeau)
    expected = dense(x)
    model = to_mkldnn(copy.deepcopy(dense), dtype)
    rounding = {"rtol": 1e-5, "atol": 1e-6} if dtype is flambeau.float32 else {"rtol": 0.05, "atol": 0.05}
    for each in (model, pickle.loads(pickle.dumps(model))):
        flambeau.testing.assert_close(each(x.to(dtype).to_mkldnn()).to_dense(flambeau.float32), expected, **rounding)
    assert to_mkldnn(nn.Linear(3, 2).eval())(flambeau.ones(1, 3)).layout is flambeau.strided


def test_models_that_cannot_be_converted():
    with pytest.raises(AssertionError, match="float, bfloat16, and half"):
        to_mkldnn(nn.Linear(2, 2), flambeau.float64)
    with pytest.raises(AssertionError, match="eval mode"):
        to_mkldnn(nn.BatchNorm2d(2))
    with pytest.raises(RuntimeError, match="expects MKL-DNN tensor"):
        to_mkldnn(nn.BatchNorm2d(2).eval())(flambeau.ones(1, 2, 2, 2))


def test_switches():
    switches = flambeau.backends.mkldnn
    before = switches.set_flags(_enabled=False)
    assert not switches.enabled and (before[1:], switches.is_acl_available()) == ((False, None), False)
    switches.set_flags(*before)
    with switches.flags(enabled=False, deterministic=True):
        assert not switches.enabled and switches.deterministic
    assert switches.enabled is before[0] and switches.deterministic is False


def test_switches_for_gpus_of_intel_choose_nothing_elsewhere():
    switches = flambeau.backends.mkldnn
    with pytest.warns(UserWarning, match="TF32 acceleration on top of oneDNN is available for Intel GPUs"):
        switches.allow_tf32 = True
    assert switches.allow_tf32 is None
    for name, setter in (("allow_tf32", "_set_onednn_allow_tf32"), ("deterministic", "set_deterministic_mkldnn")):
        with pytest.raises(RuntimeError, match=f"{setter} expects a bool, but got int"):
            setattr(switches, name, 1)
