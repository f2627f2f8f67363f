"""What tests against the real PyTorch have in common."""

from __future__ import annotations

import copy
import pickle
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m smoke`, leave out files without such tests: importing them all takes longer than running those."""
    if config.getoption("markexpr") != "smoke" or not collection_path.name.startswith("test_"):
        return None
    return None if "mark.smoke" in collection_path.read_text(encoding="utf-8") else True


@pytest.fixture(autouse=True)
def distributions_check_their_arguments() -> None:
    """PyTorch switches these checks off for good when its compiler is imported, which another test may have done."""
    theirs = sys.modules.get("torch.distributions")
    if theirs is not None:
        theirs.Distribution.set_default_validate_args(True)


def _shown(value: Any) -> str:
    return re.sub(r"\bflambeau(\.core\.\w+)?\.", "torch.", repr(value))


def _outcome(library: Any, expression: str, setup: str) -> tuple[str, str]:
    """("value", printed value) or ("error", name of the exception) of an expression over `torch`, whatever that is."""
    names = {"torch": library, "np": np, "copy": copy, "pickle": pickle}
    exec(setup, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "value", _shown(eval(expression, names))
        except Exception as problem:
            return "error", type(problem).__name__


# A tensor of each kind, for expressions to be about.
TENSORS = """
x = torch.arange(6.).reshape(2, 3)
i = torch.arange(6).reshape(2, 3)
b = torch.tensor([True, False])
z = torch.tensor([1+2j, 3-1j])
r = torch.arange(6.).reshape(2, 3).requires_grad_()
s = torch.tensor(2.5)
n = torch.tensor(3)
h = torch.arange(3).to(torch.bfloat16)
"""


@pytest.fixture
def agrees() -> Callable[[str, str], None]:
    """agrees(expression, setup): PyTorch and Flambeau print the same value, or raise the same exception. Without a setup
    the expression can use the tensors x, i, b, z, r, s, n, h above."""
    torch = pytest.importorskip("torch", reason="compares with the real PyTorch")

    def check(expression: str, setup: str = TENSORS) -> None:
        expected = _outcome(torch, expression, setup)
        assert _outcome(flambeau, expression, setup) == expected, expression

    return check


@pytest.fixture
def same_outcome() -> Callable[[Callable], None]:
    """same_outcome(scenario): scenario(torch) and scenario(flambeau) return or raise the same."""
    torch = pytest.importorskip("torch", reason="compares with the real PyTorch")

    def run(library: Any, scenario: Callable) -> tuple[str, str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return "value", _shown(scenario(library))
            except Exception as problem:
                return "error", type(problem).__name__

    def check(scenario: Callable) -> None:
        assert run(flambeau, scenario) == run(torch, scenario)

    return check
