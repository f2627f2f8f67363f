"""The page: offline, and working in a real browser."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from .serving import Client
from .test_handlers import NET, package, picture


def test_the_page_needs_nothing_from_elsewhere(client: Client):
    answer = client.manage("GET", "/", headers={"Accept": "text/html"})
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    text = answer.body.decode()
    addresses = [a for a in re.findall(r"https?://[^\s\"'`]+", text) if not a.startswith("http://www.w3.org/")]
    assert addresses == []
    assert client.manage("GET", "/").status == 405  # as TorchServe, for those who do not ask for a page
    assert client.ask("GET", "/", headers={"Accept": "text/html"}).status == 405  # not for everybody who may infer


def test_numbers_of_the_page(client: Client):
    client.predict("echo", b"x")
    stats = client.manage("GET", "/-/stats").json()
    (echo,) = [m for m in stats["models"] if m["name"] == "echo"]
    assert echo["workers"][0]["state"] == "ready"
    assert echo["latencies"] and echo["waiting"] == 0
    assert client.manage("POST", "/-/predictions/echo", b"hi").body == b"hi"
    assert client.manage("GET", "/-/nothing").status == 404


def test_in_a_browser(client: Client, store: Path, tmp_path: Path):
    playwright = pytest.importorskip("playwright.sync_api", reason="the page is tried with playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium")
    package(store, "seen", NET, "Net", "image_classifier", {str(i): f"class {i}" for i in range(10)})
    assert client.register("seen.mar").status == 200
    file = tmp_path / "picture.png"
    file.write_bytes(picture())
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 1300})
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda request: request.url.startswith(("http://127.0.0.1", "blob:")) or problems.append(request.url),
        )
        page.goto(f"{client.server.addresses['management']}/")
        page.wait_for_selector("section.card >> text=seen")
        page.select_option("#model", "seen")
        page.set_input_files("#file", str(file))
        page.click("#predict")
        page.wait_for_selector(".bars >> text=class")
        page.click("#explain")
        page.wait_for_selector("#result canvas")
        page.click("#interface summary h2")
        page.wait_for_selector("#interface table >> text=The answer of a model's default version")
        assert problems == []
        browser.close()
    client.manage("DELETE", "/models/seen")
