"""Every code block of the manual and of the README runs, and prints what the page says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .blocks import ROOT, blocks, pages

# Pages that compile C++ or run long: with the checks against PyTorch only.
LONG = {"docs/cpp.md"}


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in pages()])
def test_page(page: str, tmp_path: Path) -> None:
    if not any(block.language == "python" for block in blocks(ROOT / page)):
        return
    if page in LONG:
        pytest.importorskip("torch", reason="takes long: runs with the checks against PyTorch")
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.blocks", page], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
