"""The site in a browser: it fits a desktop and a phone, can be read, is searched with the keyboard, and asks nobody else for anything."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from .blocks import ROOT
from .browser import DESKTOP, PHONE, PROGRAM, Browser, browser

PAGES = [
    "index.html", "tutorials/start.html", "installation.html", "reference/torch.nn.Linear.html", "reference/torch.html", "gallery.html",
    "notebooks/first-hour.html",
]  # fmt: skip
pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium"),
    pytest.mark.skipif(
        importlib.util.find_spec("material") is None, reason="no mkdocs-material: the site cannot be built"
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=600)
    with browser(folder) as found:
        yield found


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
@pytest.mark.parametrize("page", PAGES)
def test_page_can_be_read(site: Browser, page: str, width: int) -> None:
    found = site.look(page, width)
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


def test_search_opens_with_a_key_and_finds_pages(site: Browser) -> None:
    found = site.look("index.html", DESKTOP, search="early stopping")["search"]
    assert found["focused"]
    assert any("training" in link for link in found["links"]), found["links"]


def test_search_finds_functions(site: Browser) -> None:
    found = site.look("tutorials/start.html", DESKTOP, search="torch.nn.Linear")["search"]
    assert any("torch.nn.Linear" in link for link in found["links"]), found["links"]
