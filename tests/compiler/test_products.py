"""Products of a compiled step: which code runs them, and rows of tables that are multiplied once."""

import pytest

import flambeau
from flambeau import nn
from flambeau.backends.cpu.onednn.direct import DirectProduct
from flambeau.backends.cpu.onednn.plan import PrimitivePlan
from flambeau.nn import functional as F


def plans(compiled):
    (recorded,) = compiled._compiled.recordings()
    return [s.plan for s in recorded.program.graph.steps if getattr(s, "plan", None) is not None]


@pytest.mark.parametrize(
    ("rows", "inner", "columns", "kind"), [(32, 128, 96, PrimitivePlan), (4, 128, 96, DirectProduct), (16, 8, 8, DirectProduct)]
)  # fmt: skip
def test_small_products_by_transposed_matrices_have_code_for_their_shape(rows, inner, columns, kind):
    layer, plain = nn.Linear(inner, columns), nn.Linear(inner, columns, bias=False)

    @flambeau.compile
    def both(x):
        with flambeau.no_grad():
            return layer(x), plain(x)

    for _ in range(5):
        x = flambeau.randn(rows, inner)
        flambeau.testing.assert_close(both(x), (layer(x), plain(x)))
    assert [type(p) for p in plans(both)] == [kind, kind]


class Tagger(nn.Module):
    def __init__(self, recurrent, padding_idx=None):
        super().__init__()
        self.embed = nn.Embedding(200, 64, padding_idx=padding_idx)
        self.inner = nn.LSTM(64, 64) if recurrent else nn.Linear(64, 96)
        self.head = nn.Linear(64 if recurrent else 96, 5)

    def forward(self, tokens):
        x = self.inner(self.embed(tokens))
        return self.head(F.relu(x[0] if isinstance(x, tuple) else x))


def training_step(model):
    optimizer = flambeau.optim.SGD(model.parameters(), lr=0.5)

    def step(tokens, targets):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return step


def twice(*arguments):
    """A model, and another with the same parameters."""
    model, other = Tagger(*arguments), Tagger(*arguments)
    other.load_state_dict(model.state_dict())
    return model, other


def stages(compiled):
    (recorded,) = compiled._compiled.recordings()
    return [stage.name for stage in recorded.trail]


@pytest.mark.parametrize("arguments", [(True,), (False,), (False, 3)], ids=["lstm", "linear", "padding"])
def test_rows_that_a_table_gives_several_times_are_multiplied_once(arguments):
    model, other = twice(*arguments)
    eager, compiled = training_step(model), flambeau.compile(training_step(other))
    for words in (20, 20, 20, 20, 200, 1, 60):  # how many there are changes what is computed, never the result
        tokens, targets = flambeau.randint(0, words, (12, 8)), flambeau.randint(0, 5, (12, 8))
        flambeau.testing.assert_close(compiled(tokens, targets), eager(tokens, targets))
        for p, q in zip(model.parameters(), other.parameters()):
            flambeau.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-6)
            flambeau.testing.assert_close(q, p, rtol=1e-4, atol=1e-5)
    assert "multiplying rows once" in stages(compiled)


def test_rows_that_all_differ_are_multiplied_as_they_are():
    model, other = twice(False)
    eager, compiled = training_step(model), flambeau.compile(training_step(other))
    for _ in range(5):
        tokens, targets = flambeau.randperm(200)[:96].view(12, 8), flambeau.randint(0, 5, (12, 8))
        flambeau.testing.assert_close(compiled(tokens, targets), eager(tokens, targets))
    assert "multiplying rows once" not in stages(compiled)


def test_a_bad_index_is_found_before_rows_are_counted():
    compiled = flambeau.compile(training_step(Tagger(False)))
    tokens, targets = flambeau.randint(0, 20, (12, 8)), flambeau.randint(0, 5, (12, 8))
    for _ in range(4):
        compiled(tokens, targets)
    assert "multiplying rows once" in stages(compiled)
    tokens[3, 4] = 200
    with pytest.raises(IndexError, match="out of range"):
        compiled(tokens, targets)


def test_rows_that_something_else_reads_stay():
    table, weight = flambeau.randn(50, 64), flambeau.randn(64, 64)

    @flambeau.compile
    def f(tokens):
        rows = F.embedding(tokens, table)
        return rows @ weight, rows.sum(1)

    for _ in range(5):
        tokens = flambeau.randint(0, 5, (96,))
        rows = table[tokens]
        flambeau.testing.assert_close(f(tokens), (rows @ weight, rows.sum(1)))
    assert "multiplying rows once" not in stages(f)
