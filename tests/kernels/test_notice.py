"""The line that a person at a terminal reads while kernels are compiled, and that nobody else does."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

import flambeau
from flambeau.kernels import notice

ROOT = str(Path(flambeau.__file__).parents[1])
LINE = "flambeau: compiling kernels for their first use on this machine (kept in "
# Enough kernels, or so little patience, that the line is due.
PROGRAM = """
import flambeau, flambeau.kernels.notice
flambeau.kernels.notice.PATIENCE = {patience}
x = flambeau.rand(8, 8, requires_grad=True)
(x.softmax(1).log().tanh() + x.erf() @ x).std().backward()
print("done")
"""


def run(folder: Path, terminal: bool, patience: float = 0.0, **more: str) -> tuple[str, str]:
    """What a program with an empty cache of kernels prints: on stdout, and on stderr."""
    environment = {**os.environ, "PYTHONPATH": ROOT, "FLAMBEAU_CACHE_DIR": str(folder / "cache"), **more}
    ours, theirs = pty.openpty() if terminal else os.pipe()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(patience=patience)],
        env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True, timeout=120,
    )  # fmt: skip
    if not terminal:
        os.close(theirs)
    os.set_blocking(ours, False)
    try:
        said = os.read(ours, 100_000).decode()
    except BlockingIOError:
        said = ""
    os.close(ours)
    if terminal:
        os.close(theirs)
    assert done.returncode == 0 and done.stdout == "done\n"
    return done.stdout, said


def test_a_person_is_told_once(tmp_path: Path) -> None:
    said = run(tmp_path, terminal=True)[1]
    assert said.count(LINE) == 1 and said.count("\n") == 1 and str(tmp_path / "cache") in said
    assert run(tmp_path, terminal=True)[1] == "", "the second run finds its kernels"


def test_nobody_else_is_told(tmp_path: Path) -> None:
    assert run(tmp_path, terminal=False)[1] == ""


@pytest.mark.parametrize("more", [{"LOCAL_RANK": "1"}, {}], ids=["rank", "patience"])
def test_ranks_and_short_pauses_say_nothing(tmp_path: Path, more: dict[str, str]) -> None:
    assert run(tmp_path, terminal=True, patience=0.0 if more else 600.0, **more)[1] == ""


class Terminal:
    """A stream that says it is one."""

    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


def test_one_long_kernel_is_told_of_while_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, told = Terminal(), notice.Notice()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(notice, "PATIENCE", 0.02)
    with told.compiling():
        for _ in range(500):
            if stream.text:
                break
            time.sleep(0.01)
    assert stream.text.startswith(LINE)


def test_many_short_kernels_are_told_of_together(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, told = Terminal(), notice.Notice()
    monkeypatch.setattr(sys, "stderr", stream)
    with told.compiling():
        pass
    assert stream.text == ""
    told.seconds = notice.PATIENCE
    for _ in range(100):
        with told.compiling():
            time.sleep(0.01)
    assert stream.text.count(LINE) == 1


def test_a_closed_or_missing_stderr_is_no_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    closed = open(tmp_path / "closed", "w")  # noqa: SIM115
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr(sys, "stderr", stream)
        with notice.Notice().compiling():
            pass
