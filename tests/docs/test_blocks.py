"""Every code block of the manual and of the README runs, and prints what the page says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .blocks import ROOT, blocks, pages

# Pages that compile C++, start servers or train for long: with the checks against PyTorch only.
LONG = {
    "docs/cpp.md", "docs/files.md", "docs/gallery.md", "docs/profiling.md", "docs/sharding.md", "docs/tutorials/compression.md", "docs/tutorials/deployment.md",
    "docs/tutorials/parallel.md", "docs/tutorials/text.md", "docs/tutorials/tools.md", "docs/tutorials/vision.md",
}  # fmt: skip
PAGES = [str(page.relative_to(ROOT)) for page in pages() if "```python" in page.read_text()]
SHORT = [page for page in PAGES if page not in LONG]


def run(names: list[str], folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.blocks", *names], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("part", [0, 1])
def test_short_pages(part: int, tmp_path: Path) -> None:
    """Half of the short pages at a time: they share the time it takes to load the library."""
    run(SHORT[part::2], tmp_path)


@pytest.mark.parametrize("page", sorted(LONG))
def test_long_page(page: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="takes long: runs with the checks against PyTorch")
    assert page in PAGES
    run([page], tmp_path)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_say_what_they_are(page: Path) -> None:
    assert all(block.text.strip() for block in blocks(page))
