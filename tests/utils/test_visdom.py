"""The scripts of visdom's page, put where it looks for them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from flambeau.utils import visdom

NPM = f"""import io, pathlib, sys, tarfile
sys.path.insert(0, {str(Path(visdom.__file__).parents[2])!r})
from flambeau.utils.visdom import FILES
source = sys.argv[-1]
name = source.replace("@", "-") + ".tgz"
with tarfile.open(name, "w:gz") as packed:
    for package, inside, _ in FILES:
        if package == source:
            text = f"{{package}} {{inside}}".encode()
            entry = tarfile.TarInfo("package/" + inside)
            entry.size = len(text)
            packed.addfile(entry, io.BytesIO(text))
print(name)
"""


def test_all_files_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "npm.py").write_text(NPM)
    (tmp_path / "npm").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/npm.py" "$@"\n')  # paths with spaces
    (tmp_path / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(visdom, "FILES", visdom.FILES[:3])
    provided = visdom.provide(tmp_path, "0.2.4")
    assert provided == ["js/jquery.min.js", "js/bootstrap.min.js", "css/bootstrap.min.css"]
    assert (tmp_path / "static/css/bootstrap.min.css").read_text() == "bootstrap@3.3.7 dist/css/bootstrap.min.css"
    assert (tmp_path / "static/version.built").read_text() == "0.2.4"
    assert visdom.provide(tmp_path, "0.2.4") == []


def test_without_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="install npm"):
        visdom.provide(tmp_path, "0.2.4")
