"""Every example runs, and what it trains gets better."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
CHANGE = re.compile(r"(loss|accuracy|distance[a-z ]*) (\d+\.\d+) -> (\d+\.\d+)")
# Accuracy on unseen data that a short run must reach; chance is 0.1 for digits.
LEAST_ACCURACY = 0.6


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example(path):
    assert len(path.read_text().splitlines()) < 80
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, str(path), "--quick"], capture_output=True, text=True, env=environment, timeout=300
    )
    assert run.returncode == 0, run.stderr
    changes = CHANGE.findall(run.stdout)
    assert changes, run.stdout
    for what, before, after in changes:
        better = float(after) > float(before) if what == "accuracy" else float(after) < 0.9 * float(before)
        assert better, run.stdout
    for score in re.findall(r"test accuracy (\d\.\d+)", run.stdout):
        assert float(score) > LEAST_ACCURACY, run.stdout


def test_all_examples_are_found():
    assert len(EXAMPLES) >= 11
