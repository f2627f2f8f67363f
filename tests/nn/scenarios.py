"""Running one piece of code in both libraries and comparing what comes out."""

import warnings

import pytest
from answers import judge

import flambeau
import flambeau.nn

torch = judge("torch")


def plain(value):
    """A result as nested lists, numbers and text that can be compared."""
    if isinstance(value, (torch.Tensor, flambeau.Tensor)):
        numbers = value.detach().double().numpy().round(5).tolist()
        return [value.__class__.__name__, str(value.dtype), list(value.shape), value.requires_grad, numbers]
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (int, float, str, type(None))):
        return value
    return value.__name__ if isinstance(value, type) else repr(value)


def net(nn):
    """A small network with a submodule, a container and two buffers."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 3)
            self.b = nn.Sequential(nn.ReLU(), nn.Linear(3, 2))
            self.register_buffer("buf", nn.Linear(1, 1).weight.detach().clone())
            self.register_buffer("np_", nn.Linear(1, 1).weight.detach().clone(), persistent=False)

        def forward(self, x, scale=1):
            return self.b(self.a(x)) * scale

    return Net()


class Scenarios:
    """A decorator that collects functions (library, library.nn) -> result, and the test that compares them."""

    def __init__(self):
        self.collected = []

    def __call__(self, function):
        self.collected.append(function)
        return function

    @staticmethod
    def outcome(function, library):
        library.manual_seed(0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ["result", plain(function(library, library.nn))]
        except Exception as error:
            return [type(error).__name__, str(error).replace("flambeau", "torch")]

    def as_test(self):
        @pytest.mark.parametrize("function", [pytest.param(f, id=f.__name__) for f in self.collected])
        def test(function):
            assert self.outcome(function, flambeau) == self.outcome(function, torch)

        return test
