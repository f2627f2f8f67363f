"""The notebooks: each runs without an error, and was run before it was kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "_tools"))
import notebooks  # noqa: E402

PATHS = sorted(notebooks.FOLDER.glob("*.ipynb"))


def test_there_are_five() -> None:
    names = ["compile-and-profiling", "export-and-serving", "first-hour", "text", "vision"]
    assert [path.stem for path in PATHS] == names


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path) -> None:
    for package in ("nbclient", "ipykernel", "onnxruntime", "PIL"):
        pytest.importorskip(package, reason="a notebook needs it: pip install flambeau[notebooks]")
    notebook = notebooks.run(path)
    assert not [o for cell in notebook.cells for o in cell.get("outputs", ()) if o.output_type == "error"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_kept_notebook_was_run_and_is_small(path: Path) -> None:
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert any(cell["outputs"] for cell in cells)
    assert path.stat().st_size < 100_000


def test_page_shows_text_code_and_what_was_shown(tmp_path: Path) -> None:
    outputs = [
        {"output_type": "stream", "text": ["one\n", "two\n"]},
        {"output_type": "execute_result", "data": {"text/plain": ["3"]}},
        {"output_type": "display_data", "data": {"image/svg+xml": ["<svg>\n  <g/>\n", "</svg>"], "text/plain": "x"}},
        {"output_type": "display_data", "data": {"image/png": "AAAA\n", "text/plain": "x"}},
        {"output_type": "display_data", "data": {"text/html": "<b>4</b>", "text/plain": "x"}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title"]},
        {"cell_type": "code", "source": ["1 + 2"], "outputs": outputs},
    ]
    path = tmp_path / "one.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    page = notebooks.page(path)
    assert page.startswith("# Title\n")
    for part in ("```python\n1 + 2\n```", "one\ntwo\n```", "\n3\n```", "<svg> <g/> </svg>", 'base64,AAAA"', "<b>4</b>"):
        assert part in page
