"""What the tests of C++ have in common: whether there is a compiler, and where pybind11's headers are."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import flambeau
from flambeau.utils import cpp_extension

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(flambeau.__file__).parents[1]
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="CMake is not installed")


def pybind11_headers(folder: Path) -> Path | None:
    """A folder with pybind11's headers, where they are not a package of their own: PyTorch brings them along, too."""
    if cpp_extension.pybind11_include() is not None:
        return Path(cpp_extension.pybind11_include())
    spec = importlib.util.find_spec("torch")
    for root in spec.submodule_search_locations or [] if spec is not None else []:
        found = Path(root) / "include" / "pybind11"
        if found.is_dir():
            (folder / "pybind11").symlink_to(found)
            return folder
    return None


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that `make` fills, once for all processes that run the tests."""
    shared = factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else factory.getbasetemp()
    folder = shared / f"cpp_{name}"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir()
            try:
                make(folder)
            except BaseException:
                shutil.rmtree(folder)
                raise
    return folder


def environment(**more: str) -> dict[str, str]:
    """That of a program which starts this Python."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def run(*command: object, cwd: Path | None = None, **more: str) -> str:
    """What a command prints; it must succeed."""
    env = environment(**more)
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd, env=env, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cmake(source: Path, build: Path, *options: str) -> None:
    """Configure and build a CMake project, two files at a time."""
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    run("cmake", "-S", source, "-B", build, *generator, f"-DPython3_EXECUTABLE={sys.executable}", *options)
    run("cmake", "--build", build, "-j", "2")
