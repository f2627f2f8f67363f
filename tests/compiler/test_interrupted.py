"""Errors and interruptions in the calls that record and compare: nothing is lost, nothing stays switched."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import flambeau
from flambeau import nn
from flambeau.compiler import function as room
from flambeau.compiler.passes import pipeline
from flambeau.compiler.record import recorder, recording
from flambeau.compiler.runtime import first_run
from flambeau.nn import functional as F


class Training:
    def __init__(self) -> None:
        flambeau.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        self.optimizer = flambeau.optim.Adam(self.model.parameters(), lr=0.01)

    def step(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def everything(self) -> list[Any]:
        states = [v for s in self.optimizer.state.values() for v in s.values()]
        return [
            t.clone() for t in [*self.model.state_dict().values(), *states, *(p.grad for p in self.model.parameters())]
        ]


def data(number: int) -> tuple[Any, Any]:
    generator = flambeau.Generator().manual_seed(number)
    return flambeau.randn(16, 6, generator=generator), flambeau.randint(0, 3, (16,), generator=generator)


def _interrupted(*args: Any, **kwargs: Any) -> None:
    raise KeyboardInterrupt


def goes_on(training: Training, compiled: Any) -> None:
    """Compiled calls give what eager ones give."""
    other = Training()
    other.model.load_state_dict(training.model.state_dict())
    other.optimizer.load_state_dict(copy.deepcopy(training.optimizer.state_dict()))
    for i in range(6):
        flambeau.testing.assert_close(compiled(*data(i)), other.step(*data(i)))
    assert not room.recording.on and compiled._compiled.recordings()[0].checked


def test_an_error_while_comparing_leaves_everything_as_it_was() -> None:
    """The recording has run already, on the memory of gradients that the function was going to drop."""
    training = Training()
    compiled = flambeau.compile(training.step)
    for i in range(2):
        compiled(*data(i))
    before = training.everything()
    with pytest.raises(KeyboardInterrupt):
        compiled._compiled.recordings()[0].check(list(data(2)), _interrupted)
    assert all(map(flambeau.equal, training.everything(), before))
    goes_on(training, compiled)


@pytest.mark.parametrize(
    "owner, name", [(recording, "TensorPrint"), (first_run.Rehearsal, "after"), (first_run.Rehearsal, "before")]
)
def test_interrupting_a_comparison(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    training = Training()
    compiled = flambeau.compile(training.step)
    for i in range(2):
        compiled(*data(i))
    before = training.everything()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(owner, name, _interrupted)
        compiled(*data(2))
    assert all(map(flambeau.equal, training.everything(), before))
    goes_on(training, compiled)


def test_interrupting_what_puts_everything_back(monkeypatch: pytest.MonkeyPatch) -> None:
    training, calls = Training(), []
    compiled = flambeau.compile(training.step)
    for i in range(2):
        compiled(*data(i))
    before, show = training.everything(), first_run.Print

    def once(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return show(*args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(first_run, "Print", once)
        compiled(*data(2))
    assert all(map(flambeau.equal, training.everything(), before))
    goes_on(training, compiled)


def test_interrupting_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception cannot leave what a native call tells the recorder: it comes when the call is over."""
    training = Training()
    compiled = flambeau.compile(training.step)
    compiled(*data(0))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(recorder.StepRecorder, "_record_launch", _interrupted)
        compiled(*data(1))
    goes_on(training, compiled)


def test_a_mistake_while_compiling_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call has its result; the function runs as it is from then on."""
    training = Training()
    compiled = flambeau.compile(training.step)
    compiled(*data(0))
    monkeypatch.setattr(pipeline, "run", lambda *args: 1 / 0)
    with pytest.warns(UserWarning, match="compiling it failed with ZeroDivisionError"):
        compiled(*data(1))
    assert flambeau.isfinite(compiled(*data(2)))
