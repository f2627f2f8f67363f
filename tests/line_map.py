"""Which tests run which lines of the library, from one traced run: `tests.mutants` runs the tests of a changed line.

python -m tests.line_map MAP                        every test, without PyTorch, by its recorded answers
python -m tests.line_map MAP -n 2 tests/optim       further arguments are pytest's; a map that exists is added to

Lines that run while a module is imported, in another process or inside a compiled kernel are not seen. Before Python 3.12 only the first
calls of a function in a test are noted line by line: `sys.settrace` costs too much for more.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import random
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
LIBRARY = str(ROOT / "flambeau") + os.sep
WITHOUT_PYTORCH = ["--answers=replay"] if importlib.util.find_spec("torch") else []  # by its recorded answers
ALIKE = 3  # tests of one function that a line remembers: a table's rows do much the same
MOST = 300  # tests that a line remembers
# Tests of where the interpreter takes signals: events of lines are such places.
UNTRACED = ["--ignore=tests/core/test_interrupts.py"]
FIRST_CALLS, FIRST_LINES = 3, 2000  # of a function in one test, where `sys.settrace` notes them


@dataclass
class LineMap:
    """Tests with the CPU seconds that they take, and for each `file:line` the numbers of tests that run it."""

    tests: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lines: dict[str, array] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)  # how many tests ran a line, remembered or not

    def add(self, test: str, seconds: float, lines: list[str]) -> None:
        """Remember a test: for each line up to ALIKE tests of one function, up to MOST in all, drawn at random beyond that."""
        number = len(self.tests)
        self.tests.append(test)
        self.seconds.append(seconds)
        for line in lines:
            kept = self.lines.setdefault(line, array("I"))
            self.seen[line] = self.seen.get(line, 0) + 1
            if len(kept) >= ALIKE and self.function(kept[-ALIKE]) == self.function(number):
                kept[-random.randrange(1, ALIKE + 1)] = number
            elif len(kept) < MOST:
                kept.append(number)
            elif random.randrange(self.seen[line]) < MOST:
                kept[random.randrange(MOST)] = number

    def function(self, number: int) -> str:
        """The test's name without its parameters."""
        return self.tests[number].partition("[")[0]

    def merge(self, other: LineMap) -> None:
        """Add what another run saw."""
        first = len(self.tests)
        self.tests += other.tests
        self.seconds += other.seconds
        for line, numbers in other.lines.items():
            self.lines.setdefault(line, array("I")).extend(number + first for number in numbers)
            self.seen[line] = self.seen.get(line, 0) + other.seen[line]

    def chosen(self, lines: list[str], most: int = 30, budget: float = 20.0) -> list[str]:
        """The tests of some lines within a number and a time: first one of each function, quick ones before slow ones."""
        numbers = sorted({n for line in lines for n in self.lines.get(line, ())}, key=self.seconds.__getitem__)
        rank: dict[str, int] = {}
        turns = []
        for number in numbers:
            turn = rank.get(self.function(number), 0)
            rank[self.function(number)] = turn + 1
            turns.append((turn, self.seconds[number], number))
        found: list[str] = []
        for _, seconds, number in sorted(turns):
            budget -= seconds
            if found and (budget < 0 or len(found) >= most):
                break
            found.append(self.tests[number])
        return found

    def tables(self, lines: list[str], budget: float = 60.0) -> list[str]:
        """The whole tables of tests of which rows run some lines, within a time, quick ones first: a line remembers few rows of one."""
        functions = {self.function(n) for line in lines for n in self.lines.get(line, ())}
        seconds: dict[str, float] = {}
        for number, took in enumerate(self.seconds):
            if (name := self.function(number)) in functions and "[" in self.tests[number]:
                seconds[name] = seconds.get(name, 0.0) + took + 0.01
        found = []
        for name, took in sorted(seconds.items(), key=lambda item: item[1]):
            budget -= took
            if budget < 0:
                break
            found.append(name)
        return found

    def save(self, path: Path) -> None:
        path.write_bytes(pickle.dumps((self.tests, self.seconds, self.lines, self.seen), protocol=5))

    @classmethod
    def load(cls, path: Path) -> LineMap:
        return cls(*pickle.loads(path.read_bytes()))


class Monitored:
    """Notes the lines of the library that run, by `sys.monitoring`: each line costs something once a test."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int]] = set()
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]  since Python 3.12
        self.again = monitoring.restart_events
        disable, library = monitoring.DISABLE, LIBRARY  # globals are gone while Python shuts down

        def note(code: CodeType, line: int) -> Any:
            if code.co_filename.startswith(library):
                self.seen.add((code.co_filename, line))
            return disable

        monitoring.use_tool_id(monitoring.COVERAGE_ID, "tests.line_map")
        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, note)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)

    def start(self) -> None:
        self.seen.clear()
        self.again()

    def stop(self) -> None:
        """Leave the events on: those of the next test start anew."""


class Traced:
    """Notes the lines of the library that run, by `sys.settrace`: those of the first calls of each function in a test."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int]] = set()
        self.calls: dict[int, int] = {}  # by the id of a function's code

    def start(self) -> None:
        self.seen.clear()
        self.calls.clear()
        threading.settrace(self.enter)
        sys.settrace(self.enter)

    def stop(self) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def enter(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        count = self.calls.get(id(code), 0)
        if count >= FIRST_CALLS:
            return None
        if not code.co_filename.startswith(LIBRARY):
            self.calls[id(code)] = FIRST_CALLS
            return None
        self.calls[id(code)] = count + 1
        left = FIRST_LINES

        def note(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            left -= 1
            self.seen.add((code.co_filename, frame.f_lineno))
            frame.f_trace_lines = left > 0
            return note

        return note


class Tracer:
    """A pytest plugin: notes the lines that each passing test runs in this process, in all threads."""

    def __init__(self, path: Path) -> None:
        self.path, self.map = path, LineMap()
        self.lines = Monitored() if hasattr(sys, "monitoring") else Traced()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.lines.start()
        start = time.process_time()
        try:
            result = yield
        finally:
            self.lines.stop()
        seconds = round(time.process_time() - start, 4)
        self.map.add(item.nodeid, seconds, [key_of(*place) for place in self.lines.seen])
        return result

    def pytest_sessionfinish(self) -> None:
        self.map.save(self.path.with_name(f"{self.path.name}.part{os.getpid()}"))


def key_of(file: str, line: int) -> str:
    """`flambeau/file.py:line` of a line of the library."""
    return f"{file[len(str(ROOT)) + 1 :]}:{line}"


def pytest_configure(config: pytest.Config) -> None:
    """Trace in each process that runs tests: this module is a plugin, too."""
    if os.environ.get("LINE_MAP") and (hasattr(config, "workerinput") or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(Tracer(Path(os.environ["LINE_MAP"])))


def main() -> int:
    path, *chosen = sys.argv[1:]
    os.environ["LINE_MAP"] = str(Path(path).absolute())
    status = pytest.main([*WITHOUT_PYTORCH, "-p", "no:cacheprovider", "-p", "tests.line_map", *UNTRACED, *chosen])
    known = LineMap.load(Path(path)) if Path(path).exists() else LineMap()
    for part in sorted(Path(path).parent.glob(f"{Path(path).name}.part*")):
        known.merge(LineMap.load(part))
        part.unlink()
    known.save(Path(path))
    print(f"{len(known.tests)} tests, {len(known.lines)} lines")
    return int(status)


if __name__ == "__main__":
    raise SystemExit(main())
