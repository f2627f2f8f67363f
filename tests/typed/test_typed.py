"""What editors say about users' programs: every wrong line is found, and no right one is called wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .names import UNKNOWN, write_names
from .pages import ROOT, write

pytestmark = pytest.mark.skipif(shutil.which("pyright") is None and not Path(sys.prefix, "bin", "pyright").exists(), reason="no pyright")  # fmt: skip


def diagnosed(*paths: str | Path) -> list[dict[str, Any]]:
    """What pyright says about files, or about a project: "-p", its folder."""
    program = shutil.which("pyright") or str(Path(sys.prefix, "bin", "pyright"))
    command = [program, "--pythonpath", sys.executable, "--outputjson", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=Path(paths[-1]).parent, env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright does not start here: {done.stderr[-200:]}")
    return json.loads(done.stdout)["generalDiagnostics"]


def told(*paths: str | Path) -> list[tuple[str, int, str, str]]:
    """(file, line, rule, message) of pyright's errors."""
    found = [entry for entry in diagnosed(*paths) if entry["severity"] == "error"]
    return [(Path(e["file"]).name, e["range"]["start"]["line"] + 1, e.get("rule", ""), e["message"]) for e in found]


def test_wrong_lines_are_found_and_no_others() -> None:
    programs = Path(__file__).parent / "programs.py"
    wrong = {i for i, line in enumerate(programs.read_text().splitlines(), 1) if line.endswith("# wrong")}
    assert {line for _, line, _, _ in told(programs)} == wrong


def test_tutorials_and_examples_are_right_in_strict_mode(tmp_path: Path) -> None:
    for example in write(tmp_path):
        if not example.is_relative_to(tmp_path):
            copy = tmp_path / example.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(example, copy)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    found = told("-p", tmp_path)
    # onnx's own `load` says `os.PathLike` without what it holds, which strict mode does not let pass.
    assert [
        e for e in found if not (e[0] == "deployment_page.py" and e[3].startswith('Type of "load" is partially'))
    ] == []


def test_every_name_of_the_reference_has_a_type(tmp_path: Path) -> None:
    """An editor knows each name, by both ways to it, what functions and constructors take, and which names are not there."""
    program = write_names(tmp_path)
    lines = program.read_text().splitlines()
    found = diagnosed(program)
    wrong = {i for i, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert {lines[e["range"]["start"]["line"]] for e in found if e["severity"] == "error"} == {
        lines[i - 1] for i in wrong
    }
    types = {
        e["range"]["start"]["line"]: e["message"].split('" is "', 1)[1][:-1] for e in found if '" is "' in e["message"]
    }
    assert len(types) > 6000
    assert {lines[i]: told for i, told in types.items() if UNKNOWN.search(told)} == {}
