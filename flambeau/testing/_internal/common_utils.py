"""`torch.testing._internal.common_utils`: the base class of tests, tests for many values, and small helpers.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import flambeau

from .. import assert_close, make_tensor
from .parametrization import decorateIf, instantiate_parametrized_tests, parametrize, subtest

__all__ = [
    "DeterministicGuard", "TemporaryDirectoryName", "TemporaryFileName", "TestCase", "decorateIf", "freeze_rng_state", "gradcheck",
    "gradgradcheck", "instantiate_parametrized_tests", "make_tensor", "parametrize", "run_tests", "set_default_dtype", "set_rng_seed",
    "skipIfNoSciPy", "skipIfRocm", "skipIfTorchDynamo", "slowTest", "subtest", "suppress_warnings",
]  # fmt: skip

SEED = 1234
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
    """A mark for tests that cannot run in a place that this never is: the test runs."""
    return message if callable(message) else lambda test: test


skipIfTorchDynamo = skipIfTorchInductor = skipIfRocm = skipIfXpu = skipIfMPS = skipIfCrossRef = _not_met


def set_rng_seed(seed: int = SEED) -> None:
    """Seed every generator: Python's, NumPy's and Flambeau's."""
    random.seed(seed)
    np.random.seed(seed)
    flambeau.manual_seed(seed)


def run_tests(argv: list[str] | None = None) -> None:
    """Run the tests of the program that calls this."""
    unittest.main(argv=argv or sys.argv)


@contextlib.contextmanager
def freeze_rng_state() -> Iterator[None]:
    """Afterwards, generators are in the state they were in."""
    states = random.getstate(), np.random.get_state()
    with flambeau.random.fork_rng():
        yield
    random.setstate(states[0])
    np.random.set_state(states[1])


@contextlib.contextmanager
def set_default_dtype(dtype: Any) -> Iterator[None]:
    """Inside, new tensors have this dtype."""
    before = flambeau.get_default_dtype()
    flambeau.set_default_dtype(dtype)
    try:
        yield
    finally:
        flambeau.set_default_dtype(before)


@contextlib.contextmanager
def DeterministicGuard(deterministic: bool, *, warn_only: bool = False) -> Iterator[None]:  # noqa: N802  PyTorch's name
    """Inside, deterministic algorithms are demanded, or not."""
    before = flambeau.are_deterministic_algorithms_enabled(), flambeau.is_deterministic_algorithms_warn_only_enabled()
    flambeau.use_deterministic_algorithms(deterministic, warn_only=warn_only)
    try:
        yield
    finally:
        flambeau.use_deterministic_algorithms(before[0], warn_only=before[1])


@contextlib.contextmanager
def TemporaryFileName(*args: Any, **kwargs: Any) -> Iterator[str]:  # noqa: N802
    """The name of a file that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        handle, name = tempfile.mkstemp(*args, dir=folder, **{k: v for k, v in kwargs.items() if k != "mode"})
        os.close(handle)
        yield name


@contextlib.contextmanager
def TemporaryDirectoryName(suffix: str | None = None) -> Iterator[str]:  # noqa: N802
    """The name of a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(suffix=suffix) as folder:
        yield folder


def suppress_warnings(test: Callable) -> Callable:
    """The test without its warnings."""

    @functools.wraps(test)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return test(*args, **kwargs)

    return quiet


def gradcheck(fn: Callable, inputs: Any, **kwargs: Any) -> bool:
    """`autograd.gradcheck`."""
    return flambeau.autograd.gradcheck(fn, inputs, **kwargs)


def gradgradcheck(fn: Callable, inputs: Any, grad_outputs: Any = None, **kwargs: Any) -> bool:
    """`autograd.gradgradcheck`."""
    return flambeau.autograd.gradgradcheck(fn, inputs, grad_outputs, **kwargs)


class TestCase(unittest.TestCase):
    """A test whose `assertEqual` compares tensors, numbers and what holds them, within the tolerances of their dtypes; every test
    starts from the same seed."""

    precision: float = 0
    rel_tol: float = 0
    maxDiff = None

    def setUp(self) -> None:
        super().setUp()
        set_rng_seed()

    def assertEqual(  # type: ignore[override]
        self,
        x: Any,
        y: Any,
        msg: Any = None,
        *,
        atol: float | None = None,
        rtol: float | None = None,
        equal_nan: bool = True,
        exact_dtype: bool = True,
        exact_device: bool = False,
        exact_layout: bool = False,
        exact_stride: bool = False,
    ) -> None:
        """Equal; tensors and numbers nearly, with `atol` and `rtol` or the tolerances of their dtypes (and of the class)."""
        checks = {"check_dtype": exact_dtype, "check_device": exact_device, "check_layout": exact_layout, "check_stride": exact_stride}  # fmt: skip
        limits: dict[str, Any] = {"atol": atol, "rtol": rtol}
        if atol is None and rtol is None:
            limits = {}
        elif atol is None or rtol is None:
            limits = {"atol": atol or 0.0, "rtol": rtol or 0.0}
        try:
            self._compare(x, y, {**checks, **limits, "equal_nan": equal_nan})
        except AssertionError as problem:
            text = msg(str(problem)) if callable(msg) else str(problem) if msg is None else f"{problem}\n{msg}"
            raise self.failureException(text) from None

    def _compare(self, x: Any, y: Any, options: dict[str, Any]) -> None:
        if isinstance(x, flambeau.Tensor) and isinstance(y, Sequence):
            y = flambeau.as_tensor(y, dtype=x.dtype, device=x.device)
        elif isinstance(y, flambeau.Tensor) and isinstance(x, Sequence):
            x = flambeau.as_tensor(x, dtype=y.dtype, device=y.device)
        if isinstance(x, Mapping) and isinstance(y, Mapping):
            super().assertEqual(set(x), set(y))
            for key in x:
                self._compare(x[key], y[key], options)
        elif isinstance(x, Sequence) and isinstance(y, Sequence) and not isinstance(x, (str, bytes)):
            super().assertEqual(len(x), len(y), "lengths differ")
            for first, second in zip(x, y):
                self._compare(first, second, options)
        elif _has_numbers(x) and _has_numbers(y):
            self._compare_numbers(x, y, options)
        else:
            super().assertEqual(x, y)

    def _compare_numbers(self, x: Any, y: Any, options: dict[str, Any]) -> None:
        if isinstance(x, (flambeau.Tensor, np.ndarray)) != isinstance(y, (flambeau.Tensor, np.ndarray)):
            options = {**options, "check_dtype": False}
        a, b = (t if isinstance(t, flambeau.Tensor) else flambeau.as_tensor(t) for t in (x, y))
        if "atol" not in options and (self.precision or self.rel_tol):
            kind = flambeau.promote_types(a.dtype, b.dtype)
            rtol, atol = _TOLERANCES.get(str(kind), (0.0, 0.0))
            options = {**options, "rtol": max(rtol, self.rel_tol), "atol": max(atol, self.precision)}
        assert_close(a, b, **options)

    def assertNotEqual(self, x: Any, y: Any, msg: Any = None, **options: Any) -> None:  # type: ignore[override]
        """Not equal, in the sense of `assertEqual`."""
        with self.assertRaises(AssertionError, msg=msg):
            self.assertEqual(x, y, **options)

    def assertExpectedInline(self, actual: Any, expect: str, skip: int = 0) -> None:
        """Equal to a text in the source."""
        super().assertEqual(str(actual), expect)

    def assertExpectedRaisesInline(
        self, exc_type: Any, callable: Callable, expect: str, *args: Any, **kwargs: Any
    ) -> None:
        """A call raises an error with this text."""
        with self.assertRaises(exc_type) as caught:
            callable(*args, **kwargs)
        self.assertExpectedInline(str(caught.exception), expect)


_TOLERANCES = {"torch.float16": (1e-3, 1e-5), "torch.bfloat16": (1.6e-2, 1e-5), "torch.float32": (1.3e-6, 1e-5),
               "torch.complex64": (1.3e-6, 1e-5), "torch.float64": (1e-7, 1e-7), "torch.complex128": (1e-7, 1e-7)}  # fmt: skip


def _has_numbers(value: Any) -> bool:
    return isinstance(value, (flambeau.Tensor, np.ndarray, bool, int, float, complex, np.generic))
