"""Every pass over calls that a test of `compile` runs is checked: the program before it, and what it makes of that (`graph.checker`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flambeau.compiler.gpu import program as on_gpu
from flambeau.compiler.passes import pipeline
from flambeau.core.records import replace
from flambeau.graph.checker import check
from flambeau.graph.program import Program


def checked(name: str, rewrite: Callable[[Program], None], problems: list[str]) -> Callable[[Program], None]:
    """A pass that tells what is wrong with a program before or after it; `compile` goes on, and may hide it."""

    def run(program: Program) -> None:
        before = replace(program, calls=list(program.calls))
        try:
            check(before)
            rewrite(program)
            check(program, before)
        except ValueError as problem:
            problems.append(f"{name}: {problem}")
            raise

    return run


@pytest.fixture(autouse=True)
def checker_between_passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    problems: list[str] = []
    over_calls = pipeline._Work.over_calls

    def run(work: Any, *passes: tuple[str, Callable[[Program], None]]) -> None:
        over_calls(work, *[(name, checked(name, rewrite, problems)) for name, rewrite in passes])

    monkeypatch.setattr(pipeline._Work, "over_calls", run)
    monkeypatch.setattr(on_gpu, "PASSES", tuple(checked(work.__name__, work, problems) for work in on_gpu.PASSES))
    yield
    assert not problems, problems[0]
