"""TorchDispatchMode sees programs as PyTorch's operators."""

from __future__ import annotations

import pytest

import flambeau
from flambeau import nn
from flambeau.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode,
    is_traceable_wrapper_subclass,
)


class Log(TorchDispatchMode):
    def __init__(self):
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_layers_are_seen_as_what_pytorch_makes_of_them():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3))
    x = flambeau.ones(1, 1, 8, 8)
    expected = model(x)
    with Log() as log:
        assert _get_current_dispatch_mode() is log
        found = model(x)
        with _disable_current_modes():
            flambeau.zeros(1)
    assert _get_current_dispatch_mode() is None
    assert log.seen == [
        "aten.convolution.default", "aten.relu.default", "aten.max_pool2d_with_indices.default", "aten.view.default",
        "aten.t.default", "aten.addmm.default",
    ]  # fmt: skip
    flambeau.testing.assert_close(found, expected)


def test_gradients_are_seen_and_right():
    model = nn.Linear(3, 2)
    x = flambeau.randn(4, 3)
    model(x).sum().backward()
    expected, model.weight.grad = model.weight.grad, None
    with Log() as log:
        model(x).sum().backward()
    assert "aten.mm.default" in log.seen
    flambeau.testing.assert_close(model.weight.grad, expected)


def test_results_can_be_changed_and_modes_nest():
    class Double(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return result * 2 if func is flambeau.ops.aten.exp.default else result

    with Log() as outer, Double():
        y = flambeau.zeros(2).exp()
    assert y.tolist() == [2, 2]
    assert outer.seen == ["aten.zeros.default", "aten.exp.default", "aten.mul.Tensor"]
    assert not is_traceable_wrapper_subclass(y)


F = nn.functional
_IMAGE, _ROWS = (2, 4, 6, 6), (3, 4)
BACKWARD = {  # the call, shapes of its arguments, and PyTorch 2.13's operator for the gradient
    "convolution_backward": (lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1, groups=2), (_IMAGE, (2, 2, 3, 3), (2,))),
    "threshold_backward": (F.relu, (_ROWS,)), "tanh_backward": (flambeau.tanh, (_ROWS,)),
    "sigmoid_backward": (flambeau.sigmoid, (_ROWS,)), "gelu_backward": (F.gelu, (_ROWS,)), "silu_backward": (F.silu, (_ROWS,)),
    "leaky_relu_backward": (lambda x: F.leaky_relu(x, 0.3), (_ROWS,)), "elu_backward": (lambda x: F.elu(x, 0.7), (_ROWS,)),
    "hardswish_backward": (F.hardswish, (_ROWS,)), "softplus_backward": (lambda x: F.softplus(x, 2.0), (_ROWS,)),
}  # fmt: skip


@pytest.mark.parametrize("seen_forward", [False, True])
@pytest.mark.parametrize("name", BACKWARD)
def test_gradients_have_pytorchs_names(name, seen_forward):
    function, shapes = BACKWARD[name]
    generator = flambeau.Generator().manual_seed(1)
    given = [flambeau.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    weights = flambeau.randn(function(*given).shape, generator=generator)
    expected = flambeau.autograd.grad(function(*given), given, weights)
    with Log() as log:
        result = function(*given) if seen_forward else log.unseen(function, *given)
        found = flambeau.autograd.grad(result, given, weights)
    assert f"aten.{name}.default" in log.seen
    assert not [seen for seen in log.seen if not seen.startswith("aten.")]
    flambeau.testing.assert_close(found, expected)
