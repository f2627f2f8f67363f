"""Functions that read values, print or change Python's objects: parts of them are compiled, and everything is as without."""

from __future__ import annotations

import collections
import dataclasses
import linecache
import random
import warnings

import pytest

import flambeau
from flambeau import nn

from . import test_programs
from .helpers import Twins, same

F = nn.functional

# Lines that cannot be recorded, and what stands around them: read values, branch on them, print, write into Python's objects.
LINES = [
    "log.append({a}.sum().item())\n    {new} = {a} + 1",
    "{new} = {a} * 2\n    if {a}.sum() > 0:\n        {new} = {new} - {b}\n        log.append('pos')\n    else:\n        {new} = {new}.tanh()",
    "count['n'] += 1\n    {new} = {a} * {b}",
    "{new} = {a}\n    for k in range(3):\n        {new} = {new} * 0.5 + {b}\n"
    "        if {new}.abs().max().item() < 1.0:\n            log.append(k)\n            break",
    "print('sum', round(float({a}.detach().sum()), 3))\n    {new} = {b}.sigmoid()",
    "parts = []\n    for row in {a}.unbind(0):\n        parts.append(row * float(row.detach().sum() > 0))\n    {new} = torch.stack(parts) + {b}",
    "total = 0.0\n    for part in {a}.chunk(2):\n        total += part.detach().sum().item()\n"
    "    log.append(round(total, 4))\n    {new} = {a} + {b}",
    "with torch.no_grad():\n        seen = {a}.mean()\n        log.append(seen.item())\n        state.add_(seen)\n    {new} = {a} * 1.5",
    "def helper(t):\n        if t.detach().sum() > 0:\n            return t * 2\n        return t - 1\n    {new} = helper({a}) + {b}",
    "scaled = [p * 2 for p in ({a}, {b})]\n    log.append(len(scaled))\n    {new} = scaled[0] + scaled[1]",
    "{new} = note({a}, {b})",
    "if bool(torch.isnan({a}).any()):\n        return None\n    {new} = {a} + 0.5",
    "try:\n        value = {a}.detach()[0, 0].item()\n        log.append(value > 0)\n"
    "    except RuntimeError:\n        log.append('error')\n    {new} = {a} - {b}",
    "rows = ({a}.detach()[:, 0] > 0).nonzero()[:, 0].tolist()\n    log.append(rows)\n    {new} = {a} * len(rows)",
]
NOTE = "def note(a, b):\n    if a.detach().sum() < 0:\n        log.append('neg')\n    return a * b + 1\n"


def program(seed: int) -> str:
    pick = random.Random(seed)
    variables, lines = ["x", "y"], []
    for k in range(pick.randint(3, 8)):
        names = {"a": pick.choice(variables), "b": pick.choice(variables), "new": f"v{k}"}
        names.update(d=pick.randint(0, 1), i=pick.randint(0, 2), j=pick.randint(0, 2))
        lines.append(pick.choice(LINES if pick.random() < 0.4 else test_programs.LINES).format(**names))
        variables.append(f"v{k}")
    kind = pick.choice(["forward", "backward", "step"])
    if kind == "forward":
        lines.append(f"return {variables[-1]}.detach(), [{variables[-2]}.detach() + 0], x.shape")
    else:
        lines += ["optimizer.zero_grad()"] if pick.random() < 0.7 else []
        lines += [f"loss = ({variables[-1]} * weight[: x.shape[0], : x.shape[1]]).sum()"]
        lines += ["log.append(loss.item())"] if pick.random() < 0.3 else []
        lines += ["loss.backward()"]
        lines += ["log.append(nn.utils.clip_grad_norm_([weight], 1.0).item())"] if pick.random() < 0.5 else []
        lines += ["if loss.item() > -1e9:\n        optimizer.step()"] if kind == "step" else []
        lines.append("return loss.detach()")
    return "def function(x, y):\n    " + "\n    ".join(lines) + "\n"


def build(text: str):
    """The function, with a source that can be looked up, and its state."""
    weight, state = flambeau.randn(6, 6).requires_grad_(), flambeau.zeros(())
    kept, log, count = [flambeau.ones(()) for _ in range(3)], [], {"n": 0}
    optimizer = flambeau.optim.SGD([weight], lr=0.01, momentum=0.5)
    space = {
        "torch": flambeau, "F": F, "nn": nn, "weight": weight, "state": state, "kept": kept, "optimizer": optimizer, "log": log,
        "count": count, "__name__": "program",
    }  # fmt: skip
    name, whole = f"<program {len(linecache.cache)}>", NOTE + text
    linecache.cache[name] = (len(whole), None, whole.splitlines(True), name)
    exec(compile(whole, name, "exec"), space)
    return space["function"], [weight, state, kept, optimizer, log, count]


def native_calls(behind) -> int:
    return sum(r.calls for r in behind.recordings()) + sum(map(native_calls, behind.parts()))


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed, capsys):
    text = program(seed)
    twins = Twins(lambda: build(text))
    try:
        for shape, times in (((4, 5), 7), ((3, 4), 4), ((4, 5), 2)):
            twins.call(lambda shape=shape: (flambeau.randn(shape), flambeau.randn(shape)), times)
    except AssertionError as error:
        raise AssertionError(f"{text}\n{error}\n{twins.compiled.explain()}") from None
    assert native_calls(twins.behind) > 0 or "rows" in text, f"{text}\n{twins.compiled.explain()}"
    printed = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("sum ")
    ]  # threads of other tests print, too
    assert printed[::2] == printed[1::2] or "break" in text  # both printed the same


def training(compiled_options, body, infinite=None):
    """A training step with something in it that cannot be recorded, as it is and compiled; what both did in sixteen calls."""
    outcomes = []
    for compiled in (False, True):
        flambeau.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = flambeau.optim.Adam(model.parameters(), lr=0.01)
        log: list = []
        step = body(model, optimizer, log)
        step = flambeau.compile(step, **compiled_options) if compiled else step
        results = []
        for i in range(16):
            draw = flambeau.Generator().manual_seed(i)
            x, y = flambeau.randn(5, 4, generator=draw), flambeau.randn(5, 1, generator=draw)
            results.append(step(x, y * float("inf") if i == infinite else y))
        outcomes.append([results, log, [p.detach() for p in model.parameters()], [p.grad for p in model.parameters()]])
    same(*outcomes)
    return step, outcomes[1]


def test_reading_a_loss_between_forward_and_backward():
    def body(model, optimizer, log):
        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            if loss > 0.5:
                log.append(loss.item())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        return step

    with pytest.warns(UserWarning) as told:
        step, _ = training({}, body)
    ours = [str(w.message) for w in told if "is split" in str(w.message)]
    assert len(ours) == 1 and "depends on values" in ours[0] and "test_splitting.py:" in ours[0]
    assert native_calls(step._compiled) >= 8  # the forward pass, the clipping and the optimizer


def test_fullgraph_refuses():
    def body(model, optimizer, log):
        def step(x, y):
            loss = F.mse_loss(model(x), y)
            log.append(loss.item())
            return loss.detach()

        return step

    with pytest.raises(RuntimeError, match="cannot be one graph: item depends on values"):
        training({"fullgraph": True}, body)


def test_prints_counts_and_callbacks(capsys):
    def body(model, optimizer, log):
        counts = collections.Counter()

        def callback(value):
            log.append(round(float(value), 4))

        def step(x, y):
            counts["steps"] += 1
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            print("loss", loss.shape)
            callback(loss.detach())
            return counts["steps"]

        return step

    step, (results, log, _, _) = training({}, body)
    assert results == list(range(1, 17)) and len(log) == 16
    assert capsys.readouterr().out == f"loss {flambeau.ones(()).shape}\n" * 32
    assert native_calls(step._compiled) >= 3


def test_a_gradient_scaler_skips_steps_with_infinities():
    def body(model, optimizer, log):
        scaler = flambeau.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            log.append(scaler.get_scale())
            return 0

        return step

    step, (_, log, _, _) = training({}, body, infinite=13)
    assert log[13] < log[12]
    assert native_calls(step._compiled) >= 3


class Gate(nn.Module):
    """A layer that reads values."""

    def __init__(self):
        super().__init__()
        self.linear, self.opened = nn.Linear(4, 4), 0

    def forward(self, x):
        x = self.linear(x)
        if x.detach().mean().item() > 0:
            self.opened += 1
            return x * 2
        return x


@dataclasses.dataclass
class Output:
    loss: flambeau.Tensor
    logits: flambeau.Tensor


class Model(nn.Module):
    """A model whose inner layer reads values, and whose result is an object."""

    def __init__(self):
        super().__init__()
        self.first, self.gate, self.last = nn.Linear(4, 4), Gate(), nn.Linear(4, 2)

    def forward(self, x, y=None):
        hidden = F.gelu(self.first(x)) + self.first(x)
        hidden = self.gate(hidden)
        logits = self.last(F.relu(hidden))
        return Output(F.mse_loss(logits, y), logits)


@pytest.mark.parametrize("way", ["function", "method", "submodule in a Sequential"])
def test_models_with_a_layer_that_reads_values(way):
    outcomes = []
    for compiled in (False, True):
        flambeau.manual_seed(1)
        model = Model()
        whole = nn.Sequential(nn.Linear(4, 4), Gate(), nn.Tanh()) if way.startswith("sub") else model
        run = flambeau.compile(whole) if compiled and way != "method" else whole
        if compiled and way == "method":
            model.compile()
        results = []
        for i in range(14):
            draw = flambeau.Generator().manual_seed(i)
            x, y = flambeau.randn(5, 4, generator=draw), flambeau.randn(5, 2, generator=draw)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = run(x) if way.startswith("sub") else run(x, y=y)
                loss = out.square().sum() if way.startswith("sub") else out.loss
                loss.backward()
            results.append(loss.detach())
        gate = whole[1] if way.startswith("sub") else model.gate
        outcomes.append([results, gate.opened, [p.grad for p in whole.parameters()]])
    same(*outcomes)
    behind = (model._compiled_call_impl if way == "method" else run.__dict__["_compiled"])._compiled
    assert native_calls(behind) >= 4


class Counting(nn.Module):
    """Counts its calls, and reads the count in one place only."""

    def __init__(self):
        super().__init__()
        self.first, self.last, self.calls, self.flavour = nn.Linear(4, 4), nn.Linear(4, 2), 0, 1.0

    def scaled(self, x):
        return x * self.flavour

    def forward(self, x):
        hidden = F.gelu(self.first(x)) + self.scaled(x)
        self.calls += 1
        return self.last(F.relu(hidden))


class Recursive(Counting):
    """The same, but a part of it calls the whole."""

    def forward(self, x, deep=True):
        hidden = F.gelu(self.first(x)) + self.scaled(x) + self.calls
        self.calls += 1
        return self(hidden, deep=False) if deep else self.last(F.relu(hidden))


@pytest.mark.parametrize("kind", [Counting, Recursive])
def test_a_module_that_counts_its_calls(kind):
    """What a part of `forward` does not read is no reason to record it again; what it reads is."""
    outcomes = []
    for compiled in (False, True):
        flambeau.manual_seed(1)
        model = kind()
        run = flambeau.compile(model) if compiled else model
        results = []
        for i in range(20):
            model.flavour = 2.0 if i == 16 else 1.0
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = run(flambeau.full((3, 4), 1.0 + i))
                out.sum().backward()
            results.append(out.detach())
        outcomes.append([results, model.calls, [p.grad for p in model.parameters()]])
    same(*outcomes)
    if kind is Counting:
        assert native_calls(run.__dict__["_compiled"]._compiled) >= 10, run.explain()


def test_a_list_or_dict_among_the_arguments_is_changed_in_every_call():
    @flambeau.compile
    def function(found, settings, x):
        settings["calls"] = settings.get("calls", 0) + 1
        y = x * 2 + 1
        found.append(y)
        return y.sum()

    found, settings = [], {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(9):
            assert function(found, settings, flambeau.full((3,), float(i))).item() == 6 * i + 3
    assert settings == {"calls": 9} and [t[0].item() for t in found] == [2 * i + 1 for i in range(9)]


def test_a_list_that_is_returned_is_the_argument():
    function = flambeau.compile(lambda found, x: (found, x + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(5):
            found = [flambeau.ones(2)]
            assert function(found, flambeau.ones(2))[0] is found


def test_gradients_reach_what_is_before_an_argument_with_a_history():
    """A compiled function that differentiates its argument and then uses the gradients of parameters outside."""
    outcomes = []
    for compiled in (False, True):
        flambeau.manual_seed(0)
        layer = nn.Linear(3, 1)
        optimizer = flambeau.optim.SGD(layer.parameters(), lr=0.1)

        def finish(loss, optimizer=optimizer):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        finish = flambeau.compile(finish) if compiled else finish
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for i in range(6):
                finish(layer(flambeau.full((2, 3), 1.0 + i)).square().mean())
        outcomes.append([p.detach() for p in layer.parameters()])
    same(*outcomes)


def test_what_cannot_be_split_runs_as_it_is():
    """A variable that an inner function sees while it changes has no copy that would stay right."""
    seen = []

    @flambeau.compile
    def function(x):
        x = x + 1
        later = lambda: x.sum().item()  # noqa: E731
        seen.append(later())
        x = x * 2
        return later()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(7):
            assert function(flambeau.full((2,), float(i))) == 4 * (i + 1)
    assert seen == [2.0 * (i + 1) for i in range(7)]
    assert function._compiled.split is None and function._compiled.reasons


def test_an_edited_source_is_not_used():
    text = "def function(x):\n    print(x.sum().item())\n    return x + 1\n"
    space = {"__name__": "program"}
    exec(compile(text, "<edited>", "exec"), space)
    other = text.replace("+ 1", "+ 2")
    linecache.cache["<edited>"] = (len(other), None, other.splitlines(True), "<edited>")
    function = flambeau.compile(space["function"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(6):
            assert function(flambeau.zeros(2)).tolist() == [1.0, 1.0]
    assert function._compiled.split is None


class Trainer:
    """State on an object, reached through methods and `super()`."""

    def __init__(self):
        self.model, self.history, self.rate = nn.Linear(3, 1), [], 0.1

    def note(self, loss):
        self.history.append(loss.item())


class LoudTrainer(Trainer):
    def note(self, loss):
        super().note(loss)
        self.rate = 0.1 / len(self.history)

    def step(self, x, *, scale=1.0):
        for p in self.model.parameters():
            p.grad = None
        loss = (self.model(x) * scale).square().mean()
        loss.backward()
        self.note(loss)
        with flambeau.no_grad():
            for p in self.model.parameters():
                p -= self.rate * p.grad
        return loss.detach()


def test_methods_of_objects():
    outcomes = []
    for compiled in (False, True):
        flambeau.manual_seed(0)
        trainer = LoudTrainer()
        step = flambeau.compile(trainer.step) if compiled else trainer.step
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = [step(flambeau.full((2, 3), 1.0 + i / 3), scale=0.5) for i in range(9)]
        outcomes.append([results, trainer.history, trainer.rate, [p.detach() for p in trainer.model.parameters()]])
    same(*outcomes)


def test_functions_of_imported_modules(tmp_path):
    """CPython compiles `F.relu(x)` otherwise where the file imports F: the source is recognised nevertheless."""
    file = tmp_path / "imports_functional.py"
    file.write_text(
        "import flambeau\nimport flambeau.nn.functional as F\nseen = []\n"
        "def f(x):\n    y = F.relu(x)\n    seen.append(y.sum().item())\n    return F.gelu(y)\n"
    )
    found: dict = {"__name__": "imports_functional"}
    exec(compile(file.read_text(), str(file), "exec"), found)
    f = flambeau.compile(found["f"])
    x = flambeau.randn(3, 4)
    with pytest.warns(UserWarning, match=r"is split.*imports_functional.py:6") as said:
        results = [f(x) for _ in range(6)]
    assert said[0].filename == __file__  # the line that called it
    assert len(f._compiled.parts()) == 2 and len(found["seen"]) == 6
    assert all(flambeau.equal(r, F.gelu(F.relu(x))) for r in results)


def test_errors_name_the_line():
    """Where a function must be one graph and cannot be, the line is named."""

    def f(x):
        if x.sum() > 0:
            return x
        return -x

    compiled = flambeau.compile(f, fullgraph=True)
    compiled(flambeau.ones(2))
    line = f.__code__.co_firstlineno + 1
    with pytest.raises(RuntimeError, match=rf"f cannot be one graph: .* \(.*test_splitting.py:{line}\)"):
        compiled(flambeau.ones(2))


def test_a_number_that_changes_in_every_call():
    """A step's number, or a weight that is annealed: what does not read it is compiled."""
    model = nn.Linear(3, 2)
    twin = nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    log: list = []

    def run(net, log, x, number, weight=1.0):
        net.zero_grad()
        loss = net(x).square().mean()
        scaled = loss * weight
        scaled.backward()
        if number % 3 == 0:
            log.append((number, loss.item()))
        return scaled

    def step(x, number, weight=1.0):
        model.zero_grad()
        loss = model(x).square().mean()
        scaled = loss * weight
        scaled.backward()
        if number % 3 == 0:
            log.append((number, loss.item()))
        return scaled

    expected: list = []
    compiled = flambeau.compile(step)
    x = flambeau.randn(5, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(14):
            got = compiled(x, k, weight=0.1 * k)
            same(got.detach(), run(twin, expected, x, k, weight=0.1 * k).detach())
            same(model.weight.grad, twin.weight.grad)
    assert log == expected
    behind = compiled._compiled
    assert behind.varying == {"number", "weight"}
    assert any(r.checked for part in behind.parts() for r in part.recordings())


class _Annealed(nn.Module):
    """Divides by a number that somebody changes."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.heat = nn.Linear(4, 8), nn.Linear(8, 4), 1.0

    def forward(self, x):
        h = self.first(x).relu()
        h = h / self.heat
        return self.second(h)


@pytest.mark.parametrize("every", [1, 20])
def test_state_that_changes_again_and_again(every):
    """What changes in every call splits the function at what reads it; what changes now and then is recorded again each time."""
    model = _Annealed()
    compiled = flambeau.compile(model)
    x = flambeau.randn(3, 4)
    with warnings.catch_warnings(), flambeau.no_grad():
        warnings.simplefilter("ignore")
        for k in range(30 if every == 1 else 220):
            if k % every == 0:
                model.heat *= 0.99
            same(compiled(x), model(x))
    behind = compiled._compiled._compiled
    if every == 1:
        calls = [sum(r.calls for r in part.recordings()) for part in behind.parts()]
        assert len(calls) == 2 and min(calls) > 10 and len(behind.reasons) == 1
    else:
        assert not behind.parts() and not behind.reasons and len(behind.causes) == 10


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_numbers_that_change_where_state_cannot_be_known(capsys):
    """A function that prints, and gets another number in each call, however it gets it."""

    def prints(x, i):
        print(i)
        y = x * 2
        return y + i

    def several(x, *numbers, **named):
        y = x * 2
        return y + sum(numbers) + named["k"]

    one, other = flambeau.compile(prints), flambeau.compile(several)
    for i in range(12):
        assert one(flambeau.ones(3), i).tolist() == [2.0 + i] * 3
        assert other(flambeau.ones(3), i, i + 1, k=3 * i).tolist() == [3.0 + 5 * i] * 3
    assert capsys.readouterr().out.split() == [str(i) for i in range(12)]
    for f in (one, other):
        assert max(sum(r.calls for r in part.recordings()) for part in f._compiled.parts()) > 2
