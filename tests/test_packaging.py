"""What is built of the sources: a source distribution that passes its own tests, with one version and a license that tools read."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from email.parser import Parser
from pathlib import Path

import pytest

import flambeau

ROOT = Path(__file__).parents[1]
PARTS = ("flambeau", "tests", "docs", "examples", "benchmarks", ".ci")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tarfile.TarFile:
    """The source distribution, built from a copy: building writes beside the sources."""
    setuptools = pytest.importorskip("setuptools", reason="builds the distribution")
    if int(setuptools.__version__.partition(".")[0]) < 77:
        pytest.skip("licenses as SPDX expressions need setuptools 77")
    copy = tmp_path_factory.mktemp("sources") / "copy"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache", ".hypothesis", "build", "site", "logs")
    for part in PARTS:
        shutil.copytree(ROOT / part, copy / part, ignore=ignored)
    for file in ROOT.iterdir():
        if file.is_file() and not file.name.startswith("."):
            shutil.copy(file, copy)
    build = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    out = tmp_path_factory.mktemp("built")
    done = subprocess.run(
        [sys.executable, "-c", build, str(out)], cwd=copy, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "Deprecat" not in done.stdout + done.stderr
    return tarfile.open(next(out.glob("*.tar.gz")))


def test_the_source_distribution_holds_tests_docs_and_examples(archive: tarfile.TarFile) -> None:
    held = {name.partition("/")[2] for name in archive.getnames()}
    missing = [
        str(path)
        for part in PARTS
        for file in (ROOT / part).rglob("*")
        if file.is_file() and not {"__pycache__", ".DS_Store"} & set(file.parts)
        if (path := file.relative_to(ROOT)).as_posix() not in held and path.suffix not in (".pyc", ".pyo", ".pyd")
    ]
    assert not missing
    assert {"README.md", "LICENSE", "CHANGELOG.md", "mkdocs.yml", "pyproject.toml"} <= held


def test_its_version_and_license_are_said_once(archive: tarfile.TarFile) -> None:
    name = f"flambeau-{flambeau.__version__}/PKG-INFO"
    facts = Parser().parsestr(archive.extractfile(name).read().decode())
    assert facts["Version"] == flambeau.__version__
    assert facts["License-Expression"] == "BSD-3-Clause" and facts["License-File"] == "LICENSE"
    assert f'"{flambeau.__version__}"' not in (ROOT / "pyproject.toml").read_text()
    assert any(line.startswith("Development Status") for line in facts.get_all("Classifier"))
