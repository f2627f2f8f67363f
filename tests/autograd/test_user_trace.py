"""Anomaly detection names the user's line wherever the program and the package lie."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau

_PROGRAM = """
import flambeau
from flambeau.core.graph import user_trace

with flambeau.autograd.set_detect_anomaly(True):
    x = flambeau.zeros(1, requires_grad=True)
    y = (x.sqrt() * 0).sum()  # the user's line
    print(flambeau.__file__)
    print("TRACE", [line for line in y.grad_fn.trace.text.splitlines() if line])
"""


@pytest.mark.parametrize("folder", ["flambeau", "flambeau/examples", "un été à la mer/ファイル"])
@pytest.mark.parametrize("clone", [True, False], ids=["clone", "installed elsewhere"])
def test_the_line_of_a_program_in_any_folder(tmp_path, folder, clone):
    place = tmp_path / folder
    place.mkdir(parents=True)
    package = Path(flambeau.__file__).parent
    if clone:
        root = tmp_path / Path(folder).parts[0]
        (root / "flambeau").symlink_to(package)
    else:
        root = package.parent
    program = place / "train me.py"
    program.write_text(_PROGRAM, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, encoding="utf-8", timeout=60
    )
    assert done.returncode == 0, done.stderr
    file, trace = done.stdout.splitlines()
    assert Path(file) == root / "flambeau" / "__init__.py"
    assert "the user's line" in trace and str(program) in trace
    assert trace.count(" File ") == 1  # nothing of the package itself
