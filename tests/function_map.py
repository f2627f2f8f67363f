"""Which tests run which functions of the library, from one traced run; `tests.mutants` runs those first.

python -m tests.function_map MAP.json tests/optim tests/distributions     without PyTorch, by its recorded answers

A function is known by its file and the line of its `def` or first decorator. Functions that run inside compiled kernels are not seen.
"""

from __future__ import annotations

import collections
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


class Tracer:
    """A pytest plugin: notes the functions that each passing test calls in the main thread, and how long the test takes."""

    def __init__(self) -> None:
        self.tests: dict[str, list[str]] = collections.defaultdict(list)
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        seen: set[CodeType] = set()

        def note(frame: FrameType, event: str, argument: Any) -> None:
            if event == "call":
                seen.add(frame.f_code)

        start, before = time.perf_counter(), sys.getprofile()
        sys.setprofile(note)
        try:
            outcome: Any = yield
        finally:
            sys.setprofile(before)
        if outcome.excinfo is None:
            self.seconds[item.nodeid] = round(time.perf_counter() - start, 3)
            for name in set(map(key_of, seen)) - {None}:
                self.tests[str(name)].append(item.nodeid)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({"tests": self.tests, "seconds": self.seconds}))


def key_of(code: CodeType) -> str | None:
    """`flambeau/file.py:line` of a function of the library, None for any other."""
    file = Path(code.co_filename)
    inside = file.is_absolute() and file.is_relative_to(ROOT / "flambeau") and file.suffix == ".py"
    return f"{file.relative_to(ROOT).as_posix()}:{code.co_firstlineno}" if inside else None


def quickest(found: dict[str, Any], key: str, most: int = 30, budget: float = 20.0) -> list[str]:
    """The tests of a function, quickest first, within a number and a time."""
    chosen, spent = [], 0.0
    for test in sorted(found["tests"].get(key, ()), key=found["seconds"].__getitem__)[:most]:
        spent += found["seconds"][test]
        if chosen and spent > budget:
            break
        chosen.append(test)
    return chosen


def main() -> int:
    path, *chosen = sys.argv[1:]
    tracer = Tracer()
    status = pytest.main(["--answers=replay", "-n", "0", "-p", "no:cacheprovider", *chosen], plugins=[tracer])
    tracer.write(Path(path))
    print(f"{len(tracer.seconds)} tests, {len(tracer.tests)} functions")
    return int(status)


if __name__ == "__main__":
    raise SystemExit(main())
