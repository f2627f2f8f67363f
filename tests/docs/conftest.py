"""The site, built once for the tests that look at it."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .blocks import ROOT


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site: the one that FLAMBEAU_SITE names, else it is built once for all processes of the run."""
    if os.environ.get("FLAMBEAU_SITE"):
        return Path(os.environ["FLAMBEAU_SITE"])
    if importlib.util.find_spec("material") is None:
        pytest.skip("no mkdocs-material: the site cannot be built")
    shared = tmp_path_factory.getbasetemp()
    folder = (shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared) / "site"
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "search" / "search_index.js").exists():
            _build(folder)
    return folder


def _build(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
