"""Recording and replaying the answers of a library: here a small one, made for the purpose."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .session import Session
from .store import Recorded, Store
from .tape import Tape

KEY = "tests/toy/test_toy.py::test"


class Box:
    """A value in a box, as a tensor would be."""

    def __init__(self, value: float) -> None:
        self.value = np.float32(value)

    def __add__(self, other: Any) -> Box:
        return Box(self.value + (other.value if isinstance(other, Box) else other))

    def fill_(self, value: float) -> Box:
        self.value = np.float32(value)
        return self

    def numpy(self) -> np.ndarray:
        return np.full((2, 3), self.value)

    def tolist(self) -> list:
        return [[float(self.value)] * 3] * 2


def apply(function: Callable, box: Box) -> Box:
    return function(box)


def split(box: Box) -> tuple[Box, Box]:
    return box, Box(box.value / 2)


class Broken(ValueError):
    pass


def refuse() -> None:
    raise Broken("no such thing")


@pytest.fixture
def toy() -> types.ModuleType:
    module = types.ModuleType("toy")
    for item in (Box, apply, split, Broken, refuse):
        setattr(module, item.__name__, item)
    module.pi = 3.25  # type: ignore[attr-defined]
    return module


def recorded(toy: types.ModuleType, folder: Path, program: Callable) -> tuple[Any, Session]:
    """What a program returns while it is recorded, and a session that replays it from the file."""
    session = Session()
    session.mode, session.store, session.tape = "record", Store(folder), Tape(KEY)
    found = program(session.static("toy", "module", toy))
    file = session.store.recorded(KEY.partition("::")[0])
    file.write({"test": session.tape.row()}, {"toy": "1"})
    session.store.write_names({})
    replaying = Session()
    replaying.mode, replaying.store = "replay", Store(folder)
    replaying.tape = Tape(KEY, replaying.store.row(KEY))
    return found, replaying


def numbers(toy: Any) -> list:
    a, b = toy.Box(1.5), toy.Box(2)
    c = a + b
    same = a.fill_(7) is a
    parts = toy.split(c)
    return [
        c.numpy().tolist(),
        a.tolist(),
        same,
        isinstance(parts, tuple),
        parts[0] is c,
        isinstance(c, toy.Box),
        toy.pi,
        c.__class__.__name__,
    ]


def test_what_was_recorded_is_replayed_without_the_library(toy: types.ModuleType, tmp_path: Path):
    found, session = recorded(toy, tmp_path, numbers)
    assert found == [[[3.5] * 3] * 2, [[7.0] * 3] * 2, True, True, True, True, 3.25, "Box"]
    assert numbers(session.static("toy", "module")) == found
    session.tape.finish()


def test_functions_of_a_test_run_inside_the_library_and_are_not_questions(toy: types.ModuleType, tmp_path: Path):
    def program(toy: Any) -> list:
        one = toy.Box(1)
        return toy.apply(lambda box: box + one + one, toy.Box(3)).tolist()

    found, session = recorded(toy, tmp_path, program)
    assert found == [[5.0] * 3] * 2
    assert program(session.static("toy", "module")) == found


def test_classes_of_a_test_may_derive_from_the_librarys(toy: types.ModuleType, tmp_path: Path):
    def program(toy: Any) -> list:
        class Double(toy.Box):
            def __init__(self, value: float) -> None:
                super().__init__(2 * value)

        made = Double(4)
        return [made.tolist(), isinstance(made, toy.Box), copy.deepcopy(made).tolist()]

    found, session = recorded(toy, tmp_path, program)
    assert found == [[[8.0] * 3] * 2, True, [[8.0] * 3] * 2]
    assert program(session.static("toy", "module")) == found


def test_exceptions_are_raised_again(toy: types.ModuleType, tmp_path: Path):
    def program(toy: Any) -> list:
        found = []
        for kind in (ValueError, toy.Broken):
            with pytest.raises(kind) as problem:
                toy.refuse()
            found.append((problem.type.__name__, str(problem.value)))
        with pytest.raises(AttributeError):
            toy.no_such_name  # noqa: B018
        return found

    found, session = recorded(toy, tmp_path, program)
    assert found == [("Broken", "no such thing")] * 2
    assert program(session.static("toy", "module")) == found


@pytest.mark.parametrize(
    "other",
    [
        lambda toy: toy.Box(1.25).numpy(),  # another input
        lambda toy: toy.Box(1.5).tolist(),  # another question
        lambda toy: [toy.Box(1.5).numpy(), toy.Box(1)],  # one more
        lambda toy: toy.Box(np.float32(1.5)).numpy(),  # another type
    ],
)
def test_other_questions_than_the_recorded_ones_fail_the_test(toy: types.ModuleType, tmp_path: Path, other: Callable):
    _, session = recorded(toy, tmp_path, lambda toy: toy.Box(1.5).numpy())
    with pytest.raises(pytest.fail.Exception, match="python -m tests.answers record tests/toy/test_toy.py"):
        other(session.static("toy", "module"))


def test_fewer_questions_than_the_recorded_ones_fail_the_test(toy: types.ModuleType, tmp_path: Path):
    _, session = recorded(toy, tmp_path, lambda toy: toy.Box(1.5).numpy())
    session.static("toy", "module").Box(1.5)
    with pytest.raises(pytest.fail.Exception, match="asks less"):
        session.tape.finish()


def test_a_function_that_changed_is_noticed(toy: types.ModuleType, tmp_path: Path):
    def program(toy: Any, factor: float) -> Any:
        return toy.apply(lambda box: box + factor, toy.Box(1)).tolist()

    _, session = recorded(toy, tmp_path, lambda toy: program(toy, 1.0))
    with pytest.raises(pytest.fail.Exception):
        program(session.static("toy", "module"), 2.0)


def test_a_test_without_a_recording_is_skipped(toy: types.ModuleType, tmp_path: Path):
    _, session = recorded(toy, tmp_path, lambda toy: toy.Box(1.5).numpy())
    session.tape = Tape(KEY + "_of_another_name", None)
    with pytest.raises(pytest.skip.Exception, match="not recorded"):
        session.static("toy", "module").Box(1.5)


def test_the_file_keeps_versions_and_no_array_twice(toy: types.ModuleType, tmp_path: Path):
    recorded(toy, tmp_path, lambda toy: [toy.Box(1.5).numpy() for _ in range(50)])
    kept = Recorded(tmp_path / "toy" / "test_toy.xz")
    assert kept.versions == {"toy": "1"} and len(kept.arrays.block) == 2 * 3 * 4
