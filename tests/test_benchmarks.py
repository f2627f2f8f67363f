"""The benchmarks run: they share code, and their tables are in docs/performance.md. How fast anything is, is not asked here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the benchmarks compare with PyTorch")

ROOT = Path(__file__).parent.parent
COMMANDS = {
    "eager": ["eager.py", "--only", "chain, 64 elements$", "--seconds", "0.02"],
    "operators": ["ops.py", "--only", "^pointwise: .*exp", "--seconds", "0.02"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_prints_a_table(name: str) -> None:
    program, *options = COMMANDS[name]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "benchmarks" / program), *options]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert run.returncode == 0, run.stderr
    rows = [line for line in run.stdout.splitlines() if line.startswith("| ")]
    numbers = [cell for row in rows[2:] for cell in row.split("|") if cell.strip().replace(".", "", 1).isdigit()]
    assert numbers, run.stdout


def test_shapes_prints_a_ratio_for_every_pass() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "benchmarks" / "shapes.py"), "--only", "pointwise|convolution", "--most", "3"]
    run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert run.returncode == 0, run.stderr
    rows = [line for line in run.stdout.splitlines() if " ms " in line]
    assert len(rows) == 2 * 4, run.stdout
