"""What `compiler.show` tells, the drawing, and single passes."""

from __future__ import annotations

import warnings
import xml.etree.ElementTree

import flambeau
from flambeau import nn

from .helpers import SETTLED, Twins

F = nn.functional


def trained(times: int = 5, loud: bool = False):
    flambeau.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
    optimizer = flambeau.optim.SGD(model.parameters(), lr=0.1)
    log = []

    @flambeau.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x).squeeze(1) * 2 + 1, y)
        loss.backward()
        optimizer.step()
        if loud:
            log.append(loss.item())
        return loss.detach() * 2

    for _ in range(times):
        step(flambeau.randn(16, 4), flambeau.randn(16))
    return step


def test_text():
    step = trained()
    text = flambeau.compiler.show(step)
    assert text == step.explain()
    for part in ("recording 0", "after recording (", "after fusing loops (", "mul+add(", "bytes moved", "arena ", "times:", " us ",
                 "words of memory guard it", "it depends on the arguments and on"):  # fmt: skip
        assert part in text, part


def test_fusing_moves_fewer_bytes():
    stages = trained()._compiled.recordings()[0].trail
    assert stages[0].name == "recording" and stages[-1].bytes < stages[0].bytes and stages[-1].steps < stages[0].steps


def test_text_says_why_there_is_another_recording():
    step = trained()
    for _ in range(3):
        step(flambeau.randn(5, 4), flambeau.randn(5))
    assert "recorded again because\n  argument 0 has the shape [5, 4] instead of [16, 4]" in step.explain()


def test_text_of_a_function_in_parts():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = trained(8, loud=True).explain()
    assert "is split because\n  item depends on values (" in text and "  | recording 0" in text


def test_a_drawing(tmp_path):
    step = trained()
    flambeau.compiler.show(step, picture=tmp_path / "step.svg")
    root = xml.etree.ElementTree.fromstring((tmp_path / "step.svg").read_text())
    written = " ".join(t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "after fusing loops" in written and "arena: " in written
    assert len(list(root.iter("{http://www.w3.org/2000/svg}rect"))) > 30


def test_a_drawing_of_a_model():
    model = flambeau.compile(nn.Linear(2, 2))
    assert model.picture().startswith("<svg")
    for _ in range(4):
        model(flambeau.ones(3, 2)).sum().backward()
    assert "derivative" in model.picture()


def test_the_same_thing_twice_is_computed_once():
    @flambeau.compile
    def function(x):
        a = (x.exp() * 2).sum(0)
        x.add_(1)
        b = (x.exp() * 2).sum(0)  # of other values
        c = (x.exp() * 2).sum(0)
        return a + 3 * b + 5 * c

    for i in range(5):
        x = flambeau.full((3, 2), float(i))
        expected = 3 * (2 * (x.exp() + 8 * (x + 1).exp()))[0]
        flambeau.testing.assert_close(function(x), expected)
    names = [stage.name for stage in function._compiled.recordings()[0].trail]
    assert "sharing" in names
    assert function._compiled.recordings()[0].trail[-1].text.count("sum(") == 2


def steps_of(function, *args):
    """Names of the steps that a function becomes, and its recording."""
    compiled = flambeau.compile(function)
    for _ in range(5):
        ours = compiled(*args)
    flambeau.testing.assert_close(ours, function(*args))
    (recorded,) = compiled._compiled.recordings()
    assert recorded.calls
    return [step.name for step in recorded.program.graph.steps], recorded


def test_constants_are_computed_once():
    def function(x):
        places = flambeau.arange(x.shape[1]) * 2  # depends on nothing
        return (x + places).cumsum(1)

    names, recorded = steps_of(function, flambeau.randn(3, 4))
    assert not any("arange" in n for n in names) and "after folding constants" in "\n".join(
        f"after {s.name}" for s in recorded.trail
    )


def test_a_constant_that_is_changed_later_is_none():
    def function(x):
        t = flambeau.arange(4)
        first = t.cumsum(0) + x
        t.add_(1)
        return first, t.cumsum(0) * x

    steps_of(function, flambeau.randn(4))


def test_the_same_product_is_computed_once_and_one_that_nobody_needs_never():
    w = flambeau.randn(6, 6)

    def function(x):
        x.mm(x)  # nobody needs this
        return x.mm(w).exp() + x.mm(w)

    with flambeau.no_grad():
        names, _ = steps_of(function, flambeau.randn(6, 6))
    assert names.count("mm") == 1


def test_only_what_is_changed_is_copied_for_the_comparison(monkeypatch):
    from flambeau.compiler.runtime import first_run

    saved = []
    put_back = first_run.Rehearsal._restore_copies

    def watched(self, copies):
        saved.append(sum(len(old) for _, old, _ in copies))
        put_back(self, copies)

    monkeypatch.setattr(first_run.Rehearsal, "_restore_copies", watched)
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 64))
    optimizer = flambeau.optim.SGD(model[2].parameters(), lr=0.1)

    @flambeau.compile
    def step(x):
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(4):
        step(flambeau.randn(8, 64))
    changed = [*model[2].parameters(), *model[1].buffers()]
    assert sum(saved) == sum(t.nbytes for t in changed)
    assert max(saved) < sum(saved), "what no later step needs is put back at once"


def test_biases_are_added_while_it_multiplies(monkeypatch):
    from flambeau.compiler.record.recording import Recorded

    layer = nn.Linear(96, 256)

    def function(x):
        with flambeau.no_grad():
            return layer(x)

    x = flambeau.randn(300, 96)
    _, recorded = steps_of(function, x)
    assert recorded.trail[-1].name == "joining epilogues" and recorded.program.graph.rounded_otherwise

    compare = Recorded._compare
    monkeypatch.setattr(
        Recorded, "_compare", lambda self, *a: "too far" if self.program.graph.rounded_otherwise else compare(self, *a)
    )
    compiled = flambeau.compile(function)
    for _ in range(7):
        flambeau.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)
    (recorded,) = compiled._compiled.recordings()  # the second one, which keeps every bit
    assert recorded.calls and not recorded.program.graph.rounded_otherwise and not compiled._compiled.reasons


def test_a_formula_that_would_fill_pages_is_not_shown():
    def function(x):
        for _ in range(40):
            x = x * x + 0.5  # written out, each is twice as long as the one before
        return x

    _, recorded = steps_of(function, flambeau.zeros(3))
    assert "# a formula of " in recorded.trail[-1].text


def test_gradients_of_attention_are_written_where_they_are_joined():
    """Queries, keys and values that were cut out of one matrix: their gradients become one matrix without a copy."""

    def build():
        layer = nn.Linear(8, 24)

        def step(x):
            layer.zero_grad()
            q, k, v = (p.view(2, 5, 2, 4).transpose(1, 2) for p in layer(x).split(8, 2))
            loss = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).square().sum()
            loss.backward()
            return loss

        return step, layer

    twins = Twins(build)
    twins.call(lambda: (flambeau.randn(2, 5, 8),), SETTLED + 1)
    assert twins.native
    stages = {s.name: s.text for s in twins.behind.recordings()[0].trail}
    assert stages["recording"].count("_cat") == 3 and "_cat" not in stages["placing results"]


def test_gradients_are_not_written_where_zeros_come_later():
    """The parts of a projection that a layer takes out one by one: the gradient of each lies among zeros, which come after it."""

    def build():
        layer = nn.MultiheadAttention(4, 2)

        def step(x):
            layer.zero_grad()
            loss = layer(x, x, x, need_weights=False)[0].square().sum()
            loss.backward()
            return loss

        return step, layer

    twins = Twins(build)
    twins.call(lambda: (flambeau.randn(3, 1, 4),), SETTLED + 1)
    assert twins.native
