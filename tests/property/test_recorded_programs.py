"""Whole programs line by line, by PyTorch's recorded states: exceptions, layouts, versions, graphs, shared memory, values, gradients."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest
from answers import told
from once_different import ONCE_DIFFERENT
from random_programs import Side
from recorded_programs import differs, invented, state, told_of

import flambeau

SEEDS = range(1000, 1090)


def replayed(steps: list) -> None:
    side = Side(flambeau)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, (line, judge) in enumerate(steps):
            difference = differs(state(side, side.execute(line)), judge)
            program = "\n".join(step[0] for step in steps[: number + 1])
            assert not difference, f"{program}\n  {difference}"


def real() -> Any:
    return importlib.import_module("torch")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs(seed: int) -> None:
    replayed(told(f"program {seed}", lambda: invented(seed, flambeau, real())))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("about", ONCE_DIFFERENT)
def test_programs_that_were_once_different(about: str) -> None:
    lines = [line.strip() for line in ONCE_DIFFERENT[about].strip().split("\n")]
    replayed(told(f"program {about}", lambda: told_of(lines, flambeau, real())))


def test_a_wrong_library_is_noticed() -> None:
    steps = [
        ["a = torch.ones(2)", state_of("a = torch.ones(2)")],
        ["b = a + 1", state_of("a = torch.ones(2)", "b = a + 1")],
    ]
    replayed(steps)
    steps[1][0] = "b = a - 1"
    with pytest.raises(AssertionError, match="instead of"):
        replayed(steps)


def state_of(*lines: str) -> list:
    side = Side(flambeau)
    for line in lines[:-1]:
        side.execute(line)
    return state(side, side.execute(lines[-1]))
