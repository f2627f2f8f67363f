"""Compiled functions in other threads and processes, and copies of compiled modules."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import threading
from typing import Any

import pytest

import flambeau
from flambeau import nn
from flambeau.nn import functional as F

from .helpers import SETTLED


def training() -> Any:
    flambeau.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.Linear(16, 3))
    optimizer = flambeau.optim.Adam(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def losses(step: Any, first: int, last: int) -> list[float]:
    found = []
    for number in range(first, last):
        generator = flambeau.Generator().manual_seed(number)
        x, y = flambeau.randn(64, 12, generator=generator), flambeau.randint(0, 3, (64,), generator=generator)
        found.append(step(x, y).item())
    return found


def test_threads_that_compile_at_once() -> None:
    expected, found = losses(training(), 0, 2 * SETTLED), {}
    steps = [flambeau.compile(training()) for _ in range(4)]

    def work(number: int) -> None:
        found[number] = losses(steps[number], 0, 2 * SETTLED)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(found) and all(found[n] == pytest.approx(expected, rel=1e-5) for n in range(4))


def test_one_function_in_several_threads() -> None:
    flambeau.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 3)).requires_grad_(False)
    compiled, inputs = flambeau.compile(model), [flambeau.randn(64, 12) for _ in range(8)]
    expected, wrong = [model(x) for x in inputs], []

    def work() -> None:
        for _ in range(4):
            wrong.extend(not flambeau.allclose(compiled(x), right, atol=1e-6) for x, right in zip(inputs, expected))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 4 * 4 * 8 and not any(wrong)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork()")
def test_a_process_that_is_forked_goes_on_and_so_does_its_parent() -> None:
    expected = losses(training(), 0, 2 * SETTLED)
    compiled = flambeau.compile(training())
    assert losses(compiled, 0, SETTLED) == pytest.approx(expected[:SETTLED], rel=1e-5)
    context: Any = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=lambda: theirs.send(losses(compiled, SETTLED, 2 * SETTLED)))
    child.start()
    assert ours.poll(120) and ours.recv() == pytest.approx(expected[SETTLED:], rel=1e-5)
    child.join()
    assert losses(compiled, SETTLED, 2 * SETTLED) == pytest.approx(expected[SETTLED:], rel=1e-5)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("inside", [False, True])
def test_copies_of_compiled_modules_are_modules_of_their_own(copied: Any, inside: bool) -> None:
    """Names in state_dict are those of PyTorch's OptimizedModule; `module.compile()` changes none."""
    compiled: Any = Net() if inside else flambeau.compile(Net())
    if inside:
        compiled.compile()
    x = flambeau.randn(2, 3)
    for _ in range(SETTLED):
        compiled(x).sum().backward()
    before, other = compiled(x), copied(compiled)
    prefix = "" if inside else "_orig_mod."
    assert list(other.state_dict()) == [f"{prefix}layer.weight", f"{prefix}layer.bias"]
    with flambeau.no_grad():
        for p in other.parameters():
            p.fill_(2)
    for _ in range(SETTLED):
        flambeau.testing.assert_close(other(x), x.sum(1, keepdim=True).expand(2, 3) * 2 + 2)
        assert flambeau.equal(compiled(x), before)
