"""Timers measure, and measurements and tables print as PyTorch's."""

from __future__ import annotations

import random

import pytest
from answers import judge

import flambeau
import flambeau.utils.benchmark as ours

theirs = judge("torch.utils.benchmark")


def random_times(rng: random.Random, count: int) -> list[float]:
    base = 10 ** rng.uniform(-8, 1)
    spread = rng.choice([0.001, 0.05, 0.3, 1.5])
    return [base * rng.uniform(1, 1 + spread) for _ in range(count)]


def random_tasks(rng: random.Random) -> list[tuple]:
    environments = rng.choice([[None], ["e1", "env two"]])
    return [
        (
            {
                "label": rng.choice(["A", "long label here"]),
                "sub_label": rng.choice(["r1", "row two", None]),
                "description": rng.choice(["c1", "column two"]),
                "num_threads": rng.choice([1, 4]),
                "env": rng.choice(environments),
            },
            rng.choice([1, 10]),
            random_times(rng, rng.choice([1, 2, 4, 7])),
        )
        for _ in range(rng.randint(1, 6))
    ]


def described(library, tasks: list[tuple]) -> list:
    setup = "a = 1\nb = 2" if len(tasks) % 2 else "pass"
    made = [
        library.Measurement(count, times, library.TaskSpec("stmt", setup, **names)) for names, count, times in tasks
    ]
    texts = [repr(m).split("\n", 1)[1] for m in made]
    texts += [str((m.significant_figures, m.has_warnings, m.env, m.as_row_name, m.title)) for m in made]
    table = library.Compare(made)
    colours = [] if tasks[0][0]["env"] else ["colorize"]
    for change in ("__str__", "trim_significant_figures", "highlight_warnings", *colours):
        getattr(table, change)()
        texts.append(str(table))
    return texts


@pytest.mark.parametrize("seed", range(40))
def test_reports(seed):
    tasks = random_tasks(random.Random(seed))
    # where a column has no cell in between, PyTorch compares with fewer rows: not so here
    full = all(sum(t[0]["description"] == c for t in tasks) in (0, len(tasks)) for c in ("c1", "column two"))
    ours_text, theirs_text = described(ours, tasks), described(theirs, tasks)
    assert ours_text[: None if full else -1] == theirs_text[: None if full else -1]


@pytest.mark.parametrize("value", [3e-10, 3e-5, 0.02, 7.0, 2000.0])
def test_units(value):
    assert ours.select_unit(value) == theirs.select_unit(value)
    assert ours.trim_sigfig(value, 2) == pytest.approx(theirs.trim_sigfig(value, 2), rel=1e-6)


def test_merged_measurements():
    task = ours.TaskSpec("stmt", "pass")
    (merged,) = ours.Measurement.merge([ours.Measurement(2, [2.0], task), ours.Measurement(1, [3.0, 5.0], task)])
    assert merged.times == [1.0, 3.0, 5.0] and merged.median == 3.0


def test_timers():
    timer = ours.Timer("x.add_(y)", setup="y = torch.ones(3)", globals={"x": flambeau.zeros(3)}, label="sum")
    once = timer.timeit(10)
    assert len(once.times) == 1 and once.number_per_run == 10 and once.title == "sum" and once.median > 0
    calls = []
    block = timer.blocked_autorange(min_run_time=0.01, callback=lambda number, seconds: calls.append(seconds))
    assert sum(block.raw_times) >= 0.01 and block.raw_times == calls
    steady = timer.adaptive_autorange(threshold=0.5, min_run_time=0.001, max_run_time=0.05)
    assert steady.median > 0


def test_timers_set_the_number_of_threads():
    seen = []
    before = flambeau.get_num_threads()
    ours.Timer("seen.append(torch.get_num_threads())", globals={"seen": seen}, num_threads=3).timeit(1)
    assert set(seen) == {3} and flambeau.get_num_threads() == before


def test_errors():
    with pytest.raises(ValueError, match="only a `str` stmt"):
        ours.Timer(print)
    with pytest.raises(NotImplementedError, match="blocked_autorange"):
        ours.Timer().autorange()
    with pytest.raises(ValueError, match="Expected an instance of `Measurement`"):
        ours.Compare([3])
