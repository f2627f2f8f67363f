"""What is built of the sources: a source distribution that passes its own tests, with one version and a license that tools read."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import flambeau

ROOT = Path(__file__).parents[1]
PARTS = ("flambeau", "tests", "docs", "examples", "benchmarks", ".ci")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tarfile.TarFile:
    """The source distribution, built from a copy: building writes beside the sources."""
    try:
        found = version("setuptools")  # not imported: it would exchange distutils, which other tests may have imported
    except PackageNotFoundError:
        pytest.skip("builds the distribution, and setuptools is not installed")
    if int(found.partition(".")[0]) < 77:
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


def test_the_changelog_ends_its_unreleased_part_at_this_version() -> None:
    first, *released = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first == "Unreleased" and released[0].startswith(f"{flambeau.__version__} (")
    dates = [re.fullmatch(r"\d+\.\d+\.\d+ \((\d{4}-\d\d-\d\d)\)", each)[1] for each in released]
    assert dates == sorted(dates, reverse=True)


def test_every_python_that_is_promised_and_found_is_tried(tmp_path: Path) -> None:
    """`.ci/run` looks on PATH, where pyenv's shims may not run, and among pyenv's versions."""
    script = (ROOT / ".ci" / "run").read_text()
    function = script[script.index("pythons() {") :].partition("\n}\n")[0] + "\n}\n"

    def interpreter(path: Path, version: str, runs: bool = True) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        minor = version.split(".")[1]
        path.write_text(f'#!/bin/sh\ncase "$2" in *"(3, {minor})"*) exit {0 if runs else 127};; esac\nexit 1\n')
        path.chmod(0o755)
        return str(path)

    on_path, versions = tmp_path / "bin", tmp_path / "pyenv" / "versions"
    interpreter(on_path / "python3.10", "3.10", runs=False)  # a shim
    interpreter(on_path / "python3.12", "3.12")
    found = interpreter(versions / "3.10.13" / "bin" / "python3", "3.10.13")
    newest = interpreter(versions / "3.13.0" / "bin" / "python3", "3.13.0")
    interpreter(versions / "3.9.18" / "bin" / "python3", "3.9.18")
    done = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", f"{function}pythons"],
        env={"PATH": str(on_path), "PYENV_ROOT": str(tmp_path / "pyenv")}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.split("\n") == [found, "python3.12", newest, ""], done.stderr
    assert "-m smoke" in script


def test_the_smoke_selection_imports_only_its_own_files() -> None:
    command = [sys.executable, "-m", "pytest", "-m", "smoke", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "tests/test_smoke.py" in done.stdout
    assert "deselected" not in done.stdout
