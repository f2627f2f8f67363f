"""What tests share: the base class, tests for many values, seeds, files for a while, what there is on this machine."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import sys
import tempfile
import unittest
from collections.abc import Iterator
from typing import Any

import flambeau

from .. import make_tensor
from .case import SEED, TestCase, set_rng_seed
from .parametrization import instantiate_parametrized_tests, parametrize, subtest

__all__ = [
    "IS_LINUX", "IS_MACOS", "IS_WINDOWS", "IS_X86", "SEED", "TEST_NUMPY", "TEST_SCIPY", "TemporaryDirectoryName",
    "TemporaryFileName", "TestCase", "freeze_rng_state", "instantiate_parametrized_tests", "make_tensor", "parametrize", "run_tests",
    "set_default_dtype", "set_rng_seed", "subtest",
]  # fmt: skip

IS_LINUX, IS_MACOS, IS_WINDOWS = (sys.platform.startswith(name) for name in ("linux", "darwin", "win32"))
IS_X86 = platform.machine() in ("x86_64", "AMD64")
TEST_NUMPY = True
TEST_SCIPY = importlib.util.find_spec("scipy") is not None


def __getattr__(name: str) -> Any:
    """Whether there are GPUs is asked when it matters."""
    if name == "TEST_CUDA":
        return flambeau.cuda.is_available()
    if name == "TEST_MULTIGPU":
        return flambeau.cuda.device_count() >= 2
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def run_tests(argv: list[str] | None = None) -> None:
    """Run the tests of the program."""
    unittest.main(argv=sys.argv if argv is None else argv)


@contextlib.contextmanager
def freeze_rng_state() -> Iterator[None]:
    """What is drawn inside changes nothing of what is drawn afterwards."""
    with flambeau.random.fork_rng():
        yield


@contextlib.contextmanager
def set_default_dtype(dtype: Any) -> Iterator[None]:
    """Another default dtype for a while."""
    before = flambeau.get_default_dtype()
    flambeau.set_default_dtype(dtype)
    try:
        yield
    finally:
        flambeau.set_default_dtype(before)


@contextlib.contextmanager
def TemporaryFileName(*args: Any, **kwargs: Any) -> Iterator[str]:  # noqa: N802  PyTorch's name
    """The name of a file that is gone afterwards."""
    with tempfile.NamedTemporaryFile(*args, **{**kwargs, "delete": False}) as file:
        pass
    try:
        yield file.name
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file.name)


@contextlib.contextmanager
def TemporaryDirectoryName(suffix: str | None = None) -> Iterator[str]:  # noqa: N802  PyTorch's name
    """The name of a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(suffix=suffix) as folder:
        yield folder
