"""`torch.testing._internal.common_utils`: the base class of tests, parametrized tests, and small helpers.

>>> @instantiate_parametrized_tests
... class TestAdd(TestCase):
...     @parametrize("n", [1, 2])
...     def test_add(self, n):
...         self.assertEqual(flambeau.ones(n) + 1, flambeau.full((n,), 2.0))
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import platform
import random
import sys
import tempfile
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import flambeau

from .. import make_tensor
from .case import SEED as SEED
from .case import TestCase, set_rng_seed
from .parametrization import decorateIf, instantiate_parametrized_tests, parametrize, subtest

__all__ = [
    "DeterministicGuard", "TemporaryDirectoryName", "TemporaryFileName", "TestCase", "decorateIf", "freeze_rng_state", "gradcheck",
    "gradgradcheck", "instantiate_parametrized_tests", "make_tensor", "parametrize", "run_tests", "set_default_dtype", "set_rng_seed",
    "skipIfNoSciPy", "skipIfRocm", "skipIfTorchDynamo", "slowTest", "subtest", "suppress_warnings",
]  # fmt: skip

IS_LINUX, IS_WINDOWS, IS_MACOS = (sys.platform == name for name in ("linux", "win32", "darwin"))
IS_X86, IS_ARM64 = platform.machine() == "x86_64", platform.machine() in ("arm64", "aarch64")
IS_CI = bool(os.environ.get("CI"))
IS_FBCODE = IS_SANDCASTLE = IS_JETSON = False  # machines of others
TEST_NUMPY = True
TEST_SCIPY = importlib.util.find_spec("scipy") is not None
TEST_CUDA = flambeau.cuda.is_available()
TEST_MULTIGPU = TEST_CUDA and flambeau.cuda.device_count() > 1
TEST_MPS = TEST_XPU = TEST_WITH_ROCM = TEST_WITH_TORCHDYNAMO = TEST_WITH_TORCHINDUCTOR = TEST_WITH_ASAN = (
    False  # not met here
)
TEST_WITH_SLOW = os.environ.get("PYTORCH_TEST_WITH_SLOW", "0") == "1"

slowTest = unittest.skipUnless(TEST_WITH_SLOW, "test is slow; run with PYTORCH_TEST_WITH_SLOW to enable test")
skipIfNoSciPy = unittest.skipUnless(TEST_SCIPY, "test require SciPy, but SciPy not found")


def _not_met(message: Any = "") -> Any:
    """Return a decorator that skips nothing, for conditions (platforms, compilers) that are never true here."""
    return message if callable(message) else lambda test: test


skipIfTorchDynamo = skipIfTorchInductor = skipIfRocm = skipIfXpu = skipIfMPS = skipIfCrossRef = _not_met


def run_tests(argv: list[str] | None = None) -> None:
    """Run the tests of the program that calls this."""
    unittest.main(argv=argv or sys.argv)


@contextlib.contextmanager
def freeze_rng_state() -> Iterator[None]:
    """Context manager: restore the random generators on exit."""
    states = random.getstate(), np.random.get_state()
    with flambeau.random.fork_rng():
        yield
    random.setstate(states[0])
    np.random.set_state(states[1])


@contextlib.contextmanager
def set_default_dtype(dtype: Any) -> Iterator[None]:
    """Context manager: set the default dtype, restore it on exit."""
    before = flambeau.get_default_dtype()
    flambeau.set_default_dtype(dtype)
    try:
        yield
    finally:
        flambeau.set_default_dtype(before)


@contextlib.contextmanager
def DeterministicGuard(deterministic: bool, *, warn_only: bool = False) -> Iterator[None]:  # noqa: N802  PyTorch's name
    """Context manager: set `use_deterministic_algorithms`, restore it on exit."""
    before = flambeau.are_deterministic_algorithms_enabled(), flambeau.is_deterministic_algorithms_warn_only_enabled()
    flambeau.use_deterministic_algorithms(deterministic, warn_only=warn_only)
    try:
        yield
    finally:
        flambeau.use_deterministic_algorithms(before[0], warn_only=before[1])


@contextlib.contextmanager
def TemporaryFileName(*args: Any, **kwargs: Any) -> Iterator[str]:  # noqa: N802
    """Context manager: yield the name of a file that is removed on exit."""
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"dir": folder, **{k: v for k, v in kwargs.items() if k != "mode"}}
        handle, name = tempfile.mkstemp(*args, **options)
        os.close(handle)
        yield name


@contextlib.contextmanager
def TemporaryDirectoryName(suffix: str | None = None) -> Iterator[str]:  # noqa: N802
    """Context manager: yield the name of a folder that is removed on exit."""
    with tempfile.TemporaryDirectory(suffix=suffix) as folder:
        yield folder


def suppress_warnings(test: Callable) -> Callable:
    """Wrap a test so that its warnings are not shown."""

    @functools.wraps(test)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return test(*args, **kwargs)

    return quiet


def gradcheck(fn: Callable, inputs: Any, **kwargs: Any) -> bool:
    """Check first derivatives, as `autograd.gradcheck` does."""
    return flambeau.autograd.gradcheck(fn, inputs, **kwargs)


def gradgradcheck(fn: Callable, inputs: Any, grad_outputs: Any = None, **kwargs: Any) -> bool:
    """Check second derivatives, as `autograd.gradgradcheck` does."""
    return flambeau.autograd.gradgradcheck(fn, inputs, grad_outputs, **kwargs)
