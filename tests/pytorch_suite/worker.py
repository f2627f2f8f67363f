"""The process that runs the tests of one file and logs each outcome: `python -m tests.pytorch_suite.worker FILE LOG SELECT LIMIT LIBRARY`.

Tests that the log already knows are not run again.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import re
import signal
import sys
import time
import traceback
import unittest
import unittest.mock  # some files count on it
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from .report import read_results


class TimeLimit(BaseException):
    """Not an Exception: no test may catch it as the error it expects."""


def _ring(signum: int, frame: FrameType | None) -> None:
    raise TimeLimit("the test took too long")


def each_test(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from each_test(item)
        else:
            yield item


def name_of(test: unittest.TestCase) -> str:
    return f"{type(test).__name__}.{getattr(test, '_testMethodName', '?')}"


def is_selected(name: str, expression: str) -> bool:
    """Whether a pytest-like expression over parts of names ("view and not bool") holds for a name."""
    if not expression:
        return True
    words = re.sub(
        r"[\w.\[\]-]+",
        lambda word: word[0] if word[0] in ("and", "or", "not") else str(word[0].lower() in name.lower()),
        expression,
    )
    return bool(eval(words))


class Log(unittest.TestResult):
    """Writes a line when a test begins and one when it ends."""

    def __init__(self, file: TextIO, limit: int):
        super().__init__()
        self.file, self.limit = file, limit
        self.outcome: dict[str, Any] = {}
        self.started = time.perf_counter()  # Python 3.12.1 stops skipped tests that it never started

    def write(self, **entry: Any) -> None:
        self.file.write(json.dumps(entry) + "\n")
        self.file.flush()

    def startTest(self, test: unittest.TestCase) -> None:
        self.write(begin=name_of(test))
        self.outcome = {"outcome": "passed"}
        self.started = time.perf_counter()
        signal.alarm(self.limit)
        faulthandler.dump_traceback_later(2 * self.limit, exit=True)  # for native code that no signal reaches

    def stopTest(self, test: unittest.TestCase) -> None:
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
        self.write(test=name_of(test), **self.outcome, seconds=round(time.perf_counter() - self.started, 3))

    def fail(self, error: Any) -> None:
        kind, value, _ = error
        last = re.sub(r"0x[0-9a-f]+", "0x", " ".join(str(value).split()))
        text = "".join(traceback.format_exception(*error)[-12:])
        self.outcome = {"outcome": "failed", "error": f"{kind.__name__}: {last[:300]}", "traceback": text[-6000:]}

    def addError(self, test: Any, err: Any) -> None:
        self.fail(err)

    addFailure = addError

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.fail(err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.outcome = {"outcome": "skipped", "error": str(reason)}

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.outcome = {"outcome": "failed", "error": "UnexpectedSuccess: the test is expected to fail"}


def main(file: str, log: str, select: str, limit: str, library: str) -> None:
    if library == "flambeau":
        import flambeau

        flambeau.install_as_torch()
    else:  # PyTorch's comparisons look for distributed tensors, whose modules want its own helpers and not our stand-ins
        importlib.import_module("torch.distributed.tensor")
    from . import children, compiling, imports

    children.source = (str(Path(file).resolve()), library)
    imports.install(library == "flambeau")
    module = imports.load(Path(file).resolve())
    from torch.testing._internal.permissive import guessed

    done = read_results(Path(log)).tests
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    tests = [test for test in each_test(suite) if is_selected(name_of(test), select) and name_of(test) not in done]
    signal.signal(signal.SIGALRM, _ring)
    sys.argv = [file]
    with open(log, "a") as lines:
        result = Log(lines, int(limit))
        warnings.simplefilter("default")  # tests count the warnings that they record; nobody reads the others
        warnings.showwarning = lambda *details, **more: None
        current = None
        for test in tests:
            if type(test) is not current:
                current = _change_class(current, type(test))
            test(result)
        notes = {"missing in Flambeau": sorted(imports.missing), "guessed by the stand-ins": sorted(guessed)}
        notes["compiled functions"] = compiling.summary()
        result.write(notes={title: names for title, names in notes.items() if names})


def _change_class(old: type | None, new: type) -> type:
    """What a suite does between classes."""
    if old is not None:
        old.tearDownClass()  # type: ignore[attr-defined]
    if not getattr(new, "__unittest_skip__", False):
        new.setUpClass()  # type: ignore[attr-defined]
    return new


if __name__ == "__main__":
    main(*sys.argv[1:])
