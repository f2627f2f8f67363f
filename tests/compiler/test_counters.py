"""Numbers that a function only counts are counted on; numbers that decide something are not taken for such."""

from __future__ import annotations

import pytest

import flambeau
from flambeau import nn

total = 0
by_text = 0


class Counting(nn.Module):
    """Counts calls and elements."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.calls, self.elements, self.left = 0, 0, 100

    def forward(self, x):
        self.calls += 1
        self.elements += len(x)
        self.left -= 2
        return self.layer(x)


class Deciding(Counting):
    """Does something else in every third call."""

    def forward(self, x):
        self.calls += 1
        return self.layer(x) if self.calls % 3 else x


class Reading(Counting):
    """Reads its counter through a property."""

    @property
    def odd(self):
        return self.calls % 2

    def forward(self, x):
        self.calls += 1
        return self.layer(x) * (1 + self.odd)


class ByText(Counting):
    """Reads its counter by its name as a text."""

    def forward(self, x):
        self.calls += 1
        return self.layer(x) + getattr(self, "calls")  # noqa: B009


class Formatting(Counting):
    """Reads its counter in a text."""

    def forward(self, x):
        self.calls += 1
        return self.layer(x) + len("{0.calls:10}".format(self).strip())  # noqa: UP030, UP032


class Resetting(Counting):
    """Sets its counter back by itself."""

    def forward(self, x):
        self.calls += 1
        if x.shape[0] > 3:
            self.calls = 0
        return self.layer(x)


def _same(kind, sizes=(3,) * 12):
    flambeau.manual_seed(0)
    plain, other = kind(), kind()
    other.load_state_dict(plain.state_dict())
    compiled = flambeau.compile(other)
    with flambeau.no_grad():
        for n in sizes:
            x = flambeau.randn(n, 4)
            flambeau.testing.assert_close(compiled(x), plain(x))
            assert (other.calls, other.elements, other.left) == (plain.calls, plain.elements, plain.left)
    return compiled._compiled._compiled


def test_counters_are_counted():
    behind = _same(Counting)
    assert [r.checked for r in behind.recordings()] == [True] and not behind.reasons
    assert behind.recordings()[0].calls > 4


def test_counters_of_several_sizes():
    _same(Counting, (3, 5, 3, 5, 3, 5, 3, 5, 3, 5, 7, 7, 7))


@pytest.mark.parametrize("kind", [Deciding, Reading, ByText, Formatting, Resetting])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_numbers_that_decide(kind):
    _same(kind, (3, 3, 3, 3, 3, 3, 5, 3, 3, 3, 5, 5, 5, 5, 3))


def test_changed_from_outside():
    """Somebody sets the counter: it is counted on from there; a number that is no integer any more is found out."""
    model = Counting()
    compiled = flambeau.compile(model)
    x = flambeau.randn(3, 4)
    with flambeau.no_grad():
        for _ in range(6):
            compiled(x)
        model.calls = 40
        compiled(x)
        assert model.calls == 41
        model.calls = 0.5
        compiled(x)
        compiled(x)
    assert model.calls == 2.5


def test_variables_around():
    """A global and a variable of an enclosing function."""
    seen = 0

    def f(x):
        global total
        nonlocal seen
        total += 1
        seen += x.shape[1]
        return x * 2

    compiled = flambeau.compile(f)
    for _ in range(8):
        assert compiled(flambeau.ones(2, 3)).sum() == 12
    assert seen == 24 and total == 8
    assert compiled._compiled.recordings()[0].calls > 2


def test_a_global_that_is_read():
    """What another function that is called reads is no counter."""

    def read():
        return by_text

    def f(x):
        global by_text
        by_text += 1
        return x * read()

    compiled = flambeau.compile(f)
    results = [float(compiled(flambeau.ones(2))[0]) for _ in range(8)]
    assert results == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


def test_errors_count_as_without():
    """A call whose arguments are refused changes nothing but what it has counted before."""
    model = Counting()
    compiled = flambeau.compile(model)
    with flambeau.no_grad():
        for _ in range(6):
            compiled(flambeau.randn(3, 4))
        with pytest.raises(RuntimeError):
            compiled(flambeau.randn(3, 5))
    assert model.calls == 7
