"""The manual as a whole: its generated pages are up to date, every page can be found, links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .blocks import ROOT, pages

DOCS = ROOT / "docs"


def test_compatibility_page_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(DOCS / "_tools" / "compatibility.py"), "--check"], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_names_are_those_of_the_pytorch_that_is_followed() -> None:
    torch = pytest.importorskip("torch", reason="reads PyTorch's names")
    first, *lines = (DOCS / "_tools" / "pytorch-names.txt").read_text().splitlines()
    assert torch.__version__.partition("+")[0] in first
    names = {
        line.partition(": ")[0]: [n.partition("(")[0] for n in line.partition(": ")[2].split(" ")] for line in lines
    }
    assert all(hasattr(torch.nn, name) for name in names["torch.nn"])
    assert set(torch.optim.__all__) == set(names["torch.optim"])


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text())
    assert len(listed) == len(set(listed))
    made = {"changelog.md", "contributing.md"}  # of the files of these names in the repository's root
    assert sorted(set(listed) - made) == sorted(
        str(page.relative_to(DOCS)) for page in pages() if page.is_relative_to(DOCS)
    )


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text())
    for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)", text):
        if not re.match(r"https?:|reference/", target.removeprefix("../")):
            assert (page.parent / target).exists(), target


def test_nothing_is_fetched_from_elsewhere() -> None:
    """The site is read without a network: fonts, scripts and styles are its own."""
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in settings
    assert "iframe-worker.js" in settings
    assert not re.search(r"https?://", settings)


def test_every_example_is_on_the_page_of_examples() -> None:
    page = (DOCS / "examples.md").read_text()
    programs = [path.name for path in (ROOT / "examples").rglob("*.py")]
    assert len(programs) > 10
    assert [name for name in programs if f"`{name}`" not in page and f"/{name}`" not in page] == []


def test_commands_install_from_the_checkout() -> None:
    """The name flambeau cannot be installed from elsewhere; only where it is installed already does pip know its extras."""
    for page in [*pages(), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]:
        if page.name != "installation.md":
            assert "flambeau[" not in page.read_text(), page


def test_readme_is_a_front_page() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= 100
    assert "docs/pictures/gallery-digits.png" in text
    areas, speeds = (part.split("\n\n")[0].count("\n") - 1 for part in re.split(r"(?m)^(?=\| (?:area )?\|)", text)[1:])
    assert (areas, speeds) == (10, 8)
