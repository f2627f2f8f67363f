"""Pictures whose channels lie last between steps: compiled gives what eager gives, and everything that the user sees lies as in eager
calls."""

from __future__ import annotations

import random

import pytest

import flambeau
from flambeau import nn
from flambeau.compiler.function import record_once
from flambeau.ops import OPS
from flambeau.ops.machinery.declare import internal
from flambeau.ops.machinery.inplace import raw_copy
from flambeau.ops.machinery.memory import layout_like
from flambeau.ops.nn import max_pool

from .helpers import SETTLED
from .test_convolutions import Steps, near, needs_vectors

F = nn.functional
AFTER = "after keeping layouts"
pytestmark = needs_vectors


class Residual(nn.Module):
    """Windows of 1 x 1, of each channel alone, and of 3 x 3; batch norms, an addition, channels that are weighted."""

    def __init__(self, channels, wide):
        super().__init__()
        self.spread, self.each = (
            nn.Conv2d(channels, wide, 1, bias=False),
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide),
        )
        self.back, self.weigh = nn.Conv2d(wide, channels, 1), nn.Conv2d(wide, wide, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(wide), nn.BatchNorm2d(wide), nn.BatchNorm2d(channels)])

    def forward(self, x):
        y = F.relu6(self.norms[0](self.spread(x)))
        y = F.hardswish(self.norms[1](self.each(y)))
        y = y * F.hardsigmoid(self.weigh(F.adaptive_avg_pool2d(y, 1)))
        return F.relu(x + self.norms[2](self.back(y)))


def network():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
        Residual(32, 48), nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 5),
    )  # fmt: skip


def test_training_steps_and_a_second_size():
    steps = Steps(network, layouts=True)
    steps.check(flambeau.randn(6, 3, 30, 34))
    steps.check(flambeau.randn(4, 3, 30, 34))
    text = steps.text()
    assert text.count(AFTER) == 2 and "channels lie last in internal.conv_forward" in text
    assert "internal.batch_norm_grads" in text.partition("channels lie last in")[2].partition("\n")[0]


def test_only_where_nobody_looks():
    """What the function returns lies as in an eager call: pictures in the middle, views of them, the gradient of the input."""
    flambeau.manual_seed(0)
    first, second = nn.Conv2d(8, 32, 3, stride=2).eval(), nn.Sequential(nn.Conv2d(32, 24, 1), nn.BatchNorm2d(24)).eval()

    def function(x):
        middle = F.relu(first(x))
        end = second(F.max_pool2d(middle, 2)) + 1
        return middle, end, end.transpose(1, 2), end[:, 3:5], end.permute(0, 2, 3, 1).reshape(-1, 24).softmax(1)

    compiled = flambeau.compile(function, options={"layouts": True})
    with flambeau.no_grad():
        for _ in range(SETTLED):
            x = flambeau.randn(3, 8, 17, 19)
            for ours, theirs in zip(compiled(x), function(x)):
                near(ours, theirs, "a result")
    assert AFTER in flambeau.compiler.show(compiled)


def test_steps_that_take_pictures_as_they_were():
    """Dropout, products over pixels and flat pictures lie between convolutions."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(4, 32, 1), nn.Conv2d(32, 16, 3, padding=1), nn.Conv2d(16, 20, 1)
            self.norm, self.end = nn.BatchNorm2d(16), nn.Linear(20 * 16, 6)

        def forward(self, x):
            y = F.avg_pool2d(F.relu(self.a(x)), 2)
            y = F.dropout(self.norm(self.b(y)), 0.3)
            y = y.softmax(1) * y
            y = self.c(F.max_pool2d(y, 2))
            return self.end(y.flatten(1))

    steps = Steps(Model, layouts=True)
    x = flambeau.randn(3, 4, 16, 16)
    state = flambeau.get_rng_state()
    before = steps.steps
    steps.steps = [lambda x, s=s: (flambeau.set_rng_state(state), s(x))[1] for s in before]
    steps.check(x)
    steps.steps = before
    text = steps.text()
    assert AFTER in text and "channels first(" in text and "channels last(" in text


def test_channels_side_by_side():
    """Pictures are put together and taken apart by channels, and the second half goes on alone."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(6, 16, 1, bias=False), nn.Conv2d(16, 24, 3, padding=1, bias=False)
            self.c, self.norm = nn.Conv2d(20, 8, 1), nn.BatchNorm2d(40)

        def forward(self, x):
            one = self.a(x)
            both = F.relu(self.norm(flambeau.cat([one, self.b(one)], 1)))
            return self.c(both[:, 20:] * 2)

    steps = Steps(Model, layouts=True)
    steps.check(flambeau.randn(5, 6, 9, 7))
    assert AFTER in steps.text()


@pytest.mark.parametrize("seed", range(3))
def test_any_chain(seed):
    chosen, channels, parts = random.Random(seed), 8, []
    for _ in range(7):
        wide = chosen.choice([8, 16, 24, 40])
        part = chosen.choice(["one", "three", "each", "norm", "relu", "pool", "gelu", "transposed", "bias"])
        if part in ("one", "three"):
            size = 1 if part == "one" else 3
            parts.append((nn.Conv2d, (channels, wide, size, chosen.choice([1, 2]), size // 2)))
            channels = wide
        elif part == "each":
            parts.append((nn.Conv2d, (channels, channels, 3, 1, 1, 1, channels)))
        elif part == "transposed":
            parts.append((nn.ConvTranspose2d, (channels, channels, 2)))
        else:
            kinds = {
                "norm": (nn.BatchNorm2d, (channels,)),
                "relu": (nn.ReLU, (True,)),
                "pool": (nn.MaxPool2d, (3, 1, 1)),
            }
            parts.append(kinds.get(part, (nn.GELU, ())))
    steps = Steps(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), *(kind(*given) for kind, given in parts)), layouts=True)
    steps.check(flambeau.randn(4, 3, 23, 21))


def test_evaluated_batch_norms_join_convolutions():
    """Winograd's algorithm does a batch norm on the way in this layout, too."""
    flambeau.manual_seed(1)
    layers = [(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()) for _ in range(2)]
    model = nn.Sequential(*(part for row in layers for part in row), nn.Conv2d(64, 64, 1)).eval()
    for part in model:
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.running_var, 0.5, 2)
    compiled = flambeau.compile(lambda x: model(x), options={"layouts": True})
    with flambeau.no_grad():
        for _ in range(SETTLED):
            x = flambeau.randn(4, 64, 20, 20)
            near(compiled(x), model(x), "the result")
    text = flambeau.compiler.show(compiled)
    assert AFTER in text and "by Winograd, internal.normalised" in text


def mobile(channels=96):
    return nn.Sequential(
        nn.Conv2d(3, 16, 1), nn.Conv2d(16, channels, 1), nn.BatchNorm2d(channels), nn.ReLU6(),
        nn.Conv2d(channels, channels, 3, 1, 1, 1, channels), nn.BatchNorm2d(channels), nn.ReLU6(), nn.Conv2d(channels, 16, 1),
    ).eval()  # fmt: skip


@pytest.mark.parametrize(("layouts", "used"), [(None, True), (False, False)])
def test_on_where_it_is_expected_to_gain(layouts, used):
    model = mobile()
    compiled = flambeau.compile(lambda x: model(x), options={"layouts": layouts})
    with flambeau.no_grad():
        for _ in range(SETTLED):
            x = flambeau.randn(2, 3, 48, 48)
            near(compiled(x), model(x), "the result")
    assert (AFTER in flambeau.compiler.show(compiled)) is used


def test_off_where_it_is_not():
    """One convolution with pictures that the user sees on both sides: nothing is gained by copies."""
    model = nn.Conv2d(32, 32, 1)
    compiled = flambeau.compile(lambda x: model(x))
    with flambeau.no_grad():
        for _ in range(SETTLED):
            compiled(flambeau.randn(2, 32, 24, 24))
    assert AFTER not in flambeau.compiler.show(compiled)


def test_a_step_that_differs_goes_back(monkeypatch):
    """A step that gives something else is found out, and the function is recorded again as everything lies in eager calls."""
    right = max_pool._channels_geometry

    def without_padding(shape, sizes, window):
        return right(shape, sizes, window._replace(padding=(0, 0)))

    monkeypatch.setattr(max_pool, "_channels_geometry", without_padding)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.MaxPool2d(3, 2, 1), nn.Conv2d(16, 8, 1))
    compiled = flambeau.compile(lambda x: model(x), options={"layouts": True})
    with flambeau.no_grad():
        for _ in range(2 * SETTLED):
            x = flambeau.randn(2, 3, 17, 17)
            near(compiled(x), model(x), "the result")
    (recorded,) = compiled._compiled.recordings()
    assert recorded.checked and not recorded.program.graph.relaid


def test_programs_without_python_keep_layouts():
    """What is exported has only steps that can be linked."""
    model = mobile()
    with flambeau.no_grad():
        recorded = record_once(model, (flambeau.randn(2, 3, 48, 48),), [*model.parameters(), *model.buffers()])
    assert not recorded.program.graph.relaid and all(s.name != AFTER[6:] for s in recorded.trail)


@pytest.mark.parametrize(("outputs", "kernel", "size"), [(1024, 1, 4), (256, 3, 4), (640, 1, 7)])
def test_small_channels_last_pictures_with_large_weights(outputs, kernel, size):
    """These go through blocks of channels inside."""
    flambeau.manual_seed(0)
    x, w = flambeau.randn(2, 512, size, size), flambeau.randn(outputs, 512, kernel, kernel) / 20
    found = []
    for form in (flambeau.contiguous_format, flambeau.channels_last):
        a, b = (t.clone(memory_format=form).requires_grad_() for t in (x, w))
        y = F.conv2d(a, b, padding=kernel // 2)
        y.backward(flambeau.linspace(-1, 1, y.numel()).reshape(y.shape))
        assert y.is_contiguous(memory_format=form) and b.grad.is_contiguous(memory_format=form)
        found.append((y, a.grad, b.grad))
    for usual, last in zip(*found):
        near(last.contiguous().flatten(), usual.contiguous().flatten(), "a result", 1e-4)


def test_operators_take_part_by_their_records():
    """Group norms, average pools and interpolation are named nowhere in the compiler."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.norm = nn.Conv2d(4, 32, 1), nn.Conv2d(32, 16, 3, padding=1), nn.GroupNorm(4, 32)

        def forward(self, x):
            y = F.avg_pool2d(F.relu(self.norm(self.a(x))), 2)
            return self.b(F.interpolate(y, scale_factor=2, mode="bilinear"))

    steps = Steps(Model, layouts=True)
    steps.check(flambeau.randn(3, 4, 12, 10))
    told = steps.text().partition("channels lie last in")[2].partition("\n")[0]
    for name in ("group_norm_apply", "group_norm_grads", "resample_AvgPool2D", "resample_AvgPool2D_backward"):
        assert name in told


def test_an_operator_of_ones_own_takes_part():
    """A primitive whose record says that its kernels take channels last, declared here alone."""

    @internal(layout=lambda input: layout_like(input), channels_last=lambda input: 0.0, batching="each")
    def halved_here(input):
        """Half of everything."""

    @halved_here.on("cpu")
    def _(out, input):
        raw_copy(out, input * 0.5)

    OPS.pop(halved_here.op.key)  # it is nobody else's

    first, second = nn.Conv2d(4, 32, 1), nn.Conv2d(32, 16, 1)
    function = lambda x: second(halved_here(first(x)))  # noqa: E731
    compiled = flambeau.compile(function, options={"layouts": True})
    with flambeau.no_grad():
        for _ in range(SETTLED):
            x = flambeau.randn(2, 4, 9, 8)
            near(compiled(x), function(x), "the result")
    text = flambeau.compiler.show(compiled)
    assert "halved_here" in text.partition("channels lie last in")[2].partition("\n")[0]
    assert "channels first(" in text.partition("halved_here")[2]  # of the result, and of nothing else
    assert text.count("channels last(") == 0


def test_parts_that_lie_otherwise_than_what_they_are_copied_into():
    """Feature maps are put together for an operator that takes them only as they were."""
    first, second = nn.Conv2d(4, 16, 1), nn.Conv2d(16, 8, 3, padding=1)

    def function(x):
        one = first(x)
        return flambeau.cat([one, second(one)], 1).permute(0, 2, 3, 1).reshape(-1, 24).softmax(1)

    compiled = flambeau.compile(function, options={"layouts": True})
    with flambeau.no_grad():
        for _ in range(SETTLED):
            x = flambeau.randn(2, 4, 9, 8)
            near(compiled(x), function(x), "the result")
    assert "channels lie last in internal.conv_forward (2 times)" in flambeau.compiler.show(compiled)


def test_gradient_of_a_large_weight_from_channels_last_pictures():
    """It is a product of matrices, made from either layout."""
    flambeau.manual_seed(0)
    x, weight = flambeau.randn(2, 256, 6, 6), flambeau.randn(512, 256, 3, 3) / 20
    found = []
    for form in (flambeau.contiguous_format, flambeau.channels_last):
        a, b = x.clone(memory_format=form).requires_grad_(), weight.clone().requires_grad_()
        y = F.conv2d(a, b, stride=2, padding=1)
        y.backward(flambeau.linspace(-1, 1, y.numel()).reshape(y.shape).contiguous(memory_format=form))
        found.append((a.grad, b.grad))
    for usual, last in zip(*found):
        near(last.contiguous(), usual.contiguous(), "a gradient", 1e-4)
