"""The site in a browser: it fits a desktop and a phone, can be read, is searched with the keyboard, and asks nobody else for anything."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .browser import DESKTOP, PHONE, PROGRAM, Browser, browser

PAGES = [
    "index.html", "tutorials/start.html", "installation.html", "reference/torch.nn.Linear.html", "reference/torch.html", "gallery.html",
    "notebooks/first-hour.html", "notebooks/vision.html", "examples.html",
]  # fmt: skip
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium")


@pytest.fixture(scope="module")
def reader(site: Path) -> Iterator[Browser]:
    with browser(site) as found:
        yield found


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
@pytest.mark.parametrize("page", PAGES)
def test_page_can_be_read(reader: Browser, page: str, width: int) -> None:
    found = reader.look(page, width)
    assert found["width"] == width
    assert found["scroll"] <= width, found["wide"]  # no horizontal scrolling
    for problem in (
        "errors",
        "console",
        "missing",
        "elsewhere",
        "without_alt",
        "broken",
        "unnamed",
        "default",
        "slate",
    ):
        assert not found[problem], problem


def test_search_opens_with_a_key_and_finds_pages(reader: Browser) -> None:
    found = reader.look("index.html", DESKTOP, search="early stopping")["search"]
    assert found["focused"]
    assert any("training" in link for link in found["links"]), found["links"]


def test_search_finds_functions(reader: Browser) -> None:
    found = reader.look("tutorials/start.html", DESKTOP, search="torch.nn.Linear")["search"]
    assert any("torch.nn.Linear" in link for link in found["links"]), found["links"]
