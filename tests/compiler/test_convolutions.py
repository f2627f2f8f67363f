"""Passes over convolutions: compiled gives what eager gives, forward, backward and in training, whatever stands around them."""

from __future__ import annotations

import random

import pytest

import flambeau
from flambeau import nn
from flambeau.backends.cpu import features, winograd
from flambeau.backends.cpu.onednn import available

from .helpers import SETTLED

F = nn.functional
needs_vectors = pytest.mark.skipif(
    features.get_cpu_capability() == "DEFAULT" or not available(), reason="needs AVX2 and oneDNN"
)


def near(ours, theirs, where, limit=2e-5):
    """As good as the same, for sums in another order."""
    assert ours.shape == theirs.shape and ours.stride() == theirs.stride() and ours.dtype == theirs.dtype, where
    off = (ours.detach() - theirs.detach()).abs().max().item()
    assert off <= limit * max(theirs.detach().abs().max().item(), 1e-3), f"{where}: off by {off}"


class Steps:
    """The same model twice, one trained by a compiled step."""

    def __init__(self, build, seed=0, **options):
        self.models, self.steps = [], []
        for compiled in (False, True):
            flambeau.manual_seed(seed)
            model = build()
            step = self._step(model, flambeau.optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
            self.models.append(model)
            self.steps.append(flambeau.compile(step, options=options) if compiled else step)

    @staticmethod
    def _step(model, optimizer):
        def step(x):
            optimizer.zero_grad()
            out = model(x)
            loss = (out * out).mean()
            loss.backward()
            optimizer.step()
            return loss, out.detach()

        return step

    def check(self, x, times=SETTLED):
        """Train both on x, from equal states each time, and compare results, gradients, parameters and statistics."""
        for call in range(times):
            self.models[1].load_state_dict(self.models[0].state_dict())
            inputs = [x.clone(memory_format=flambeau.preserve_format).requires_grad_() for _ in range(2)]
            (loss, out), (other_loss, other_out) = (step(i) for step, i in zip(self.steps, inputs))
            near(other_loss, loss, f"loss of call {call}")
            near(other_out, out, f"result of call {call}")
            for (name, p), q in zip(self.models[0].named_parameters(), self.models[1].parameters()):
                near(q.grad, p.grad, f"gradient of {name}", 1e-4)
                near(q, p, name)
            for (name, p), q in zip(self.models[0].named_buffers(), self.models[1].buffers()):
                near(q.float(), p.float(), name)
            near(inputs[1].grad, inputs[0].grad, "gradient of the input", 1e-4)

    def text(self):
        return flambeau.compiler.show(self.steps[1])


@needs_vectors
@pytest.mark.parametrize("bias", [False, True])
def test_fewer_products_forward_and_backward(bias):
    """Odd sizes of pictures, numbers of channels that fill no panel, a second batch size."""

    def build():
        return nn.Sequential(
            nn.Conv2d(32, 48, 3, padding=1, bias=bias), nn.ReLU(), nn.Conv2d(48, 80, 3, bias=bias), nn.Tanh(),
            nn.Conv2d(80, 32, 3, padding=2, bias=bias),
        )  # fmt: skip

    steps = Steps(build)
    steps.check(flambeau.randn(8, 32, 11, 14))
    steps.check(flambeau.randn(5, 32, 11, 14))
    text = steps.text()
    assert "after convolving with fewer products" in text
    assert "conv_forward by Winograd(" in text and "conv_grads by Winograd(" in text


@needs_vectors
@pytest.mark.parametrize("weights_too", [False, True])
def test_fewer_products_channels_last(weights_too):
    def build():
        model = nn.Sequential(
            nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(48), nn.Conv2d(48, 32, 3, bias=False), nn.ReLU()
        )
        return model.to(memory_format=flambeau.channels_last) if weights_too else model

    steps = Steps(build)
    steps.check(flambeau.randn(8, 32, 11, 14).contiguous(memory_format=flambeau.channels_last))
    assert steps.text().split("times:")[0].count("by Winograd") >= 6


@needs_vectors
def test_fewer_products_of_a_large_weight_on_small_pictures():
    """Eager calls compute this gradient as a product of matrices; the passes find that."""
    steps = Steps(lambda: nn.Sequential(nn.Conv2d(352, 352, 3, padding=1, bias=False)))
    steps.check(flambeau.randn(32, 352, 4, 4))
    text = steps.text().split("after convolving with fewer products")[1]
    assert "conv_grads by Winograd(" in text and "block_rows" not in text and "mm(" not in text


class Chain(nn.Module):
    """Layers one after the other, some of whose results are added or joined further down, or looked at outside."""

    def __init__(self, pick):
        super().__init__()
        self.layers, self.plan = nn.ModuleList(), []
        self.outside = pick.random() < 0.5
        channels, sizes = pick.choice([3, 16, 32]), []
        self.channels = channels
        for _ in range(pick.randint(4, 7)):
            kind = pick.choice(["conv", "conv", "conv", "norm", "relu", "add", "pool", "concat", "average"])
            if kind == "conv":
                groups = pick.choice([1, 1, 1, channels, 2 if channels % 2 == 0 else 1])
                outputs = pick.choice([32, 48, 64, 33]) if groups == 1 else channels
                size = pick.choice([3, 3, 1, 5])
                stride = pick.choice([1, 1, 1, 2]) if sum(sizes) < 2 else 1
                sizes.append(stride > 1)
                layer = nn.Conv2d(channels, outputs, size, stride, size // 2, groups=groups, bias=pick.random() < 0.5)
                channels = outputs
            elif kind == "norm":
                layer = nn.BatchNorm2d(channels)
            elif kind == "pool":
                layer = nn.MaxPool2d(3, 1, 1)
            elif kind == "average":
                layer = nn.AvgPool2d(3, 1, 1)
            else:
                layer = nn.ReLU()
            if kind == "concat":
                channels *= 2
            self.layers.append(layer)
            self.plan.append(kind)
        self.last = nn.Conv2d(channels, 32, 3, padding=1)

    def forward(self, x):
        kept = []
        for kind, layer in zip(self.plan, self.layers):
            if kind == "add" and kept and kept[-1].shape == x.shape:
                x = layer(x + kept[-1])
            elif kind == "concat":
                x = flambeau.cat([layer(x), x], 1)
            else:
                x = layer(x)
            kept.append(x)
        out = self.last(x)
        return out + kept[0].mean() if self.outside else out


@needs_vectors
@pytest.mark.parametrize("seed", range(6))
def test_random_chains(seed):
    pick = random.Random(seed)
    state = pick.getstate()

    def build():
        pick.setstate(state)
        return Chain(pick)

    steps = Steps(build, seed)
    x = flambeau.randn(4, steps.models[0].channels, 12, 11)
    steps.check(x.contiguous(memory_format=flambeau.channels_last) if seed % 3 == 2 else x)
    steps.check(flambeau.randn(3, steps.models[0].channels, 9, 8), 3)


class Residual(nn.Module):
    """Everything that a convolution may do on the way: its norm (with or without its own bias), an addition, relu."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(32, 48, 3, padding=1), nn.BatchNorm2d(48)
        self.conv2, self.norm2 = nn.Conv2d(48, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32, affine=False)
        self.conv3 = nn.Conv2d(32, 32, 3)
        for norm in (self.norm1, self.norm2):
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(x + self.norm2(self.conv2(y)))
        return F.relu(self.conv3(y)), y


@needs_vectors
def test_what_follows_a_convolution_is_joined_in_inference():
    model = Residual().eval()
    fast, x = flambeau.compile(lambda x: model(x)), flambeau.randn(6, 32, 12, 12)

    def check(where):
        for ours, theirs in zip(fast(x), model(x)):
            near(ours, theirs, where)

    with flambeau.no_grad():
        for call in range(SETTLED):
            check(f"call {call}")
        steps = fast._compiled.recordings()[0].trail[-1].text.splitlines()
        assert (
            sum("by Winograd" in line for line in steps)
            == 3
            == sum("by Winograd" in line and "relu" in line for line in steps)
        )
        assert not any(line.partition(" = ")[2].startswith(("relu", "add", "internal.normalised(")) for line in steps)
        model.conv1.weight.mul_(2)
        check("after a change in place")
        model.conv1.weight.numpy()[:] *= 0.5
        check("after a change by NumPy")
        model.norm2.running_var.mul_(3)
        check("after a change of statistics")
        x[0, 0, 0, 0] = flambeau.nan
        assert fast(x)[1][0, 0, 0, 0].isnan() and fast(x)[0][0].isnan().any()


@needs_vectors
def test_what_follows_a_convolution_is_joined_in_training():
    """The derivative of relu needs its result only."""
    steps = Steps(lambda: nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()))
    steps.check(flambeau.randn(8, 32, 10, 10))
    assert "conv_forward by Winograd, relu(" in steps.text()


@needs_vectors
def test_a_model_that_is_differentiated_outside():
    model = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3))
    fast, x = flambeau.compile(model), flambeau.randn(8, 32, 10, 10)
    for call in range(SETTLED + 2):
        found = []
        for run in (model, fast):
            model.zero_grad()
            out = run(x)
            (out * out).mean().backward()
            found.append([out.detach(), *(p.grad for p in model.parameters())])
        for ours, theirs in zip(found[1], found[0]):
            near(ours, theirs, f"call {call}", 1e-4)
    assert flambeau.compiler.show(fast).partition("the derivative")[2].count("conv_grads by Winograd") >= 3


@needs_vectors
def test_a_step_whose_results_are_others_is_the_library_s_again(monkeypatch):
    """A wrong table: the first run finds out, and the library's calls take the step's place."""
    work = winograd.work
    monkeypatch.setattr(
        winograd, "work", lambda sizes, *rest, **more: work(sizes._replace(padding=(0, 0)), *rest, **more)
    )
    model = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
    fast, x = flambeau.compile(lambda x: model(x)), flambeau.randn(6, 32, 12, 12)
    with flambeau.no_grad():
        for call in range(SETTLED + 1):
            near(fast(x), model(x), f"call {call}", 0)
    assert fast._compiled.recordings()[0].calls


def test_what_is_not_worth_it_stays():
    pays = winograd.pays
    assert not pays(winograd.Sizes(8, 3, 16, 16, 64, (1, 1)))  # few channels
    assert not pays(winograd.Sizes(8, 33, 16, 16, 64, (1, 1)))  # that fill no vector
    assert not pays(winograd.Sizes(1, 64, 4, 4, 64, (1, 1)))  # few tiles
    assert not pays(winograd.Sizes(8, 64, 16, 16, 64, (3, 1)))  # more zeros around than a window has


@needs_vectors
@pytest.mark.parametrize("odd", [flambeau.nan, flambeau.inf, -flambeau.inf, 3e38])
def test_infinities_and_nan_go_as_far_as_in_a_direct_convolution(odd):
    """Winograd's algorithm would spread them over its tiles; later calls use it again."""
    flambeau.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 32, 3, padding=1)).requires_grad_(
        False
    )
    fast = flambeau.compile(model)
    picture = flambeau.randn(4, 32, 19, 16)
    for _ in range(SETTLED):
        fast(picture)
    assert "Winograd" in fast.explain()
    spoiled = picture.clone()
    spoiled[1, 3, 6, 7] = odd
    for x in (spoiled, picture, spoiled):
        flambeau.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4, equal_nan=True)


@needs_vectors
def test_gradients_with_infinities_are_those_of_a_direct_convolution():
    steps = Steps(lambda: nn.Conv2d(32, 32, 3))
    picture = flambeau.randn(4, 32, 18, 18)
    steps.check(picture)
    spoiled = picture.clone()
    spoiled[1, 3, 0, 0] = flambeau.inf  # in the window of one element of the weight only
    steps.models[1].load_state_dict(steps.models[0].state_dict())
    for step in steps.steps:
        step(spoiled)
    ours, theirs = steps.models[1].weight.grad, steps.models[0].weight.grad
    assert flambeau.equal(ours.isnan(), theirs.isnan()) and flambeau.equal(ours.isinf(), theirs.isinf())
    assert not theirs.isfinite().all()
