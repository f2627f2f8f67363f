"""The base class of tests that compare tensors, as PyTorch's own and those of many projects use it."""

from __future__ import annotations

import contextlib
import random
import re
import sys
import unittest
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

import flambeau as torch

from ..comparison import TOLERANCES, parts_of_spread

SEED = 1234
_NUMBERS = (bool, int, float, complex, np.number, np.bool_)
_SEQUENCES = (Sequence, torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ParameterList)
_MAPPINGS = (Mapping, torch.nn.ModuleDict, torch.nn.ParameterDict)


def set_rng_seed(seed: int = SEED) -> None:
    """Seed Python, NumPy and Flambeau."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _is_array(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, np.ndarray))


class TestCase(unittest.TestCase):
    """Test case whose `assertEqual` compares tensors with the tolerances of their dtypes; each test starts from the same seed."""

    precision: float = 0
    rel_tol: float = 0
    maxDiff = None
    exact_dtype = True
    _default_dtype_check_enabled = False

    def setUp(self) -> None:
        super().setUp()
        set_rng_seed()

    # -- equality -------------------------------------------------------------------------------------------------------------

    def assertGreaterAlmostEqual(
        self, first: Any, second: Any, places: Any = None, msg: Any = None, delta: Any = None
    ) -> None:
        """Fail unless first > second, or almost equal to it."""
        if not first >= second:
            self.assertAlmostEqual(first, second, places, msg, delta)

    def assertEqual(
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
        exact_is_coalesced: bool = False,
    ) -> None:
        options: dict[str, Any] = {"atol": atol, "rtol": rtol, "equal_nan": equal_nan, "exact_stride": exact_stride}
        options.update(
            exact_dtype=exact_dtype and self.exact_dtype, exact_device=exact_device, exact_layout=exact_layout
        )
        try:
            self._compare(x, y, options)
        except AssertionError as problem:
            text = msg(str(problem)) if callable(msg) else f"{problem}\n{msg}" if msg is not None else str(problem)
            raise self.failureException(text) from None

    def _compare(self, x: Any, y: Any, options: dict[str, Any]) -> None:
        x, y = parts_of_spread(x, y)
        if isinstance(x, torch.TypedStorage) and isinstance(y, torch.TypedStorage):
            super().assertEqual((x.dtype, x.device), (y.dtype, y.device))
            x, y = x.tolist(), y.tolist()
        if isinstance(x, torch.Tensor) and isinstance(y, Sequence):
            y = torch.as_tensor(y, dtype=x.dtype, device=x.device)
        elif isinstance(y, torch.Tensor) and isinstance(x, Sequence):
            x = torch.as_tensor(x, dtype=y.dtype, device=y.device)
        if _is_array(x) and _is_array(y):
            self._compare_tensors(x, y, options)
        elif (_is_array(x) or _is_array(y)) and all(_is_array(v) or isinstance(v, _NUMBERS) for v in (x, y)):
            self._compare_numbers(_number(x), _number(y), options)
        elif isinstance(x, _NUMBERS) and isinstance(y, _NUMBERS):
            self._compare_numbers(x, y, options)
        elif isinstance(x, (str, bytes)) or isinstance(y, (str, bytes)) or isinstance(x, Set):
            super().assertEqual(x, y)
        elif isinstance(x, _MAPPINGS) and isinstance(y, _MAPPINGS):
            super().assertEqual(set(x), set(y))
            for key in x:
                self._compare(x[key], y[key], options)
        elif isinstance(x, _SEQUENCES) and isinstance(y, _SEQUENCES):
            super().assertEqual(len(x), len(y), "lengths differ")
            for first, second in zip(x, y):
                self._compare(first, second, options)
        else:
            super().assertEqual(x, y)

    def _tolerances(self, x: Any, y: Any, options: dict[str, Any]) -> dict[str, Any]:
        if options["rtol"] is None and options["atol"] is None:
            rtol, atol = map(max, zip(_default_tolerances(x), _default_tolerances(y)))
            return {"rtol": max(rtol, self.rel_tol), "atol": max(atol, self.precision)}
        return {"rtol": options["rtol"] or 0.0, "atol": options["atol"] or 0.0}

    def _compare_tensors(self, x: Any, y: Any, options: dict[str, Any]) -> None:
        x, y = (
            torch.from_numpy(np.ascontiguousarray(v).reshape(v.shape)) if isinstance(v, np.ndarray) else v
            for v in (x, y)
        )
        torch.testing.assert_close(
            x,
            y,
            **self._tolerances(x, y, options),
            equal_nan=options["equal_nan"],
            check_dtype=options["exact_dtype"],
            check_device=options["exact_device"],
            check_layout=options["exact_layout"],
            check_stride=options["exact_stride"],
        )

    def _compare_numbers(self, x: Any, y: Any, options: dict[str, Any]) -> None:
        limits = self._tolerances(x, y, options)
        both_nan = x != x and y != y and options["equal_nan"]
        if not (x == y or both_nan or abs(x - y) <= limits["atol"] + limits["rtol"] * abs(y)):
            raise AssertionError(f"Scalars are not close! Expected {y} but got {x}")

    def assertNotEqual(self, x: Any, y: Any, msg: Any = None, **options: Any) -> None:  # type: ignore[override]
        try:
            self.assertEqual(x, y, **options)
        except AssertionError:
            return
        raise self.failureException(msg or f"{x!r} == {y!r}")

    def assertEqualIgnoreType(self, x: Any, y: Any, **options: Any) -> None:
        self.assertEqual(x, y, exact_dtype=False, **options)

    def assertEqualBroadcasting(self, x: Any, y: Any, **options: Any) -> None:
        self.assertEqual(x, torch.full_like(x, y) if isinstance(y, _NUMBERS) else y.expand_as(x), **options)

    def assertEqualTypeString(self, x: Any, y: Any) -> None:
        self.assertEqual((x.device, x.dtype, x.is_sparse), (y.device, y.dtype, y.is_sparse))

    def assertObjectIn(self, obj: Any, iterable: Any) -> None:
        self.assertTrue(any(item is obj for item in iterable), "the object itself is not among these")

    def compare_with_numpy(
        self,
        torch_fn: Callable,
        np_fn: Callable,
        tensor_like: Any,
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> None:
        t = (
            tensor_like
            if isinstance(tensor_like, torch.Tensor)
            else torch.tensor(tensor_like, device=device, dtype=dtype)
        )
        plain = t.float() if t.dtype is torch.bfloat16 else t
        expected = np_fn(plain.detach().cpu().numpy())
        result = torch_fn(t)
        if isinstance(expected, np.ndarray):
            expected = torch.from_numpy(np.array(expected)).to(result.dtype)
        self.assertEqual(result, expected, **options)

    # -- text -----------------------------------------------------------------------------------------------------------------

    def assertExpectedInline(self, actual: Any, expect: str, skip: int = 0) -> None:
        super().assertEqual(actual if isinstance(actual, str) else str(actual), expect)

    def assertExpectedRaisesInline(
        self, exc_type: Any, callable: Callable, expect: str, *args: Any, **kwargs: Any
    ) -> None:
        with self.assertRaises(exc_type) as caught:
            callable(*args, **kwargs)
        self.assertExpectedInline(str(caught.exception), expect)

    def assertExpected(self, s: str, subname: str | None = None) -> None:
        """Compare with a file next to the test, which is named after it."""
        place = Path(str(sys.modules[type(self).__module__].__file__)).parent / "expect"
        title = self.id().split(".", 1)[-1] + (f"-{subname}" if subname else "")
        super().assertEqual(s.rstrip(), (place / f"{title}.expect").read_text().rstrip())

    # -- warnings -------------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def assertWarnsOnceRegex(self, category: type[Warning], regex: str = "") -> Iterator[None]:
        before = torch.is_warn_always_enabled()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.set_warn_always(True)
            try:
                yield
            finally:
                torch.set_warn_always(before)
        self.assertTrue(seen, "no warning was given")
        texts = [str(one.message) for one in seen if issubclass(one.category, category)]
        self.assertTrue(any(re.search(regex, text) for text in texts), f"no {category.__name__} {regex!r} in {texts}")

    def assertNotWarn(self, callable: Callable, msg: str = "") -> None:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            callable()
        self.assertTrue(not seen, f"{msg} {[str(one.message) for one in seen]}")

    def check_nondeterministic_alert(self, fn: Callable, caller_name: str, should_alert: bool = True) -> None:
        """Check that `fn` raises, or with warn_only warns, when deterministic algorithms are required."""
        before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        text = f"^{caller_name} does not have a deterministic implementation, but you set"
        try:
            torch.use_deterministic_algorithms(True)
            with self.assertRaisesRegex(RuntimeError, text) if should_alert else contextlib.nullcontext():
                fn()
            torch.use_deterministic_algorithms(True, warn_only=True)
            with self.assertWarnsRegex(UserWarning, text) if should_alert else contextlib.nullcontext():
                fn()
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _number(value: Any) -> Any:
    return value.item() if _is_array(value) else value


def _default_tolerances(value: Any) -> tuple[float, float]:
    """Return PyTorch's published tolerances of a dtype."""
    number = "float32" if isinstance(value, float) else "complex64" if isinstance(value, complex) else "int64"
    return TOLERANCES.get(value.dtype.name if isinstance(value, torch.Tensor) else number, (0.0, 0.0))
