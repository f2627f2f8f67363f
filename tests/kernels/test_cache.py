"""The kernel cache on disk: a second start compiles nothing, and untrusted or broken files are never run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from forked import Forked

from flambeau import cli, config
from flambeau.kernels import cache

IMPORTS = """
import sys
import numpy as np
import flambeau.expr as x
from flambeau.backends.cpu import jit
from flambeau.core import dtype as dt
from flambeau.backends.compiled import map_kernel
assert (jit.stats.compiled, jit.stats.loaded) == (0, 0) and "llvmlite" not in sys.modules
"""
PROGRAM = """
kernel = map_kernel((x.arg(0) * 2 + x.const({constant!r}),), (dt.float32,), (dt.float32,), "cc", 1)
a, out = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
kernel(100, out.ctypes.data, a.ctypes.data)
assert (out == a * 2 + {constant!r}).all()
print(jit.stats.compiled, jit.stats.loaded, "llvmlite" in sys.modules)
"""


@pytest.fixture(scope="module")
def imported():
    with Forked(IMPORTS) as process:
        yield process


@pytest.fixture
def start(imported):
    """start(folder): (compiled, loaded, llvmlite imported) of a process that has done nothing yet, which says `warning` or nothing."""

    def start(folder, constant=1.0, warning=""):
        program = PROGRAM.format(constant=constant)
        done = imported.run(program, {**os.environ, "FLAMBEAU_CACHE_DIR": str(folder)})
        assert done.returncode == 0, done.stderr
        assert warning in done.stderr and bool(warning) == ("Warning" in done.stderr)
        compiled, loaded, llvm = done.stdout.split()
        return int(compiled), int(loaded), llvm == "True"

    return start


def test_a_second_start_compiles_nothing_and_does_not_import_llvm(start, tmp_path):
    folder = tmp_path / "cache"
    assert start(folder) == (1, 0, True)
    assert start(folder) == (0, 1, False)
    assert start(folder, constant=2.0) == (1, 0, True)


def test_broken_files_are_compiled_again(start, tmp_path):
    folder = tmp_path / "cache"
    start(folder)
    (file,) = folder.glob("*.kernel")
    whole = file.read_bytes()
    for broken in (b"", whole[:50], whole[:-1], whole[:100] + b"\0" + whole[101:], b"x" * len(whole)):
        file.write_bytes(broken)
        assert start(folder) == (1, 0, True)
    assert start(folder) == (0, 1, False)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX permissions")
def test_files_and_directories_others_can_write_are_not_trusted(start, tmp_path):
    folder = tmp_path / "cache"
    start(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    (file,) = folder.glob("*.kernel")
    assert file.stat().st_mode & 0o077 == 0
    file.chmod(0o666)
    assert start(folder) == (1, 0, True)
    for mode in (0o777, 0o770):
        folder.chmod(mode)
        assert start(folder, warning=f"others can write to it (mode {mode:o}; chmod 700 mends that)") == (1, 0, True)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX permissions")
def test_info_says_why_the_cache_is_not_used(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "cache"
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(folder))
    assert cache.problem() is None and f"0 kernels, 0.0 MB, in {folder}" in config.show()
    folder.mkdir()
    folder.chmod(0o770)
    assert "others can write to it (mode 770" in cache.info()["problem"]
    line = next(line for line in config.show().splitlines() if line.startswith("kernel cache"))
    assert f"not used: {folder}: others can write to it" in line
    cli.main(["cache", "show"])
    assert f"not used: {folder}: others can write to it" in capsys.readouterr().out
    with pytest.warns(
        UserWarning, match="is not used, so that every start compiles its kernels again: others can write"
    ):
        assert cache.read("name") is None
    assert not cache.write("name", b"data")  # it was said once
    assert os.listdir(folder) == []


def test_an_unusable_directory_is_not_an_error(start, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    assert start(blocked, warning="it is not a directory") == (1, 0, True)


def test_a_file_is_only_believed_under_its_own_name(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    assert cache.write("name", b"data") and cache.write("name", b"entry", cache.ENTRY)
    folder = cache.directory()
    os.link(folder / "name.kernel", folder / "other.kernel")
    os.replace(folder / "name.kernel", folder / "name.entry")
    assert cache.read("other") is None and cache.read("name", cache.ENTRY) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_or_a_folder_in_the_cache_is_passed_over(start, imported, tmp_path):
    folder = tmp_path / "cache"
    start(folder)
    (file,) = folder.glob("*.kernel")
    file.unlink()
    os.mkfifo(file, 0o600)
    listing = "from flambeau.kernels import cache; print(cache.info()['files']); cache.clear()"
    regular = len(list(folder.glob("*.entry")))
    done = imported.run(listing, {**os.environ, "FLAMBEAU_CACHE_DIR": str(folder)})
    assert done.stdout == f"{regular}\n" and os.listdir(folder) == [file.name]
    assert start(folder) == (1, 0, True)  # and a kernel takes the pipe's place
    assert start(folder) == (0, 1, False)
    file.unlink()
    file.mkdir()
    assert start(folder) == (1, 0, True)


def test_info_and_clear(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    assert cache.info() == {"path": str(tmp_path / "cache"), "files": 0, "bytes": 0, "problem": None}
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
