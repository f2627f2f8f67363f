"""Sizes of arguments that change from call to call."""

from __future__ import annotations

import pytest

import flambeau
from flambeau import nn

from .helpers import Twins

F = nn.functional


def build():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = flambeau.optim.Adam(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, [model, optimizer]


def batch(size):
    return lambda: (flambeau.randn(size, 4), flambeau.randint(0, 2, (size,)))


def test_a_new_size_is_recorded_at_once_and_run_from_its_third_call_on():
    twins = Twins(build)
    twins.call(batch(8), 5)
    for size in range(9, 20):  # more than there may be recordings of different kinds
        native = twins.native
        twins.call(batch(size), 3)
        assert twins.native == native + 1, twins.compiled.explain()
    assert not twins.behind.reasons
    assert "argument 0 has the shape [9, 4] instead of [8, 4]" in twins.compiled.explain()
    native = twins.native
    twins.call(batch(8), 2)
    twins.call(batch(19), 2)
    assert twins.native == native + 4


def test_a_new_size_needs_no_new_kernels(monkeypatch):
    from flambeau.backends.cpu import jit

    twins = Twins(build)
    twins.call(batch(8), 5)
    twins.call(batch(9), 4)
    before = len(jit.signatures)
    twins.call(batch(11), 4)
    assert len(jit.signatures) == before


def test_the_oldest_sizes_are_forgotten(monkeypatch):
    from flambeau.compiler import sizes

    monkeypatch.setattr(sizes, "KEPT", 3)
    twins = Twins(build)
    twins.call(batch(2), 4)
    for size in (3, 4, 5, 6, 2, 3):
        twins.call(batch(size), 3)
    assert len(twins.behind.recordings()) <= 4


def test_without_dynamic_sizes_each_is_a_kind_of_its_own():
    twins = Twins(build, dynamic=False)
    for size in range(2, 13):
        twins.call(batch(size), 3)
    assert len(twins.behind.recordings()) == 8 and "recordings already" in twins.behind.reasons[0]


def test_marks_say_which_sizes_change():
    function = flambeau.compile(lambda x: x * 2 + 1, dynamic=False)
    for size in range(2, 14):
        for _ in range(3):
            x = flambeau.ones(size, 3)
            flambeau._dynamo.mark_dynamic(x, 0)
            assert function(x).sum().item() == 9 * size
    assert not function._compiled.reasons and len(function._compiled.recordings()) == 12

    still = flambeau.compile(lambda x: x * 2 + 1)
    with pytest.warns(UserWarning, match="8 recordings already"):
        for size in range(2, 14):
            for _ in range(3):
                x = flambeau.ones(size, 3)
                flambeau._dynamo.mark_static(x, 0)
                assert still(x).sum().item() == 9 * size
    with pytest.raises(IndexError, match="2 dimensions has none with number 2"):
        flambeau._dynamo.mark_dynamic(flambeau.ones(1, 1), 2)


def test_control_flow_on_sizes_is_followed():
    def function(x):
        if x.shape[0] > 4:
            return x.sum(0)
        return x.mean(0) * x.shape[0] - 1

    twins = Twins(lambda: (function, None))
    for size in (3, 6, 4, 5, 3, 6):
        twins.call(lambda size=size: (flambeau.randn(size, 2),), 3)


def test_recordings_share_their_memory():
    function = flambeau.compile(lambda x: ((x @ x).tanh() @ x).sum())
    for size in (64, 32, 48, 16):
        for _ in range(4):
            x = flambeau.full((size, size), 0.01)
            assert function(x).item() == pytest.approx(((x @ x).tanh() @ x).sum().item(), rel=1e-6)
    recordings = function._compiled.recordings()
    assert len(recordings) == 4 and len({r.program.arena.ptr for r in recordings}) == 1


def test_sizes_that_never_come_back():
    """Recording each of them would take longer than running them as they are."""
    compiled = flambeau.compile(lambda x: x.exp().cumsum(0) * 2)
    for n in (2, 2, 2, 2, *range(3, 40)):
        x = flambeau.randn(n, 3)
        flambeau.testing.assert_close(compiled(x), x.exp().cumsum(0) * 2)
    behind = compiled._compiled
    assert 2 < len(behind.recordings()) < 10 and not behind.reasons
    for _ in range(6):
        compiled(flambeau.randn(39, 3))
    assert len(behind.recordings()) < 11 and behind.recordings()[-1].calls > 0


def test_sizes_that_change_in_every_call_are_given_up():
    """Nothing is kept of them, little is recorded, and one reason is told; what is called with one size later is native again."""
    recorded = []
    compiled = flambeau.compile(lambda x: x.exp().cumsum(0) * 2)
    with pytest.warns(UserWarning, match="other sizes in nearly every call") as told:
        for n in (*range(1, 301), *range(1, 301)):
            x = flambeau.randn(n, 3)
            flambeau.testing.assert_close(compiled(x), x.exp().cumsum(0) * 2)
            recorded.append(len(compiled._compiled.recordings()))
    behind = compiled._compiled
    assert len(told) == 1 and len(behind.reasons) == 1 and behind.reasons[0] in compiled.explain()
    assert max(recorded) <= 3 and not behind.recordings() and not behind.last
    assert len(behind.found) <= 64 and len(behind.causes) <= 64
    for _ in range(2000):
        compiled(x)
        if behind.last is not None:
            break
    assert behind.recordings()[0].calls


def test_recordings_of_sizes_are_earned():
    """Sizes that come three times each and never again are not worth one each."""
    compiled = flambeau.compile(lambda x: x.exp().cumsum(0) * 2)
    made = set()
    for n in (n for n in range(1, 100) for _ in range(3)):
        x = flambeau.randn(n, 3)
        flambeau.testing.assert_close(compiled(x), x.exp().cumsum(0) * 2)
        made |= set(map(id, compiled._compiled.recordings()))
    assert 5 < len(made) < 20


def test_a_size_between_many_others_stays_native():
    compiled = flambeau.compile(lambda x: x.exp().cumsum(0) * 2)
    usual = flambeau.randn(3, 3)
    for n in (n for k in range(4, 300) for n in (3, k)):
        compiled(usual if n == 3 else flambeau.randn(n, 3))
    behind = compiled._compiled
    assert not behind.reasons and sum(r.calls for r in behind.recordings()) > 250
