"""The fuzzer itself: every family writes programs, and a planted difference is found and made small."""

from __future__ import annotations

import os
import signal
from itertools import islice
from typing import Any

import pytest

import flambeau

from .draw import Draw
from .execution import program, run
from .families import FAMILIES
from .families.family import Family
from .judging import compared
from .known import KNOWN
from .search import Search
from .shrinking import simpler


class Planted:
    """Flambeau with one function replaced."""

    def __init__(self, name: str, wrong: Any) -> None:
        self.name, self.wrong = name, wrong

    def __getattr__(self, name: str) -> Any:
        return self.wrong if name == self.name else getattr(flambeau, name)


LINES = ["a = torch.tensor([[1.0, -2.0, 3.0], [0.5, nan, -0.0]]).requires_grad_()", "result = torch.mul(a, a)", "slopes = grads(result, a)"]  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_programs_can_be_read_and_are_drawn_alike(name: str) -> None:
    drawn = [FAMILIES[name].program(Draw(number)) for number in range(30)]
    assert drawn == [FAMILIES[name].program(Draw(number)) for number in range(30)]
    for lines in drawn:
        compile(program(lines), name, "exec")
        assert sum(1 for _ in simpler(lines)) > 0


@pytest.mark.parametrize("name", FAMILIES)
def test_a_library_agrees_with_itself(name: str) -> None:
    lines = FAMILIES[name].program(Draw(1))
    found = compared(lines, flambeau, flambeau, FAMILIES[name].exact)
    assert found is None, found.text


@pytest.mark.parametrize(
    "wrong, kind",
    [
        (lambda a, b: torch_sum(a, b), "value"),
        (lambda a, b: flambeau.mul(a, b).double(), "dtype"),
        (lambda a, b: flambeau.mul(a, b).mT, "shape"),
        (lambda a, b: flambeau.mul(a, b).mT.contiguous().mT, "stride"),
        (lambda a, b: a.mul_(1), "raises RuntimeError instead of nothing"),
        (lambda a, b: a.view_as(a), "value"),
        (lambda a, b: flambeau.mul(a, b).detach(), "requires_grad"),
    ],
)
def test_what_is_wrong_is_noticed(wrong: Any, kind: str) -> None:
    found = compared(LINES, Planted("mul", wrong), flambeau)
    assert found is not None and found.kind.startswith(kind)


def torch_sum(a: Any, b: Any) -> Any:
    return flambeau.add(a, b)


def test_rounding_is_no_difference() -> None:
    assert compared(LINES[:2], Planted("mul", lambda a, b: a * b * (1 + 1e-7)), flambeau) is None
    found = compared(LINES[:2], Planted("mul", lambda a, b: a * b * (1 + 1e-7)), flambeau, exact=True)
    assert found is not None and found.kind == "bits"


def test_a_planted_difference_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of more than two numbers lack one."""

    def lines(draw: Draw) -> list[str]:
        shape = (draw.number(3, 5), draw.number(1, 4))
        return [
            f"a = {draw.tensor(shape)}",
            f"b = {draw.tensor(shape)}",
            f"result = torch.sum(a, 0{draw.options(keepdim='True')})",
        ]

    def wrong(a: Any, *args: Any, **options: Any) -> Any:
        return flambeau.sum(a, *args, **options) - (a.sum() * 0 + 1 if a.numel() > 2 else 0)

    monkeypatch.setitem(FAMILIES, "planted", Family(lines))
    found = next(iter(Search("planted", 1, Planted("sum", wrong), flambeau, seconds=30, shrinking=5)))
    assert found.difference.kind == "value"
    assert len(found.lines) == 2 and "keepdim" not in found.lines[1]
    assert found.lines[0].count(",") <= 3, found.lines
    assert run(found.lines, flambeau).error == ""


def test_a_crash_ends_one_program_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def lines(draw: Draw) -> list[str]:
        return ["a = torch.ones(3)", f"result = torch.sum({draw.among('a', 'abs(a)')})"]

    def crash(a: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setitem(FAMILIES, "planted", Family(lines))
    search = Search("planted", 1, Planted("sum", crash), flambeau, seconds=300, shrinking=1)
    first, second = islice(search, 2)
    assert first.difference.kind == second.difference.kind == "SIGKILL" and first.number < second.number


def test_known_differences_have_reasons() -> None:
    assert all(len(why) > 20 for _, _, why in KNOWN)
