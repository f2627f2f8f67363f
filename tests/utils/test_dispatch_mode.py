"""TorchDispatchMode sees programs as PyTorch's operators."""

from __future__ import annotations

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
