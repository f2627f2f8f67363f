"""Signals that arrive while native code runs: nothing is overwritten, no result changes, and an interrupt ends in its handler."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from flambeau.backends.cpu import jit

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64" or not jit.available(),
    reason="the handler that counts is written for Linux on x86-64",
)


def run(program: str, *arguments: object) -> str:
    """What a program of this folder printed; NumPy's own threads, which do not matter here, are left out."""
    command = [sys.executable, "-m", f"tests.backends.{program}", *map(str, arguments)]
    told = dict(os.environ, PYTHONPATH=str(ROOT), OPENBLAS_NUM_THREADS="1")
    done = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    return done.stdout


def test_storm_over_all_kernels() -> None:
    lines = [json.loads(line) for line in run("signal_storm", 0.04).splitlines()]
    assert len(lines) > 50
    assert sum(line["signals"] for line in lines) > 1000
    assert [line for line in lines if line["strays"] or line["wrong"] or line["exposed"]] == []


def test_interrupted_training_keeps_its_checkpoints(tmp_path: Path) -> None:
    assert run("interrupted_training", tmp_path, 25).strip() == "25"
