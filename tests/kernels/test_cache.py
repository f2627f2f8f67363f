"""The kernel cache on disk: a second start compiles nothing, and untrusted or broken files are never run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flambeau.kernels import cache

PROGRAM = """
import sys
import numpy as np
import flambeau.expr as x
from flambeau.backends.cpu import jit
from flambeau.core import dtype as dt
from flambeau.backends.compiled import map_kernel

kernel = map_kernel((x.arg(0) * 2 + x.const({constant!r}),), (dt.float32,), (dt.float32,), "cc", 1)
a, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
kernel(100, out.ctypes.data, a.ctypes.data)
assert (out == a * 2 + {constant!r}).all()
print(jit.stats.compiled, jit.stats.loaded, "llvmlite" in sys.modules)
"""


def start(folder, constant=1.0):
    """(compiled, loaded, llvmlite imported) of a fresh process."""
    environment = {**os.environ, "FLAMBEAU_CACHE_DIR": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    program = PROGRAM.format(constant=constant)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    compiled, loaded, imported = done.stdout.split()
    return int(compiled), int(loaded), imported == "True"


def test_a_second_start_compiles_nothing_and_does_not_import_llvm(tmp_path):
    folder = tmp_path / "cache"
    assert start(folder) == (1, 0, True)
    assert start(folder) == (0, 1, False)
    assert start(folder, constant=2.0) == (1, 0, True)


def test_broken_files_are_compiled_again(tmp_path):
    folder = tmp_path / "cache"
    start(folder)
    (file,) = folder.glob("*.kernel")
    whole = file.read_bytes()
    for broken in (b"", whole[:50], whole[:-1], whole[:100] + b"\0" + whole[101:], b"x" * len(whole)):
        file.write_bytes(broken)
        assert start(folder) == (1, 0, True)
    assert start(folder) == (0, 1, False)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX permissions")
def test_files_and_directories_others_can_write_are_not_trusted(tmp_path):
    folder = tmp_path / "cache"
    start(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    (file,) = folder.glob("*.kernel")
    assert file.stat().st_mode & 0o077 == 0
    file.chmod(0o666)
    assert start(folder) == (1, 0, True)
    folder.chmod(0o777)
    assert start(folder) == (1, 0, True)


def test_an_unusable_directory_is_not_an_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    assert start(blocked) == (1, 0, True)


def test_info_and_clear(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    assert cache.info() == {"path": str(tmp_path / "cache"), "files": 0, "bytes": 0}
    assert cache.read("name") is None
    assert cache.write("name", b"data")
    assert cache.read("name") == b"data"
    assert cache.info()["files"] == 1
    cache.clear()
    assert cache.info()["files"] == 0
    assert cache.read("name") is None


def test_directory_follows_the_environment(monkeypatch):
    monkeypatch.delenv("FLAMBEAU_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.directory() == Path("/somewhere/flambeau")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache.directory() == Path("/home/someone/.cache/flambeau")
