"""A tensor that is used as a number, compiled: whatever its value is in the next call, the result is that of an eager call."""

from __future__ import annotations

import functools
import importlib.util
import threading
import types
import warnings
from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau import nn
from flambeau.core import watching

from .helpers import Twins
from .numbers_in_tensors import FORMS

SAME = 4  # calls with one value: by then the function runs as it was recorded
VALUES = [2] * SAME + [3, 1, 0, 2]
HEAD = """
import math, operator
import numpy as np
import flambeau as torch
from flambeau.nn import functional as F
"""
# As one of several statements, as all that there is, and differentiated.
FUNCTIONS = """
def stated(x, n, p, s):
    y = {form}
    z = x * 2 + 1
    return y, z

def returned(x, n, p, s):
    return {form}

def differentiated(x, n, p, s):
    y = {form}
    z = (x * 2).sum()
    if isinstance(y, torch.Tensor) and y.requires_grad:
        z = z + (y * y).sum()
    z.backward()
    return z.detach(), x.grad
"""


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    """The functions of every form, in modules with a source, so that they can be split."""
    folder = tmp_path_factory.mktemp("numbers")

    def load(form: str) -> Any:
        path = folder / f"form{FORMS.index(form)}.py"
        path.write_text(HEAD + FUNCTIONS.format(form=form))
        spec: Any = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def seen(value: Any) -> Any:
    """A value with tensors and arrays as lists, beside what else can be seen of them."""
    if isinstance(value, flambeau.Tensor):
        return [tuple(value.shape), value.stride(), str(value.dtype), value.tolist()]
    if isinstance(value, np.ndarray):
        return [value.shape, str(value.dtype), value.tolist()]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(seen, value)]
    return value if isinstance(value, (int, float, complex, str, bool, dict)) else type(value).__name__


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b) or abs(a - b) <= 1e-4 * max(1.0, abs(a))
    return bool(a == b)


def outcome(function: Any, value: int, state: Any, grad: bool) -> list:
    """What a call gives and leaves behind; the type of the error where it raises one."""
    x = flambeau.arange(24.0).reshape(4, 6)
    if grad:
        x.requires_grad_()
    state.n.fill_(value)
    state.p.fill_(value / 10)
    flambeau.manual_seed(5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = seen(function(x, flambeau.tensor(value), flambeau.tensor(value / 10), state))
        except Exception as error:
            return [type(error).__name__]
    return [found, x.tolist(), flambeau.rand(1).item()]


def is_differentiated(module: Any) -> bool:
    """Whether a form has a derivative: without one, the function that asks for it does what the one with several statements does."""
    state = types.SimpleNamespace(n=flambeau.tensor(2), p=flambeau.tensor(0.2))
    x = flambeau.arange(24.0).reshape(4, 6).requires_grad_()
    try:
        found = module.returned(x, flambeau.tensor(2), flambeau.tensor(0.2), state)
    except Exception:
        return True
    return isinstance(found, flambeau.Tensor) and found.requires_grad


@pytest.mark.parametrize("form", FORMS)
def test_its_value_may_change(functions, form):
    module = functions(form)
    for name in ("stated", "returned", *(["differentiated"] if is_differentiated(module) else [])):
        function = getattr(module, name)
        compiled = flambeau.compile(function)
        states = [types.SimpleNamespace(n=flambeau.tensor(2), p=flambeau.tensor(0.2)) for _ in range(2)]
        for number, value in enumerate(VALUES):
            grad = name == "differentiated"
            eager = outcome(function, value, states[0], grad)
            ours = outcome(compiled, value, states[1], grad)
            assert alike(eager, ours), (
                f"{name}, call {number} with {value}: {eager} and {ours}\n{compiled._compiled.reasons}"
            )


def test_an_operator_that_reads_a_number_is_compiled_as_long_as_its_results_look_alike():
    def build():
        return (lambda x, p: (flambeau.add(x, x, alpha=p) * 2).tanh()), []

    twins = Twins(build)
    for value in (2.0, 2.0, 2.0, 2.0, 3.0, 0.5, 1.0):
        twins.call(lambda value=value: (flambeau.randn(3), flambeau.tensor(value)))
    assert twins.native == 4, twins.compiled.explain()


def test_a_derivative_that_holds_a_number_is_compiled_as_long_as_the_number_stays():
    def build():
        def step(x, p):
            loss = (flambeau.add(x, x * x, alpha=p).clamp(min=p) ** 2).sum()
            loss.backward()
            return loss.detach()

        return step, []

    twins = Twins(build)
    for value in (0.2,) * 6 + (0.3, 0.1, 0.2):
        twins.call(lambda value=value: (flambeau.randn(6, requires_grad=True), flambeau.tensor(value)))
        if twins.number == 6:
            assert twins.native == 3 and not twins.behind.reasons
    assert len(twins.behind.reasons) == 1 and "number that it reads" in twins.behind.reasons[0]


def test_a_derivative_that_is_found_in_a_call_with_another_number():
    def build():
        return (lambda x, p: flambeau.add(x, x * x, alpha=p)), []

    plain, compiled = build()[0], flambeau.compile(build()[0])
    for value in (0.2, 0.2, 0.2, 0.3, 0.3, 0.2, 0.2, 0.2, 0.3):
        grads = []
        for function in (plain, compiled):
            x = flambeau.linspace(-1, 1, 6).requires_grad_()
            function(x, flambeau.tensor(value)).sum().backward()
            grads.append(x.grad)
        flambeau.testing.assert_close(*grads)


def test_memory_that_is_changed_by_a_number_is_changed_once():
    def build():
        def step(x, held, p):
            held.add_(x * 2, alpha=p)
            loss = (held * held).sum()
            loss.backward()
            return loss.detach(), held.detach()

        return step, []

    twins = Twins(build)
    for value in (0.2,) * 6 + (0.3, 0.1, 0.2):
        twins.call(
            lambda value=value: (flambeau.randn(6, requires_grad=True), flambeau.ones(6), flambeau.tensor(value))
        )


def test_there_is_one_reason_for_results_that_look_otherwise():
    def build():
        return (lambda x, n: flambeau.zeros(n) + x.sum()), []

    twins = Twins(build)
    twins.call(lambda: (flambeau.randn(3), flambeau.tensor(2)), 5)
    assert twins.native == 2
    for value in (3, 4, 2):
        twins.call(lambda value=value: (flambeau.randn(3), flambeau.tensor(value)))
    assert len(twins.behind.reasons) == 1 and "zeros" in twins.behind.reasons[0]


def test_a_number_read_after_the_state_has_changed_is_not_believed():
    def build():
        model = nn.Linear(4, 4)

        def step(x, n):
            with flambeau.no_grad():
                model.weight.add_(1.0)
                y = flambeau.ones(n)
                return model.weight.sum() + y.sum() + x.sum()

        return step, [model]

    twins = Twins(build)
    for value in (2, 2, 2, 2, 2, 5, 3):
        twins.call(lambda value=value: (flambeau.randn(3), flambeau.tensor(value)))


def test_recording_does_not_silence_watchers_of_other_threads():
    class Counting(watching.Watcher):
        made_ones = 0

        def made(self, new):
            self.made_ones += 1

    counting, go, stop = Counting(), threading.Event(), threading.Event()
    problems: list[BaseException] = []

    def elsewhere():
        try:
            with watching.watch(counting):
                go.set()
                while not stop.is_set():
                    before = counting.made_ones
                    flambeau.core.storage.UntypedStorage(64)
                    assert counting.made_ones == before + 1
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    go.wait()
    before = flambeau.core.storage.UntypedStorage.__init__
    model = nn.Linear(4, 4)
    optimizer = flambeau.optim.Adam(model.parameters())

    @flambeau.compile
    def step(x):
        assert flambeau.core.storage.UntypedStorage.__init__ is before
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(6):
        step(flambeau.ones(2, 4))
    stop.set()
    thread.join()
    assert not problems
    assert not watching.active and not watching.told()


def _changed_then_sized(s, x):
    s.b.zero_()
    s.b.add_(flambeau.ones(s.n).sum())
    return s.b.clone()


def _sized_then_changed(s, x):
    z = flambeau.ones(s.n)
    s.b.add_(z.sum())
    return s.b.clone()


def _drawn_then_sized(s, x):
    r = flambeau.rand(3)
    return r.sum() + flambeau.ones(s.n)


def _selected_in_place(s, x):
    s.b.select(0, s.n).add_(x.sum())
    return s.b.clone()


def _argument_in_place(s, x):
    x.select(0, s.n).add_(1)
    x.narrow(0, s.n, 1).mul_(2)
    return x


def _transposed(s, x):
    return x.transpose(0, s.n).contiguous().view(-1)


def _shape_read(s, x):
    y = x.sum(s.n)
    return y.shape[0] * y


BESIDE = [_changed_then_sized, _sized_then_changed, _drawn_then_sized, _selected_in_place, _argument_in_place]


@pytest.mark.parametrize("function", [*BESIDE, _transposed, _shape_read])
def test_beside_changes_of_the_state(function):
    """Where the number changes, what was done until then is done once, not twice."""

    def build():
        state = types.SimpleNamespace(n=flambeau.tensor(1), b=flambeau.zeros(4, 2))
        return functools.partial(function, state), state

    twins = Twins(build)
    for value in (1, 1, 1, 1, 1, 0, 0, 1, 0, 1):
        twins.plain_state.n.fill_(value)
        twins.state.n.fill_(value)
        twins.call(lambda: (flambeau.randn(4, 2),))
        assert flambeau.equal(twins.plain_state.b, twins.state.b)
