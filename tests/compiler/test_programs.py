"""Random small programs, every layer and every optimizer: compiled as it is."""

from __future__ import annotations

import random

import pytest

import flambeau
from flambeau import nn
from tests.nn import layer_table

from .helpers import Twins

F = nn.functional
CALLS = 6

# What a line of a random program may do: text with places for variables. In-place changes, views and views of views, state that is
# written, random numbers, control flow on shapes.
LINES = [
    "{new} = {a} + {b}",
    "{new} = {a} * {b} - 0.5",
    "{new} = ({a} @ {b}.t()) @ {b} / 4",
    "{new} = torch.tanh({a})",
    "{new} = {a}.relu() if {a}.shape[0] > 3 else {a}.sigmoid()",
    "{new} = F.softmax({a}, dim={d})",
    "{new} = {a}.sum({d}, keepdim=True) + {b}",
    "{new} = {a} - {a}.mean()",
    "{new} = F.dropout({a}, 0.3)",
    "{new} = {a}.clone()\n    {new}[{i}] = {b}[{j}] * 2",
    "{new} = {a}.clone()\n    {new}.t()[{i}].mul_(3)\n    {new}[1:][0].add_(1)",
    "{new} = {a} * 1\n    view = {new}[:, 1:]\n    view.add_({b}[:, 1:])\n    {new} = {new} + view.sum()",
    "{new} = torch.cat([{a}, {b}])[{i}:{i} + {a}.shape[0]]",
    "{new} = torch.where({a} > 0, {a}, {b} * 0.1)",
    "{new} = {a}.flip({d}) + torch.randn({a}.shape)",
    "{new} = {a}.double().cumsum({d}).float() * 0.1",
    "{new} = {a}.to(torch.bfloat16).exp().float().clamp(max=5)",
    "{new} = {a}.max({d}, keepdim=True)[0] * {b}",
    "{new} = {a}.sort({d})[0] + 0 * {b}",
    "{new} = torch.stack([{a}, {b}]).mean(0)",
    "{new} = sum(part.mean() * k for k, part in enumerate({a}.chunk(2, {d}))) + {b}",
    "{new} = F.layer_norm({a}, {a}.shape[1:], weight[0, : {a}.shape[1]])",
    "state.mul_(0.9).add_({a}.detach().mean())\n    {new} = {a} + state",
    "kept[{i}].copy_({a}.detach()[{i}, 0])\n    {new} = {a} * kept[{j}]",
    "{new} = {a}.index_select(0, torch.arange({a}.shape[0])) * weight[: {a}.shape[0], : {a}.shape[1]]",
    "{new} = {a}.gather({d}, {b}.argsort({d}))",
    "with torch.no_grad():\n        weight.mul_(0.99)\n    {new} = {a} * 1.5",
]


def program(seed: int) -> str:
    """The text of a function of x and y that returns tensors, and may take gradients."""
    pick = random.Random(seed)
    variables = ["x", "y"]
    lines = []
    for k in range(pick.randint(3, 9)):
        names = {"a": pick.choice(variables), "b": pick.choice(variables), "new": f"v{k}"}
        names.update(d=pick.randint(0, 1), i=pick.randint(0, 2), j=pick.randint(0, 2))
        lines.append(pick.choice(LINES).format(**names))
        variables.append(f"v{k}")
    result = f"({variables[-1]} * weight[: x.shape[0], : x.shape[1]]).sum()"
    kind = pick.choice(["forward", "backward", "step"])
    if kind == "forward":
        lines.append(f"return {variables[-1]}.detach(), [{variables[-2]}.detach() + 0], x.shape")
    else:
        lines += ["optimizer.zero_grad()"] if pick.random() < 0.7 else []
        lines += [f"loss = {result}", "loss.backward()"]
        lines += ["nn.utils.clip_grad_norm_([weight], 1.0)"] if pick.random() < 0.5 else []
        lines += ["optimizer.step()"] if kind == "step" else []
        lines.append("return loss")
    return "def function(x, y):\n    " + "\n    ".join(lines) + "\n"


def build_program(text: str):
    weight = flambeau.randn(6, 6).requires_grad_()
    state, kept = flambeau.zeros(()), [flambeau.ones(()) for _ in range(3)]
    optimizer = flambeau.optim.SGD([weight], lr=0.01, momentum=0.5)
    space = {
        "torch": flambeau, "F": F, "nn": nn, "weight": weight, "state": state, "kept": kept, "optimizer": optimizer,
        "__name__": "program",
    }  # fmt: skip
    exec(text, space)
    return space["function"], [weight, state, kept, optimizer]


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed):
    text = program(seed)
    twins = Twins(lambda: build_program(text))
    shapes = [(4, 5), (3, 4)]
    try:
        twins.call(lambda: (flambeau.randn(shapes[0]), flambeau.randn(shapes[0])), CALLS)
        twins.call(lambda: (flambeau.randn(shapes[1]), flambeau.randn(shapes[1])), 3)
        twins.call(lambda: (flambeau.randn(shapes[0]), flambeau.randn(shapes[0])), 2)
    except AssertionError as error:
        raise AssertionError(f"{text}\n{error}\n{twins.compiled.explain()}") from None
    assert twins.native >= 3, f"{text}\n{twins.compiled.explain()}"


TABLES = ("LINEAR", "CONVOLUTION", "POOLING", "NORMALIZATION", "ACTIVATION", "DROPOUT", "PADDING", "RECURRENT", "OTHER")
ROWS = [row for name in TABLES for row in getattr(layer_table, name, []) if row[1]]


@pytest.mark.parametrize("text, shapes", ROWS[::2], ids=[r[0] for r in ROWS[::2]])
def test_layers(text, shapes):
    def build():
        layer = eval(text, {"nn": nn, "T": flambeau})
        flambeau.manual_seed(1)

        def function(*inputs):
            result = layer(*inputs)
            loss = sum(t.square().sum() for t in tensors(result) if t.requires_grad)
            if isinstance(loss, flambeau.Tensor):
                loss.backward()
            return [t.detach() for t in tensors(result)]

        return function, layer

    def make():
        return tuple(flambeau.randn(s).requires_grad_() for s in shapes)

    twins = Twins(build)
    twins.call(make, CALLS)


def tensors(value):
    if isinstance(value, flambeau.Tensor):
        return [value]
    return [t for v in value for t in tensors(v)] if isinstance(value, (list, tuple)) else []


OPTIMIZERS = {
    "SGD": {"lr": 0.1}, "momentum": {"lr": 0.1, "momentum": 0.9, "nesterov": True}, "Adam": {}, "AdamW": {"amsgrad": True}, "Adamax": {},
    "NAdam": {}, "RAdam": {}, "Adagrad": {}, "Adadelta": {}, "RMSprop": {"centered": True, "momentum": 0.5}, "Rprop": {}, "ASGD": {},
    "Adafactor": {}, "Muon": {}, "LBFGS": {},
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    """A schedule changes the learning rate in every step."""

    def build():
        model = nn.Sequential(nn.Linear(4, 8, bias=name != "Muon"), nn.Tanh(), nn.Linear(8, 2, bias=False))
        kind = getattr(flambeau.optim, "SGD" if name == "momentum" else name)
        optimizer = kind(model.parameters(), **OPTIMIZERS[name])

        def step(x, y):
            def closure():
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                return loss

            if name == "LBFGS":
                return optimizer.step(closure)
            loss = closure()
            optimizer.step()
            return loss

        return step, [model, optimizer]

    twins = Twins(build)
    for i in range(7):
        twins.call(lambda: (flambeau.randn(5, 4), flambeau.randn(5, 2)))
        if i > 4:
            for _, optimizer in (twins.plain_state, twins.state):
                optimizer.param_groups[0]["lr"] *= 0.9
    twins.call(lambda: (flambeau.randn(5, 4), flambeau.randn(5, 2)), 2)
    if name not in ("LBFGS", "Adafactor"):  # these read values
        assert twins.native >= (1 if name == "Muon" else 4), twins.compiled.explain()


@pytest.mark.parametrize("training", [True, False])
def test_a_model_in_an_ordinary_training_loop(training):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.first, self.second = nn.LayerNorm(6), nn.Linear(6, 12), nn.Linear(12, 6)
            self.dropout = nn.Dropout(0.2)

        def forward(self, x, scale=1.0):
            hidden = F.gelu(self.first(self.norm(x))) * scale
            return x + self.dropout(self.second(hidden)), hidden.mean()

    def build(compiled):
        flambeau.manual_seed(0)
        before, model, after = nn.Linear(6, 6), Block(), nn.Linear(6, 2)
        model.train(training)
        run = flambeau.compile(model) if compiled else model
        parameters = [*before.parameters(), *model.parameters(), *after.parameters()]
        optimizer = flambeau.optim.AdamW(parameters, lr=0.01)

        def step(x, accumulate):
            losses = []
            for part in x.chunk(accumulate):
                out, extra = run(before(part))
                loss = after(out).square().mean() + extra
                loss.backward()
                losses.append(loss.item())
            optimizer.step()
            optimizer.zero_grad()
            return losses, [p.detach().clone() for p in parameters]

        return step, run

    (plain, _), (step, run) = build(False), build(True)
    for i in range(9):
        outcomes = []
        for function in (plain, step):
            flambeau.manual_seed(i)
            outcomes.append(function(flambeau.randn(8, 6), 1 + i % 2))
        assert outcomes[0][0] == pytest.approx(outcomes[1][0], rel=1e-5)
        for a, b in zip(outcomes[0][1], outcomes[1][1]):
            flambeau.testing.assert_close(a, b)
    assert "recording 0" in run.explain(), run.explain()


@pytest.mark.parametrize("lower", [False, True])
def test_a_language_model_trained_as_public_programs_do(lower):
    """Micro-batches, autocast around the compiled model, a scaler that is off, clipping, a schedule, evaluation in between."""

    class Attention(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            b, t, c = x.size()
            q, k, v = self.c_attn(x).split(c, dim=2)
            q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))

    class Model(nn.Module):
        def __init__(self, vocabulary=11, width=16, context=8):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.norm, self.attention, self.drop = nn.LayerNorm(width), Attention(width, 2), nn.Dropout(0.1)
            self.head = nn.Linear(width, vocabulary, bias=False)
            self.wte.weight = self.head.weight

        def forward(self, idx, targets=None):
            positions = flambeau.arange(0, idx.size(1), dtype=flambeau.long)
            x = self.drop(self.wte(idx) + self.wpe(positions))
            x = x + self.attention(self.norm(x))
            if targets is None:
                return self.head(x[:, [-1], :]), None
            logits = self.head(x)
            return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    def run(compiled):
        flambeau.manual_seed(0)
        model = Model()
        raw = model
        model = flambeau.compile(model) if compiled else model
        optimizer = flambeau.optim.AdamW(raw.parameters(), lr=1e-2)
        scaler = flambeau.amp.GradScaler("cpu", enabled=False)
        history = []
        for it in range(7):
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 / (1 + it)
            for _ in range(2):
                x, y = flambeau.randint(0, 11, (3, 8)), flambeau.randint(0, 11, (3, 8))
                with flambeau.autocast("cpu", dtype=flambeau.bfloat16, enabled=lower):
                    _, loss = model(x, y)
                    loss = loss / 2
                scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            history.append(loss.item())
            model.eval()
            with flambeau.no_grad():
                history.append(model(x)[0].float().sum().item())
            model.train()
        return history, [p.detach() for p in raw.parameters()], model

    plain, parameters, _ = run(False)
    ours, others, model = run(True)
    assert plain == pytest.approx(ours, rel=1e-5)
    for a, b in zip(parameters, others):
        flambeau.testing.assert_close(a, b)
    assert "recording 0" in model.explain(), model.explain()


@pytest.mark.parametrize(
    "function",
    [lambda x: F.feature_alpha_dropout(x, 0.5, True), lambda x: flambeau.rand_like(x[:0]), lambda x: F.dropout(x, 0.0)],
    ids=["drawn in Python", "none", "none needed"],
)
def test_the_state_of_random_numbers_after_each_call(function):
    def step(x):
        return function(x)

    twins = Twins(lambda: (step, None))
    twins.call(lambda: (flambeau.randn(3, 4, 2, 2),), 5)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
        lambda x: F.adaptive_max_pool2d(x, (3, 5)),
        lambda x: F.max_pool2d(x, 3, dilation=2),
        lambda x: F.interpolate(x, size=(5, 13), mode="bicubic"),
    ],
    ids=["averages", "adaptive averages", "adaptive maxima", "dilated maxima", "interpolation"],
)
def test_pools_and_interpolation_are_native_calls(pool):
    """What they read from tables is kept, and known to whoever records."""

    def step(x):
        x = x.detach().requires_grad_()
        y = pool(x)
        (gradient,) = flambeau.autograd.grad(y.pow(2).sum(), x)
        return y.detach(), gradient

    compiled = flambeau.compile(step)
    for _ in range(5):
        x = flambeau.randn(2, 4, 9, 8)
        for ours, theirs in zip(compiled(x), step(x)):
            flambeau.testing.assert_close(ours, theirs)
    assert "0 calls through Python" in flambeau.compiler.show(compiled)
