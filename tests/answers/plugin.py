"""pytest's hooks: which tape belongs to what is running, and what becomes of it."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest

from .session import SESSION
from .tape import Tape

# rows by file: of tests that passed while recording (None: a test that did not), and tests that failed while verifying
FOUND: dict[str, dict[str, dict | None]] = {}
MODES = ("live", "record", "replay", "verify")


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--answers", choices=MODES, help="who answers for PyTorch: itself, itself while it is recorded, the recordings; "
                     "verify: the recordings, and those that fail are removed")  # fmt: skip


def configure(config: pytest.Config) -> None:
    chosen = config.getoption("--answers")
    if chosen:
        SESSION.mode = "replay" if chosen == "verify" else chosen
    if chosen in ("replay", "verify"):
        sys.meta_path.insert(0, Hidden())


class Hidden:
    """Finds no PyTorch, so that replaying shows what holds where it is not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in ("torch", "torchvision"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextlib.contextmanager
def tape(key: str) -> Iterator[Tape]:
    """Context manager: questions go to the tape of that name."""
    outer = SESSION.tape
    SESSION.tape = made = Tape(key, SESSION.store.row(key) if SESSION.mode == "replay" else None)
    try:
        yield made
    finally:
        SESSION.tape = outer


def _keep(made: Tape, passed: bool) -> None:
    file, _, test = made.key.partition("::")
    FOUND.setdefault(file, {})[test] = made.row() if passed and made.answers else None


def _in_turn(report: pytest.CollectReport) -> pytest.CollectReport:
    """Reverse the contents of folders in every other process, so that each compiles tests that the others have not come to yet. The order
    in which tests run is decided when all are collected."""
    if int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 2:
        report.result.reverse()
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    if isinstance(collector, pytest.Directory):
        return _in_turn((yield))
    if SESSION.mode == "live" or not isinstance(collector, pytest.Module):
        return (yield)
    with tape(collector.nodeid + "::(import)") as made:
        report = yield
        if SESSION.mode == "record":
            _keep(made, report.passed)
        elif report.failed and made.touched and not made.recorded:
            report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"needs PyTorch: {report.longrepr}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> Generator[None, Any, Any]:
    """What several tests share has a tape of its own: which of them runs first does not matter."""
    if SESSION.mode == "live" or fixturedef.scope == "function" or not request.node.nodeid:
        return (yield)
    file = request.node.nodeid.partition("::")[0]
    if not file.endswith(".py"):
        return (yield)
    param = getattr(request, "param", None)
    key = f"{file}::(fixture) {fixturedef.argname} {param if isinstance(param, (int, str)) else getattr(request, 'param_index', '')}"
    outer = SESSION.tape
    with tape(key) as made:
        result = yield
        outer.touched = outer.touched or made.touched
        if SESSION.mode == "record":
            _keep(made, True)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    if SESSION.mode == "live":
        return (yield)
    with tape(item.nodeid) as made:
        item.stash[PASSED] = True
        result = yield
        if SESSION.mode == "record":
            _keep(made, item.stash[PASSED])
    for table in (SESSION.wrapped, SESSION.store.objects):
        for key in [k for k, v in table.items() if v.answers_key.startswith(item.nodeid + "#")]:
            del table[key]
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    result = yield
    if SESSION.mode == "replay" and item.stash[PASSED]:
        SESSION.tape.finish()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if SESSION.mode == "live":
        return report
    if not report.passed or hasattr(report, "wasxfail"):
        item.stash[PASSED] = False
    made = SESSION.tape
    report.asked_pytorch = made.touched  # type: ignore[attr-defined]  travels from a worker to the process that counts
    if report.failed and SESSION.mode == "replay":
        if made.touched and not made.recorded:
            text = f"Skipped: needs the real PyTorch: {str(report.longrepr)[-200:]}"
            report.outcome, report.longrepr = "skipped", (str(item.path), item.location[1] or 0, text)
        elif item.config.getoption("--answers") == "verify" and made.recorded:
            file, _, test = item.nodeid.partition("::")
            FOUND.setdefault(file, {})[test] = None
    return report


PASSED = pytest.StashKey[bool]()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--answers") not in ("record", "verify") or not FOUND:
        return
    folder = SESSION.store.folder
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for file, rows in FOUND.items():
            recorded = SESSION.store.recorded(file)
            kept = {**recorded.rows, **rows}
            recorded.write({k: v for k, v in sorted(kept.items()) if v is not None}, recorded.versions or versions())
        if SESSION.mode == "record":
            names = folder / "names.json"
            SESSION.store.write_names(json.loads(names.read_text()) if names.exists() else {})
    finally:
        os.close(lock)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "numpy": np.__version__}
    for name in ("torch", "torchvision"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
