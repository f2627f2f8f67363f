"""A function that is run dry, at sizes that nobody has given it, leaves nothing behind."""

from __future__ import annotations

import functools
import sys

import pytest

import flambeau

from .helpers import Twins, same, visible


class Kept:
    """Things that a function may change, in ways that depend on sizes."""

    def __init__(self):
        self.largest, self.scale, self.made = 0, flambeau.ones(3), []
        self.rows, self.memory = flambeau.nn.Parameter(flambeau.ones(20, 3)), flambeau.empty(0)
        self.generator = flambeau.Generator()

    def seen(self):
        state = [self.largest, self.scale, len(self.made), self.rows, self.memory, Kept.__dict__.get("found")]
        return [visible(part) for part in state], self.generator.get_state().sum().item()


def _a_table_that_grows(kept, x):
    if len(x) > 10 and not kept.made:
        kept.made.append(flambeau.full((len(x), 1), 2.0))
    return x * kept.made[0][: len(x)] if kept.made else x


def _another_weight_for_long_ones(kept, x):
    if len(x) > 10:
        kept.rows.data = kept.rows.data * 2
    return x * kept.rows[0].detach()


def _a_tensor_exchanged_for_long_ones(kept, x):
    if len(x) > 10:
        kept.scale = kept.scale + 1
    return x * kept.scale


def _a_seed_for_long_ones(kept, x):
    return x * (2 if len(x) <= 10 or kept.generator.manual_seed(7) is None else 3)


def _the_largest_size(kept, x):
    kept.largest = max(kept.largest, len(x))
    return x * 2


def _an_attribute_of_a_class(kept, x):
    Kept.found = max(getattr(Kept, "found", 0), len(x))
    return x * 2


def _an_array_for_long_ones(kept, x):
    if len(x) > 10:
        kept.scale.numpy()[0] = 5
    return x * 2


def _memory_of_the_size(kept, x):
    return kept.memory.resize_(x.shape).copy_(x) * 2


def _a_view_of_the_size(kept, x):
    kept.rows.data = kept.rows.data[: len(x)]
    return x * 2


def _printed_for_long_ones(kept, x):
    if len(x) > 10:
        print("long")
    return x * 2


def _an_attribute_of_the_gradient(kept, x):
    kept.scale.requires_grad_(len(x) > 10)
    return x * 2


LEAVING = [function for name, function in list(globals().items()) if name.startswith(("_a_", "_an_", "_the_", "_another_", "_memory_of", "_printed_"))]  # fmt: skip


@pytest.mark.parametrize("leaving", LEAVING, ids=lambda f: f.__name__)
def test_sizes_that_never_came_leave_nothing(leaving, capsys):
    """A function is run dry at sizes that nobody has given it: what it would do to Python's state for these must not happen."""
    outcomes = []
    for compiled in (False, True):
        if "found" in Kept.__dict__:
            del Kept.found
        kept, found = Kept(), []
        kept.generator.manual_seed(3)
        run = functools.partial(leaving, kept)
        run = flambeau.compile(run) if compiled else run
        for n in (4, 6, 4, 6, 8, 8, 6, 4, 12, 6, 12, 8):
            found.append((run(flambeau.arange(3.0 * n).reshape(n, 3)), *kept.seen(), capsys.readouterr().out))
        outcomes.append(found)
    same(*outcomes)


def test_memory_that_a_function_resizes_for_many_sizes():
    """Memory that moved while the function was run dry was written to afterwards: the heap was damaged."""
    for _ in range(20):
        twins = Twins(lambda: (lambda kept: (functools.partial(_memory_of_the_size, kept), None))(Kept()))
        for n in (6, 4, 4, 4, 4, 6, 4, 60, 4, 4, 6):
            twins.call(lambda n=n: (flambeau.randn(n),))


def test_a_debugger_sees_every_line():
    def function(x):
        y = x * 2
        return y + 1

    seen = []

    def trace(frame, event, arg):
        seen.append((frame.f_code.co_name, event))
        return trace if frame.f_code is function.__code__ else None

    compiled = flambeau.compile(function)
    former = sys.gettrace()
    sys.settrace(trace)
    try:
        for n in (3, 3, 3, 4, 4, 5):
            assert compiled(flambeau.ones(n)).tolist() == [3.0] * n
        assert sys.gettrace() is trace
    finally:
        sys.settrace(former)
    assert seen.count(("function", "line")) >= 2 * 3


def test_results_that_a_cache_keeps_are_those_of_calls():
    """`lru_cache` would keep tables made in a dry run, whose kernels have not run."""

    @functools.cache
    def table(n):
        return flambeau.full((n, n), 2.0).triu(1)

    compiled = flambeau.compile(lambda x: x @ table(len(x)))
    for n in (4, 6, 4, 6, 8, 8, 6, 60, 60, 60, 4, 12, 16):
        assert compiled(flambeau.ones(n)).tolist() == [2.0 * k for k in range(n)]
