"""Tests of other projects that use PyTorch's own base class run on Flambeau, and judge as on PyTorch."""

from __future__ import annotations

import importlib
import unittest
from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau

torch = judge("torch")

PAIRS = [
    "torch.ones(2), torch.ones(2)",
    "torch.ones(2), torch.ones(2) + 1e-7",
    "torch.ones(2), torch.ones(2) + 1e-3",
    "torch.ones(2), torch.ones(2).double()",
    "torch.ones(2), [1.0, 1.0]",
    "torch.tensor(3), 3",
    "1.0, 1.0 + 1e-9",
    "1, 2",
    "'a', 'a'",
    "'a', 'b'",
    "[torch.ones(1), 'x'], (torch.ones(1), 'x')",
    "[1, 2], [1, 2, 3]",
    "{'a': torch.ones(2)}, {'a': torch.ones(2)}",
    "{'a': torch.ones(2)}, {'b': torch.ones(2)}",
    "float('nan'), float('nan')",
    "torch.tensor([float('nan')]), torch.tensor([float('nan')])",
    "np.ones(2), torch.ones(2, dtype=torch.float64)",
    "torch.ones(2), torch.ones(3)",
    "None, None",
    "None, 1",
    "torch.float32, torch.float32",
]


def module(library: Any) -> Any:
    return importlib.import_module(f"{library.__name__}.testing._internal.common_utils")


@pytest.fixture(scope="module")
def theirs() -> Any:
    return pytest.importorskip(
        "torch.testing._internal.common_utils",
        reason="PyTorch is not here, or expecttest, which its base class of tests needs",
    )


def verdict(library: Any, common: Any, pair: str, **options: Any) -> bool:
    case = common.TestCase()
    x, y = eval(pair, {"torch": library, "np": np})
    try:
        case.assertEqual(x, y, **options)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("pair", PAIRS)
def test_the_base_class_judges_as_pytorchs(pair, theirs):
    for options in ({}, {"atol": 1e-2, "rtol": 0.0}, {"exact_dtype": False}):
        assert verdict(flambeau, module(flambeau), pair, **options) == verdict(torch, theirs, pair, **options), options


def run_one(common: Any) -> list[str]:
    class TestMany(common.TestCase):
        @common.parametrize("a, b", [(1, 2), common.subtest((3, 4), name="large")])
        @common.parametrize("flag", [True, False])
        def test_sum(self, a, b, flag):
            self.assertEqual(a + b, 7 if a == 3 else 3)

        @common.slowTest
        def test_slow(self):
            raise AssertionError("is skipped")

        @common.skipIfTorchDynamo("not under it")
        def test_seeded(self):
            self.assertNotEqual(1, 2)

    common.instantiate_parametrized_tests(TestMany)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(TestMany)
    result = unittest.TestResult()
    suite.run(result)
    assert not result.failures and not result.errors and len(result.skipped) == 1
    return sorted(name for name in dir(TestMany) if name.startswith("test_"))


def test_parametrised_tests_have_pytorchs_names(theirs):
    assert run_one(module(flambeau)) == run_one(theirs)


def test_every_test_starts_from_the_same_seed(theirs):
    drawn = []
    for library, common in ((flambeau, module(flambeau)), (torch, theirs)):
        case = common.TestCase()
        case.setUp()
        with common.freeze_rng_state():
            library.rand(3)
        drawn.append(library.rand(2).tolist())
    assert drawn[0] == drawn[1]
