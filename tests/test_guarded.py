"""`python -m tests.guarded` sees a call that reads beside its memory."""

from __future__ import annotations

import ctypes
import signal
from pathlib import Path

import pytest

import flambeau
from tests import guarded


def _beside(name: str, overload: str, seeds: range, log: Path) -> None:
    numbers = flambeau.ones(3)
    for offset in seeds:
        assert ctypes.c_byte.from_address(numbers.data_ptr() + offset).value is not None


@pytest.mark.parametrize(
    ("offsets", "ended"), [(range(12), 0), (range(64, 65), signal.SIGSEGV), (range(-4096, -4095), signal.SIGSEGV)]
)
def test_a_read_beside_the_memory_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, offsets: range, ended: int
) -> None:
    monkeypatch.setattr(guarded, "calls", _beside)
    assert guarded.in_a_process("add", "Tensor", offsets, tmp_path / "call") == ended


def test_calls_that_fit_or_do_not_are_no_crash(tmp_path: Path) -> None:
    assert guarded.in_a_process("add", "Tensor", range(20), tmp_path / "call") == 0
    assert (tmp_path / "call").read_text().startswith("aten.add.Tensor(")
    assert ("gather", "") in guarded.overloads("^gather$")
